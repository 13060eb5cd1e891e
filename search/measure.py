"""Measuring schemes: the protocol every measurer follows, and the replay of recorded results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from neocpu.schedules.scheme import Scheme
from neocpu.tuning_db.record import Workload


@dataclass(frozen=True, slots=True)
class Request:
    """One candidate to measure."""

    workload: Workload
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class Measurement:
    """What measuring a candidate gave: seconds per call of each repeat, or why there are none."""

    request: Request
    seconds: tuple[float, ...]
    error: str | None = None

    @classmethod
    def checked(cls, request: Request, seconds: tuple[float, ...]) -> Measurement:
        """Return a measurement, failed if any of ``seconds`` is impossible."""
        wrong = [s for s in seconds if not (math.isfinite(s) and s > 0)]
        if wrong or not seconds:
            return cls(request, (), f"impossible time: {wrong[0] if wrong else 'none'}")
        return cls(request, seconds)


class Measurer(Protocol):
    """Measures candidates. A candidate that fails is a `Measurement` with its error."""

    @property
    def batch(self) -> int:
        """How many requests it likes to get at once."""

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Yield one measurement per request, in any order.

        If interrupted, it yields what is measured before it raises ``KeyboardInterrupt``.
        """


class ReplayMeasurer:
    """Gives recorded results again, so that searches can be compared without a clock.

    Parameters
    ----------
    recorded : mapping of Request to Measurement
        Must hold every candidate that is asked for.
    """

    batch = 1

    def __init__(self, recorded: Mapping[Request, Measurement]) -> None:
        self._recorded = recorded

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Yield the recorded measurement of each request, in order."""
        for request in requests:
            yield self._recorded[request]
