"""Threads that run models: those of one module, or shared by several."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural
from neocpu.runtime.binding import Handle, library, made_by
from neocpu.runtime.queued_calls import QueuedCalls
from neocpu.runtime.unpicklable import Unpicklable

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

Threads: TypeAlias = 'int | Literal["performance"] | None'
"""A number of threads. None is the default; "performance" takes performance cores only."""

# A caller that asks for far more threads than CPUs has made a mistake.
THREADS_PER_CPU: Final = 16

_PERFORMANCE: Final = -1000000
"""``NEOCPU_PERFORMANCE``."""


class ThreadPool(Unpicklable, Closing):
    """Threads that modules run on. Calls of all modules on one pool take turns, in order.

    Without a pool, each module has its own threads, and two modules called at once compete for the
    CPUs. Threads spin within a call, and sleep between calls.

    Parameters
    ----------
    threads : int or "performance", optional
        The number of threads, the calling one included, limited by affinity. The default is the
        number of CPUs this process may use (affinity and control-group quota). "performance" takes
        only performance cores, where a machine has slower ones too; all threads but the calling one
        then stay on them.
    pin : bool
        Whether each thread but the calling one stays on its own CPU. This is for machines that run
        nothing else: a busy neighbour on that CPU would delay the thread.
    name : str
        The name, for debuggers, of the thread that makes queued calls.

    Attributes
    ----------
    threads : int

    Raises
    ------
    UsageError
        ``threads`` is not positive, or far more than the machine has.
    """

    _instead = "make one in each process"

    def __init__(
        self, threads: Threads = None, *, pin: bool = False, name: str = "neocpu-pool"
    ) -> None:
        core = library()
        address = made_by(core.neocpu_pool_start, check_threads(threads), pin)
        self._handle: Handle | None = Handle(address, core.neocpu_pool_free)
        self.threads: Final[int] = core.neocpu_pool_threads(address)
        self._queue = QueuedCalls(name)
        weakref.finalize(self, self._queue.end).atexit = False  # the queue has its own exit handler

    @property
    def handle(self) -> Handle:
        """The library's pool.

        Raises
        ------
        UsageError
            This pool is closed.
        """
        handle = self._handle
        if handle is None:
            raise self._closed()
        return handle

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._queue.is_ended

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function and return at once. It can be cancelled while it is queued.

        Functions are called one after another, on a thread of their own.

        Raises
        ------
        UsageError
            The pool is closed, or was made before this process forked.
        """
        future = self._queue.submit(function)
        if future is None:
            if not self.is_closed:
                raise UsageError(
                    "the pool was made before this process forked: make one in the child"
                )
            raise self._closed()
        return future

    def wait(self) -> None:
        """Wait for the calls that were made or queued so far."""
        self._queue.wait()
        if (handle := self._handle) is not None:
            library().neocpu_pool_wait(handle.address)

    def close(self) -> None:
        """Finish the calls already made, then give up the threads. May be repeated.

        Modules that run on the pool can then only be closed.
        """
        self._queue.end()
        self.wait()
        self._handle = None

    @staticmethod
    def _closed() -> UsageError:
        return UsageError("the thread pool is closed: make another")

    def __repr__(self) -> str:
        return f"<neocpu.ThreadPool: {plural(self.threads, 'thread')}>"


def check_threads(threads: Threads) -> int:
    """Return threads as `neocpu_options` has them: 0 by default, or `NEOCPU_PERFORMANCE`."""
    if threads is None:
        return 0
    if threads == "performance":
        return _PERFORMANCE
    return check_count("threads", threads)


def check_count(what: str, count: Any, instead: str = "") -> int:
    """Check and return a number of threads, or of things that have a thread each.

    Parameters
    ----------
    what : str
        The name of the things, in the plural.
    instead : str
        An alternative to a number, for the error message.

    Raises
    ------
    UsageError
        The count is not positive, or far more than the machine has.
    """
    limit = THREADS_PER_CPU * (os.cpu_count() or 1)
    if not hasattr(count, "__index__") or not 1 <= count <= limit:
        raise UsageError(
            f"{what} must be from 1 to {limit} on this machine{instead}, got {count!r}"
        )
    return operator.index(count)
