"""Jobs whose result nobody waits for at once. Apart, because futures take 5 ms to import."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class FutureJob(Generic[T]):
    """A call handed to a worker by a thread that goes on; it can be cancelled while queued."""

    __slots__ = ("_call", "future")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self.future: Future[T] = Future()

    def run(self) -> None:
        """Make the call and tell the future, unless it was cancelled."""
        if not self.future.set_running_or_notify_cancel():
            return
        assert self._call is not None
        try:
            value = self._call()
        except BaseException as error:
            self._call = None
            self.future.set_exception(error)
        else:
            self._call = None
            self.future.set_result(value)
