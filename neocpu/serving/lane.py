"""The threads that run calls of models, one at a time each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from neocpu import ThreadPool
from neocpu.runtime.thread_pool import Threads

T = TypeVar("T")


class Lane:
    """A thread pool on which one call runs at a time, of whichever model.

    Attributes
    ----------
    pending : int
        Calls handed to it and not finished.
    """

    __slots__ = ("_finished", "_lock", "pending", "pool")

    def __init__(self, threads: Threads) -> None:
        self.pool = ThreadPool(threads)
        self.pending = 0
        self._finished = 0.0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call on the pool, as `ThreadPool.submit`."""
        return self.count(self.pool.submit(call))

    def count(self, future: Future[T]) -> Future[T]:
        """Count a call that was handed to the pool until it is done; return it."""
        with self._lock:
            self.pending += 1
        future.add_done_callback(self._leave)
        return future

    def wait(self) -> None:
        """Wait for the calls handed to it so far."""
        self.pool.wait()

    def finish(self, submitted: float) -> tuple[float, float]:
        """Return the seconds a call that ends now has waited and run."""
        # Calls run one after another, so it began when it came or when the one before it ended.
        now = time.perf_counter()
        began = max(submitted, self._finished)
        self._finished = now
        return began - submitted, now - began

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self.pending -= 1


def least_busy(lanes: Sequence[Lane]) -> int:
    """Return the position of the lane with the fewest calls."""
    return min(range(len(lanes)), key=lambda index: lanes[index].pending)
