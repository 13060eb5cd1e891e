"""Jobs whose result nobody waits for at once. Apart, because futures take 5 ms to import."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class CallFuture(Future[T]):
    """The future of a queued call. Cancelled, it forgets the call, whose inputs may be large."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__()
        self.call: Callable[[], T] | None = call

    def cancel(self) -> bool:
        """Cancel the call unless it is under way or done; return whether it is cancelled."""
        cancelled = super().cancel()
        if cancelled:
            self.call = None
        return cancelled


class FutureJob(Generic[T]):
    """A call handed to a worker by a thread that goes on; it can be cancelled while queued."""

    __slots__ = ("future",)

    def __init__(self, call: Callable[[], T]) -> None:
        self.future: CallFuture[T] = CallFuture(call)

    def run(self) -> None:
        """Make the call and tell the future, unless it was cancelled."""
        future = self.future
        if not future.set_running_or_notify_cancel():
            return
        assert future.call is not None
        try:
            value = future.call()
        except BaseException as error:
            future.call = None
            future.set_exception(error)
        else:
            future.call = None
            future.set_result(value)
