"""Delay Ctrl-C while a resource is acquired that its interrupted owner has to release."""

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
    """Handle SIGINT after the block; only the main thread is ever interrupted."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[tuple[int, FrameType | None]] = []
    try:
        signal.signal(signal.SIGINT, lambda *arguments: deferred.append(arguments))
        yield
    finally:
        insist(signal.signal, signal.SIGINT, handler)
        if deferred:
            handler(*deferred[-1])


def insist(function: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
    """Call a function that handles pending signals first, again if one of their handlers raises."""
    try:
        function(*args, **kwargs)
    except BaseException:
        function(*args, **kwargs)
        raise
