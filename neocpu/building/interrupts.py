"""Delay Ctrl-C while a resource is acquired, so that no interruption leaves a process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, ParamSpec

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


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a command in a session of its own, and end what is left of it after the block."""
    with contextlib.ExitStack() as at_end:
        with interrupts_wait():  # else Ctrl-C could leave a process that nothing ends
            process = subprocess.Popen(command, start_new_session=True, **options)
            at_end.callback(_end, process)
        yield process


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
