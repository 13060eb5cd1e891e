"""Ctrl-C waits while something is begun that whoever is interrupted has to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec

_P = ParamSpec("_P")


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let SIGINT be handled when the block has ended; only the main thread is ever interrupted."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    try:
        signal.signal(signal.SIGINT, lambda *arguments: held.append(arguments))
        yield
    finally:
        insist(signal.signal, signal.SIGINT, handler)
        if held:
            handler(*held[-1])


def insist(function: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
    """Call one of the functions that first handle the signals there are, which may raise."""
    try:
        function(*args, **kwargs)
    except BaseException:
        function(*args, **kwargs)
        raise
