"""What holds for every test."""

import signal


def pytest_configure():
    # The background jobs of a shell ignore Ctrl-C, and the processes they start inherit that: the
    # tests that interrupt one would wait forever.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
