"""One thread that runs jobs in order, because TVM's thread pool belongs to one thread."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")


class Runnable(Protocol):
    """What a worker's queue holds."""

    def run(self) -> None:
        """Do the work. What it raises is reported as uncaught, and ends nothing."""


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
        """Wait for the call; return what it returned or raise what it raised."""
        self._done.acquire()
        self._done.release()
        if self._error is not None:
            raise self._error
        return self._value

    def abandon(self) -> None:
        """Do without the result, where the wait for it was interrupted (Ctrl-C).

        A call that is still queued is never made, and one that is under way is waited for all the
        same: its caller's arrays are in use until it ends.
        """
        if self._claim.acquire(blocking=False):
            return
        # The interruption may have come when the call had ended and `result` held this lock.
        if self._call is not None:
            self._done.acquire()


class Worker:
    """A thread that lives until `stop` and keeps nothing alive but the job it runs.

    In a child of the process that made it there is no such thread: nothing can be submitted, and
    `stop` does nothing. Locks are not touched there, for another thread may have held them when the
    process forked.
    """

    __slots__ = ("_ident", "_jobs", "_lock", "_process", "_stopped", "_thread")

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Runnable | None] = SimpleQueue()
        # A signal's handler may stop what its own thread is just putting a job into.
        self._lock = threading.RLock()
        self._stopped = False
        self._process = os.getpid()
        # A daemon, or an interpreter that exits without `stop` would wait for it for ever.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self._ident = self._thread.ident
        _running.add(self)

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

    def end(self) -> None:
        """Take no more jobs; the thread ends behind those queued. Any number of times.

        Nothing is waited for, so that the garbage collector may call it: it runs on any thread,
        even the worker's own, amid anything, with locks held that the last jobs may need.
        """
        if self.orphaned:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._jobs.put(None)

    def stop(self) -> None:
        """`end`, and wait for it, unless this is the worker's own thread."""
        self.end()
        if not self.orphaned and threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.run()
            except BaseException:  # a future's callback, such as one that calls sys.exit
                uncaught = threading.ExceptHookArgs((*sys.exc_info(), self._thread))
                threading.excepthook(uncaught)
            del job
        _running.discard(self)


# Not weak: of a worker that is dropped, the thread may still be at its last jobs.
_running: Final[set[Worker]] = set()


@atexit.register
def _stop_all() -> None:
    """Let last jobs end before the interpreter takes itself apart."""
    for worker in tuple(_running):
        worker.stop()
