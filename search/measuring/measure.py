"""Measuring schemes: the protocol every measurer follows, and the replay of recorded results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from types import MappingProxyType
from typing import Protocol

from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.tuning_db.record import Workload


@dataclass(frozen=True, slots=True)
class Request:
    """One candidate to measure."""

    workload: Workload
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of a candidate: seconds per call of each repeat, or the error."""

    request: Request
    seconds: tuple[float, ...]
    error: str | None = None

    @classmethod
    def checked(cls, request: Request, seconds: tuple[float, ...]) -> Measurement:
        wrong = [s for s in seconds if not (math.isfinite(s) and s > 0)]
        if wrong or not seconds:
            return cls(request, (), f"impossible time: {wrong[0] if wrong else 'none'}")
        return cls(request, seconds)


class Measurer(Protocol):
    """Measures candidates. A candidate that fails is a `Measurement` with its error.

    Each method yields one measurement per distinct request, in any order, as soon as it is made. A
    caller that records each one before it takes the next loses only those under way.
    """

    @property
    def batch(self) -> int:
        """The number of requests that it likes to get at once."""

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Build each request and time a few repeats of it: the first look."""

    def compare(self, requests: Sequence[Request], rounds: int) -> Iterator[Measurement]:
        """Time requests that were measured before in turns, a repeat of each per round, so that
        noise meets all alike; the measurements hold the new seconds only.
        """

    def check(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Compare convolutions of random data with the reference; the errors are None or say by how
        much an answer is wrong, and there are no seconds.
        """


class ReplayMeasurer:
    """Gives recorded results again, so that searches can be compared without a clock. `recorded`
    must hold every candidate that is asked for. `wrong` has the errors of those whose answer is
    wrong.
    """

    batch = 1

    def __init__(
        self,
        recorded: Mapping[Request, Measurement],
        wrong: Mapping[Request, str] = MappingProxyType({}),
    ) -> None:
        self._recorded = recorded
        self._wrong = wrong

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        for request in dict.fromkeys(requests):
            yield self._recorded[request]

    def compare(self, requests: Sequence[Request], rounds: int) -> Iterator[Measurement]:
        for request in dict.fromkeys(requests):
            recorded = self._recorded[request]
            yield replace(recorded, seconds=tuple(islice(cycle(recorded.seconds), rounds)))

    def check(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        for request in dict.fromkeys(requests):
            yield Measurement(request, (), self._wrong.get(request))
