"""Signals that ask a command to end."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130  # exit code of a program that Ctrl-C ended: 128 + SIGINT
_ORDERLY: Final = (signal.SIGTERM, signal.SIGHUP)


def forget_interruption() -> None:
    """Let the interpreter exit with our exit code although Ctrl-C was pressed and caught.

    CPython remembers an interruption of executing source (as when a dataclass is made, so during
    any import) until it executes source again. Run as ``python -m``, it ends by SIGINT if it
    remembers one, even if the exception was caught.
    """
    exec("")


class OrderlyEnd:
    """A handler that makes SIGTERM and SIGHUP end a command like Ctrl-C, which cleans up."""

    def __init__(self) -> None:
        self._signal = 0

    def install(self) -> None:
        """Handle the signals that are neither handled nor ignored yet (`nohup` ignores SIGHUP)."""
        for number in _ORDERLY:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._interrupt)

    def exit_code(self, code: int) -> int:
        """Return the exit code of a command that returned ``code``; 0 if it had succeeded."""
        return 128 + self._signal if self._signal and code else code

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
