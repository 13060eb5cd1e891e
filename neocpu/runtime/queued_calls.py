"""Calls that are made in turn, on a thread of their own, while whoever wants them goes on."""

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
Job = Callable[[], None]


class QueuedCalls:
    """A queue of calls, and from the first one on a thread that makes them.

    Parameters
    ----------
    name : str
        Of the thread.

    In a child of the process that made it there is no such thread: nothing can be submitted, and
    there is nothing to wait for. Locks are not touched there, for another thread may have held them
    when the process forked.
    """

    __slots__ = ("_jobs", "_lock", "_name", "_process", "_stopped", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # The garbage collector may call `end` amid what this very thread does here.
        self._lock = threading.RLock()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def submit(self, call: Callable[[], T]) -> Future[T] | None:
        """Queue a call. Cancelled, it is forgotten: its inputs may be large.

        Returns
        -------
        concurrent.futures.Future or None
            None once the queue is ended, or in another process.
        """
        from concurrent.futures import Future  # here, because that takes 5 ms

        future: Future[T] = Future()
        waiting = [call]
        future.add_done_callback(lambda _: waiting.clear())
        return future if self._put(lambda: _make(waiting, future)) else None

    def end(self) -> None:
        """Take no more calls; the thread ends after those queued. Any number of times.

        Nothing is waited for, so that the garbage collector may call it: it runs on any thread,
        even the one that makes calls, with locks held that the last calls may need.
        """
        if self._is_elsewhere:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._jobs.put(None)

    @property
    def is_ended(self) -> bool:
        """Whether `end` was called."""
        return self._stopped

    def wait(self) -> None:
        """Wait for the calls queued so far, unless this is the thread that makes them."""
        if self._is_elsewhere or self._thread in (None, threading.current_thread()):
            return
        over = threading.Event()
        if self._put(over.set):
            over.wait()
        elif self._thread is not None:
            self._thread.join()

    @property
    def _is_elsewhere(self) -> bool:
        return os.getpid() != self._process

    def _put(self, job: Job) -> bool:
        if self._is_elsewhere:
            return False
        with self._lock:
            if self._stopped:
                return False
            if self._thread is None:
                # A daemon, or an interpreter that exits would wait for it for ever.
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
                _serving.add(self)
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
        _serving.discard(self)


def _make(waiting: list[Callable[[], Any]], future: Future[Any]) -> None:
    """Make a call and tell its future, unless that was cancelled."""
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


# Not weak: of a queue that is dropped, the thread may still be at its last calls.
_serving: Final[set[QueuedCalls]] = set()


@atexit.register
def _finish_all() -> None:
    """Let last calls be made before the interpreter takes itself apart."""
    for queue in tuple(_serving):
        queue.end()
        queue.wait()
