"""One thread that runs jobs in order, because TVM's thread pool belongs to one thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Runnable(Protocol):
    """What a worker's queue holds."""

    def run(self) -> None:
        """Do the work; never raise."""


class Job(Generic[T]):
    """A call handed to a `Worker` by a thread that waits for it."""

    __slots__ = ("_call", "_claim", "_done", "_error", "_value")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        # Bare locks are the quickest hand-off CPython has: a call costs two futex wake-ups.
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._value: T
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call and wake whoever waits for it, unless that one gave up."""
        if not self._claim.acquire(blocking=False):
            return
        assert self._call is not None
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._call = None
            self._done.release()

    def result(self) -> T:
        """Wait for the call; return what it returned or raise what it raised.

        If the wait is interrupted (Ctrl-C), a call that is still queued is never made, and one that
        is under way is waited for all the same: its caller's arrays are in use until it ends.
        """
        try:
            self._done.acquire()
        except BaseException:
            if not self._claim.acquire(blocking=False):
                self._done.acquire()
            raise
        self._done.release()
        if self._error is not None:
            raise self._error
        return self._value


class Worker:
    """A thread that lives until `stop` and keeps nothing alive but the job it runs.

    In a child of the process that made it there is no such thread: nothing can be submitted, and
    `stop` does nothing. Locks are not touched there, for another thread may have held them when the
    process forked.
    """

    __slots__ = ("_ident", "_jobs", "_lock", "_process", "_stopped", "_thread")

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Runnable | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._process = os.getpid()
        # A daemon, or an interpreter that exits without `stop` would wait for it for ever.
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()
        self._ident = self._thread.ident

    @property
    def orphaned(self) -> bool:
        """Whether this process is a fork of the one that has the thread."""
        return os.getpid() != self._process

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the worker's, and takes jobs."""
        # Another thread may be given the number of one that has ended.
        return threading.get_ident() == self._ident and not self._stopped and not self.orphaned

    def submit(self, call: Callable[[], T]) -> Job[T] | None:
        """Queue a call behind those already queued; ``None`` once the worker is stopped."""
        job = Job(call)
        return job if self.put(job) else None

    def put(self, job: Runnable) -> bool:
        """Queue a job behind those already queued; False once the worker is stopped."""
        if self.orphaned:
            return False
        with self._lock:
            if not self._stopped:
                self._jobs.put(job)
            return not self._stopped

    def stop(self) -> None:
        """Finish the queued jobs, then end the thread. Any number of times, from any thread."""
        if self.orphaned:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._jobs.put(None)
        # The garbage collector may call this on the worker's own thread.
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _serve(jobs: SimpleQueue[Runnable | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job
