"""Run a call on its own stack, too large for any model to exhaust, and let Ctrl-C interrupt it.

TVM's passes recurse once for each level of an expression and each statement around it: a few
hundred fused operators fill the 8 MiB stack of a main thread, and the process dies. A thread's
stack may be as large as we like, because only the touched part takes memory.

The main thread handles signals: Ctrl-C ends its wait for such a call. If it were raised within a
Python function that TVM calls, it would become an error of TVM's.

TVM proves bounds with Z3, which handles SIGINT itself for the milliseconds of a proof, and puts
Python's handler back with the C library's ``signal``: from then on interrupted system calls start
again, and a thread that waits for a lock does not wake. So we poll, and put the handler back.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from neocpu.building.interrupts import insist

STACK_BYTES: Final = 1 << 29
"""Bytes of address space for the stack; about 60 times that of a main thread."""
LESS_BYTES: Final = 1 << 26
"""Bytes for the stack where the address space is limited (``ulimit -v``)."""

PATIENCE: Final = 10.0
"""Seconds to wait for an interrupted call. Only a pass of TVM that never ends takes as long."""
INTERRUPTED: Final = 130
"""Exit code of a process interrupted within a pass that never ends: 128 + SIGINT."""

LOOK_SECONDS: Final = 0.05
"""Seconds between checks for signals."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib") + os.sep

# Python has one stack size for all threads it starts next, so ours are started one at a time.
_STACK_SIZE = threading.Lock()


def on_deep_stack(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return ``function(*args, **kwargs)``, called in a thread with a stack of `STACK_BYTES`.

    An interruption (Ctrl-C, or another signal whose handler raises) ends the call at its next step
    in Python, for which this waits up to `PATIENCE` seconds.
    """
    values: list[_T] = []
    errors: list[BaseException] = []
    ended = threading.Event()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            if not ended.is_set():
                values.append(context.run(function, *args, **kwargs))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=call, name="neocpu-compiler", daemon=True)
    try:
        _start(thread)
        while not ended.wait(LOOK_SECONDS):
            pass
    except BaseException:
        _end(thread, ended)
        raise
    finally:
        _put_handler_back()
    thread.join()
    if errors:
        raise errors.pop()  # popped, or the error and its frames would refer to each other
    return values.pop()


def _start(thread: threading.Thread) -> None:
    with _STACK_SIZE:
        for size in (STACK_BYTES, LESS_BYTES):
            try:
                with _stack_size(size):
                    return thread.start()
            except RuntimeError:  # no room for it
                continue
    thread.start()


@contextmanager
def _stack_size(size: int) -> Iterator[None]:
    before = threading.stack_size(size)
    try:
        yield
    finally:
        threading.stack_size(before)


def _end(thread: threading.Thread, ended: threading.Event) -> None:
    """Raise `SystemExit`, which ends a thread silently, at the thread's next step in our code."""
    limit = time.monotonic() + PATIENCE
    pause = 0.0
    try:
        while not ended.wait(pause) and time.monotonic() < limit:
            if thread.ident is None:  # interrupted during its start: it has not begun or never will
                ended.set()
                return
            if _in_standard_library(thread.ident):
                pause = 0.001
                continue
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
            )
            pause = 0.02
        thread.join(max(0.0, limit - time.monotonic()))
    finally:
        if thread.is_alive():
            # `atexit` would be too late: `concurrent.futures` waits before it, for a lock of its
            # own that the thread may hold.
            threading._register_atexit(_leave, thread)  # type: ignore[attr-defined]


def _in_standard_library(ident: int) -> bool:
    """Return whether a thread is in a function that must not be left between any two steps.

    Logging, imports and pools take process-wide locks and would never release them. While one
    thread starts another, Python 3.11 has both under one identity, and would end the new one.
    """
    frame = sys._current_frames().get(ident)
    if frame is None:
        return False
    file = frame.f_code.co_filename
    return file.startswith("<frozen ") or (
        file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file
    )


def _put_handler_back() -> None:
    """Let SIGINT interrupt system calls again, if Python handles it."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and threading.current_thread() is threading.main_thread():
        insist(signal.signal, signal.SIGINT, handler)


def _leave(thread: threading.Thread) -> None:
    """End a process whose thread is still in a pass, because Python's own exit would crash it."""
    if thread.is_alive():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
