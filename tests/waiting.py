"""Waiting for events in other processes and threads, on slow machines too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 60.0
"""The most seconds to wait."""
PAUSE: Final = 0.002
"""Seconds between two checks: some conditions hold only for a moment."""


def wait_until(condition: Callable[[], T], seconds: float = PATIENCE, what: str = "it") -> T:
    """Return the first true value of ``condition``, and fail if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(PAUSE)
    return found
