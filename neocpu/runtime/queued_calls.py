"""Queue calls for threads of their own, while the caller goes on."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Job = Callable[[], object]


class QueuedCalls:
    """A queue of calls, which begin in order. Threads that make them start with the first call."""

    __slots__ = ("_alive", "_count", "_jobs", "_lock", "_name", "_process", "_stopped", "_threads")

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._count = self._alive = threads
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # The garbage collector may call `end` while this very thread holds the lock.
        self._lock = threading.RLock()
        self._stopped = False
        self._threads: tuple[threading.Thread, ...] = ()
        self._process = os.getpid()

    def submit(self, call: Callable[[], T]) -> Future[T] | None:
        """Queue a call; return None if the queue is ended, or in another process."""
        from concurrent.futures import Future  # here, because that takes 5 ms

        future: Future[T] = Future()
        waiting = [call]  # dropped as soon as it is cancelled, because its inputs may be large
        future.add_done_callback(lambda _: waiting.clear())
        return future if self._enqueue(lambda: _make(waiting, future)) else None

    def end(self) -> None:
        """Take no more calls, but wait for none: the garbage collector may call this anywhere."""
        if self._is_elsewhere:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                for _ in range(self._count):
                    self._jobs.put(None)

    @property
    def is_ended(self) -> bool:
        return self._stopped

    def wait(self) -> None:
        """Wait for the calls queued so far, unless this is a thread that makes them."""
        if self._is_elsewhere or not self._threads or threading.current_thread() in self._threads:
            return
        # All threads meet here, so that none still makes an earlier call.
        over = threading.Barrier(self._count + 1)
        if self._enqueue(over.wait, self._count):
            over.wait()
        else:
            for thread in self._threads:
                thread.join()

    @property
    def _is_elsewhere(self) -> bool:
        return os.getpid() != self._process

    def _enqueue(self, job: Job, times: int = 1) -> bool:
        if self._is_elsewhere:
            return False
        with self._lock:
            if self._stopped:
                return False
            if not self._threads:
                # Daemons: an interpreter that exits would wait for others for ever.
                self._threads = tuple(
                    threading.Thread(target=self._serve, name=self._name, daemon=True)
                    for _ in range(self._count)
                )
                _serving.add(self)
                for thread in self._threads:
                    thread.start()
            for _ in range(times):
                self._jobs.put(job)
            return True

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException:  # a future's callback, such as one that calls sys.exit
                thread = threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
            del job
        with self._lock:
            self._alive -= 1
            if not self._alive:
                _serving.discard(self)


def _make(waiting: list[Callable[[], Any]], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    call = waiting.pop()
    try:
        value = call()
    except BaseException as error:
        del call
        future.set_exception(error)
    else:
        del call
        future.set_result(value)


# Not weak references: threads of a dropped queue may still make its last calls.
_serving: Final[set[QueuedCalls]] = set()


@atexit.register
def _finish_all() -> None:
    for queue in tuple(_serving):
        queue.end()
        queue.wait()
