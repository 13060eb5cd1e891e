"""Signals that ask a command to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""What a shell reports of a program that Ctrl-C ended: 128 + SIGINT."""

_ORDERLY: Final = (signal.SIGTERM, signal.SIGHUP)


def forget_interruption() -> None:
    """Have the interpreter end with its exit code, although Ctrl-C came, and was caught.

    CPython remembers one that came while source was executed (as when a dataclass is made, so
    during any import) until it executes source again; run as ``python -m``, it ends itself by
    SIGINT if there was one, whatever became of the exception.
    """
    exec("")


class OrderlyEnd:
    """Makes SIGTERM and SIGHUP end a command as Ctrl-C does, which leaves nothing behind."""

    def __init__(self) -> None:
        self._signal = 0

    def install(self) -> None:
        """Handle those signals that nobody handles or ignores (`nohup` does)."""
        for number in _ORDERLY:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._interrupt)

    def exit_code(self, code: int) -> int:
        """Return the exit code of a command that returned ``code``, 0 if it was done already."""
        return 128 + self._signal if self._signal and code else code

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        signal.signal(number, signal.SIG_DFL)  # the next one waits for nothing
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
