"""Children are forked while no signal is handled, and afterwards all are again."""

import signal

import pytest

from neocpu.building import forked


@pytest.mark.parametrize("function", ["pthread_sigmask", "signal"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_whatever_a_handler_raises_no_signal_stays_blocked(monkeypatch, function, nth, before):
    """These functions run the handlers of pending signals, before or instead of their work."""
    mask, handler = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT)
    calls, real = [], getattr(signal, function)

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == nth and before:
            raise KeyboardInterrupt
        result = real(*arguments)
        if len(calls) == nth:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(signal, function, interrupted)
        try:
            with forked._no_signals():
                pass
        except KeyboardInterrupt:
            assert len(calls) >= nth
        else:
            assert len(calls) < nth
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert signal.getsignal(signal.SIGINT) is handler
