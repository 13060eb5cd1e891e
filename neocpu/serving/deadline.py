"""A deadline that is set and put off often, and hardly ever reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls a function at a deadline, which may be changed any number of times before.

    It has one timer, which checks when it ends whether the deadline was put off. To make and cancel
    a timer in each step of each request would take longer than to look at the clock.

    The function may set another deadline.
    """

    __slots__ = ("_end", "_late", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[], None]) -> None:
        self._loop, self._late = loop, late
        self._end: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a deadline."""
        return self._end is not None

    def set(self, seconds: float | None) -> None:
        """Set the deadline to so many seconds from now, or remove it."""
        if seconds is None:
            self._end = None
            return
        self._end = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._end:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._start(self._end)

    def close(self) -> None:
        """Remove the deadline, and drop the timer with its reference to the function."""
        self._end = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, end: float) -> None:
        self._timer = self._loop.call_at(end, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._end is None:
            return
        if self._end > self._loop.time():
            self._start(self._end)
            return
        self._end = None
        self._late()
