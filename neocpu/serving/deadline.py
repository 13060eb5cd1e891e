"""A time that something has, of which most that has one is done long before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls a function when a time is over that may be changed any number of times before.

    By one timer, which looks when it ends whether the time was put off: to make and to cancel one
    with each step of each request takes longer than to look at the clock.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
    late : callable
        May set another time.
    """

    __slots__ = ("_end", "_late", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, late: Callable[[], None]) -> None:
        self._loop, self._late = loop, late
        self._end: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is a time that ends."""
        return self._end is not None

    def set(self, seconds: float | None) -> None:
        """Have so many seconds from now on, or all the time there is."""
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
        """Call nothing any more, nor keep what would be called."""
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
