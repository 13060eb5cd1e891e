"""Threads that run models: one module's own, or shared by several."""

from __future__ import annotations

import itertools
import operator
import os
import weakref
from collections.abc import Callable, Set
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.units import plural
from neocpu.runtime.denormals import flush_denormals
from neocpu.runtime.ffi import runtime
from neocpu.runtime.unpicklable import Unpicklable
from neocpu.runtime.worker_threads import Job, Worker

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

# Threads beyond the CPUs only spin; far beyond, they take the machine down.
THREADS_PER_CPU: Final = 16

_SHARE_ALL_CORES: Final = -3  # ThreadGroup::kSpecifyThreadShareAllCore


class PoolUnavailable(UsageError):
    """The pool is closed, or belongs to the process that this one was forked from."""


class ThreadPool(Unpicklable):
    """Threads that modules run on. Calls of all modules of one pool take turns, in order.

    Without one, each module has threads of its own: two of them called at once then compete for
    the CPUs.

    Parameters
    ----------
    threads : int, optional
        How many; by default the CPUs this process may use (affinity and control-group quota).
        More than the machine has makes TVM's runtime print a warning, and calls slower.
    name : str
        Of the thread that makes the calls, in a debugger.

    Attributes
    ----------
    threads : int

    Raises
    ------
    UsageError
        If ``threads`` is not positive, or far more than the machine has.
    TargetError
        If TVM's runtime is not installed.
    """

    _instead = "make one in each process"

    def __init__(self, threads: int | None = None, *, name: str = "neocpu-pool") -> None:
        self.threads = check_threads(threads)
        runtime()
        self._worker = Worker(name, self.threads)
        self._finalizer = weakref.finalize(self, self._worker.end)
        self._finalizer.atexit = False  # the worker sees to that itself
        try:
            self.call(partial(prepare_thread, self.threads, os.sched_getaffinity(0)))
        except BaseException:
            self.close()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the pool's first thread, after those already queued, and wait for it.

        On that very thread, as in a future's callback, it runs at once.

        Raises
        ------
        PoolUnavailable
            If the pool is closed, or was made before this process forked.
        """
        if self._worker.is_current:
            return function()
        job = Job(function)
        try:
            if self._worker.put(job):
                return job.result()
        except BaseException:
            job.abandon()
            raise
        raise PoolUnavailable(self._refusal())

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function and return at once. It can be cancelled while it is queued.

        Raises
        ------
        PoolUnavailable
            As for `call`.
        """
        from neocpu.runtime.future_job import FutureJob

        job = FutureJob(function)
        if not self._worker.put(job):
            raise PoolUnavailable(self._refusal())
        return job.future

    def check_open(self) -> None:
        """Check that it can be called.

        Raises
        ------
        PoolUnavailable
            As for `call`.
        """
        if self.orphaned or self._worker.stopped:
            raise PoolUnavailable(self._refusal())

    @property
    def orphaned(self) -> bool:
        """Whether it was made before this process forked, and so has no threads here."""
        return self._worker.orphaned

    def close(self) -> None:
        """Finish the calls already made, then give up the threads. May be repeated.

        Modules that run on it can then only be closed. The next pool of as many threads gets them.
        """
        self._worker.stop()
        self._finalizer.detach()

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<neocpu.ThreadPool: {plural(self.threads, 'thread')}>"

    def _refusal(self) -> str:
        if self.orphaned:
            return "the thread pool was made before this process forked: make it in the child"
        return "the thread pool is closed: make another"


def check_threads(threads: int | None) -> int:
    """Return how many threads to use: as many as asked for, else the CPUs this process may use.

    Raises
    ------
    UsageError
        If ``threads`` is not positive, or far more than the machine has.
    """
    limit = THREADS_PER_CPU * (os.cpu_count() or 1)
    if threads is None:
        return usable_cpus()
    if not hasattr(threads, "__index__") or not 1 <= threads <= limit:
        raise UsageError(f"threads must be from 1 to {limit} on this machine, got {threads!r}")
    return operator.index(threads)


def prepare_thread(threads: int, cpus: Set[int]) -> None:
    """Make the calling thread one that runs models: with a TVM pool, and without denormals.

    A thread may be prepared anew for as many threads, whatever ran on it meanwhile.

    Parameters
    ----------
    threads : int
        Of the pool, the calling thread included.
    cpus : set of int
        The CPUs that all of them may use.
    """
    flush_denormals()  # before TVM's pool is made, whose threads inherit it
    configure_pool(threads, cpus)


def configure_pool(threads: int, cpus: Set[int]) -> None:
    """Give the calling thread its own TVM pool of exactly ``threads`` threads, itself included.

    TVM's pool binds its threads, and the thread that launches it, to single cores when it is made;
    the second call and the last line take that back, so that all of them may run on all of
    ``cpus``. (The environment variable that prevents it is process-wide: not ours to set.)
    """
    ffi = runtime()
    configure, strings = ffi.function("runtime.config_threadpool"), ffi.function("ffi.Array")
    names = [str(cpu) for cpu in sorted(cpus)]
    each = strings(*itertools.islice(itertools.cycle(names), threads))
    configure(_SHARE_ALL_CORES, threads, each)
    if threads > 1:
        configure(_SHARE_ALL_CORES, threads, strings(*names))
    os.sched_setaffinity(0, cpus)
    assert ffi.function("runtime.NumThreads")() == threads
