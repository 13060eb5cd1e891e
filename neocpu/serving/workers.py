"""The workers of a server. Each runs one call of a model at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from neocpu import ThreadPool
from neocpu.runtime.thread_pool import Threads

T = TypeVar("T")


class Worker:
    """A thread pool that runs one call at a time, of any model."""

    __slots__ = ("_finished", "_lock", "pending", "pool")

    def __init__(self, threads: Threads) -> None:
        self.pool = ThreadPool(threads)
        self.pending = 0
        self._finished = 0.0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call on the pool; see `ThreadPool.submit`."""
        return self.count(self.pool.submit(call))

    def count(self, future: Future[T]) -> Future[T]:
        """Count a call on the pool as pending until it is done; return it."""
        with self._lock:
            self.pending += 1
        future.add_done_callback(self._leave)
        return future

    def wait(self) -> None:
        self.pool.wait()

    def finish(self, submitted: float) -> tuple[float, float]:
        """Return the seconds that a call which ends now has waited, and has run."""
        # Calls run one after another: a call begins when it comes, or when the previous one ends.
        now = time.perf_counter()
        began = max(submitted, self._finished)
        self._finished = now
        return began - submitted, now - began

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self.pending -= 1


def least_busy(workers: Sequence[Worker]) -> int:
    """Return the position of the worker with the fewest calls."""
    return min(range(len(workers)), key=lambda index: workers[index].pending)
