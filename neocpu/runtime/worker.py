"""One thread that runs jobs in order, because TVM's thread pool belongs to one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """A call handed to a `Worker`."""

    __slots__ = ("_call", "_done", "_error", "_value")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        # A bare lock is the quickest hand-off CPython has: a call costs two futex wake-ups.
        self._done = threading.Lock()
        self._done.acquire()
        self._value: T
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call and wake whoever waits for it."""
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
        with self._done:
            if self._error is not None:
                raise self._error
            return self._value


class Worker:
    """A thread that lives until `stop` and keeps nothing alive but the job it runs."""

    __slots__ = ("_jobs", "_lock", "_stopped", "_thread")

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        # A daemon, or an interpreter that exits without `stop` would wait for it for ever.
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T]) -> Job[T] | None:
        """Queue a call behind those already queued; ``None`` once the worker is stopped."""
        job = Job(call)
        with self._lock:
            if self._stopped:
                return None
            self._jobs.put(job)
        return job

    def stop(self) -> None:
        """Finish the queued jobs, then end the thread. Any number of times, from any thread."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._jobs.put(None)
        # The garbage collector may call this on the worker's own thread.
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _serve(jobs: SimpleQueue[Job[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job
