"""Threads that do jobs in order, because TVM's thread pool belongs to one thread."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
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
    """A queue of jobs and a thread that does them until `stop`.

    Parameters
    ----------
    name : str
        Of the thread while it is this worker's.
    threads : int
        Of the TVM pool that jobs make. The thread may be one that made such a pool for a worker
        before this one.

    In a child of the process that made it there is no such thread: nothing can be submitted, and
    `stop` does nothing. Locks are not touched there, for another thread may have held them when the
    process forked.
    """

    __slots__ = ("_ended", "_ident", "_jobs", "_lock", "_process", "_stopped", "name")

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self._jobs: SimpleQueue[Runnable | None] = SimpleQueue()
        # A signal's handler may stop what its own thread is just putting a job into.
        self._lock = threading.RLock()
        self._stopped = False
        self._ended = threading.Event()
        self._process = os.getpid()
        self._ident: int | None = None  # until the thread has taken it up
        _thread_for(threads).take_up(self)
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
        # A thread goes on as another worker's once this one is stopped.
        return threading.get_ident() == self._ident and not self._stopped and not self.orphaned

    def submit(self, call: Callable[[], T]) -> Job[T] | None:
        """Queue a call after those already queued; ``None`` once the worker is stopped."""
        job = Job(call)
        return job if self.put(job) else None

    def put(self, job: Runnable) -> bool:
        """Queue a job after those already queued; False once the worker is stopped."""
        if self.orphaned:
            return False
        with self._lock:
            if not self._stopped:
                self._jobs.put(job)
            return not self._stopped

    def end(self) -> None:
        """Take no more jobs; the thread is free after those queued. Any number of times.

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
        """`end`, and wait for the last job, unless this is the worker's own thread."""
        self.end()
        if not self.orphaned and threading.get_ident() != self._ident:
            self._ended.wait()

    def do_jobs(self) -> None:
        """Do all jobs until `end`, on the calling thread."""
        self._ident = threading.get_ident()
        while (job := self._jobs.get()) is not None:
            try:
                job.run()
            except BaseException:  # a future's callback, such as one that calls sys.exit
                thread = threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
            del job

    def ended(self) -> None:
        """Let those go on who wait in `stop`."""
        _running.discard(self)
        self._ended.set()


class _PoolThread:
    """A thread that is one worker's after another, because TVM's thread pool belongs to a thread.

    A pool ends with its thread, but only after its threads have spun for some tenths of a second
    each: what is opened and closed in a loop would have hundreds of them. So a thread waits for the
    next worker with a pool of that size, and ends when none came for `KEEP_SECONDS`. Those of its
    pool sleep by then, and end at once.
    """

    __slots__ = ("_threads", "_workers")

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers: SimpleQueue[Worker] = SimpleQueue()
        # A daemon, or an interpreter that exits would wait for it for ever.
        threading.Thread(target=self._serve, name=_IDLE_NAME, daemon=True).start()

    def take_up(self, worker: Worker) -> None:
        """Do the jobs of ``worker`` until it ends."""
        self._workers.put(worker)

    def _serve(self) -> None:
        thread = threading.current_thread()
        while (worker := self._next()) is not None:
            thread.name = worker.name
            worker.do_jobs()
            thread.name = _IDLE_NAME
            _idle.setdefault(self._threads, []).append(self)
            worker.ended()
            del worker

    def _next(self) -> Worker | None:
        """Wait for a worker; None once this thread was idle for long, and none will come."""
        while True:
            try:
                return self._workers.get(timeout=KEEP_SECONDS)
            except Empty:
                try:
                    _idle[self._threads].remove(self)
                except (KeyError, ValueError):
                    continue  # taken just now: its worker is coming
                return None


def _thread_for(threads: int) -> _PoolThread:
    """Return an idle thread whose pool has ``threads`` threads, or a new one that has no pool."""
    try:
        return _idle[threads].pop()
    except (KeyError, IndexError):
        return _PoolThread(threads)


_IDLE_NAME: Final = "neocpu-idle"

KEEP_SECONDS: Final = 10.0
"""How long an idle thread is kept: what opens and closes pools in a loop comes back sooner."""

# By the threads of their pools. Without a lock, which a fork could leave locked: every operation on
# it is one of Python's own.
_idle: Final[dict[int, list[_PoolThread]]] = {}
os.register_at_fork(after_in_child=_idle.clear)

# Not weak: of a worker that is dropped, the thread may still be at its last jobs.
_running: Final[set[Worker]] = set()


@atexit.register
def _stop_all() -> None:
    """Let last jobs end before the interpreter takes itself apart."""
    for worker in tuple(_running):
        worker.stop()
