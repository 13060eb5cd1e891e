"""What each kernel of an artifact is predicted to take: a run's prediction leaves none out."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from neocpu.building.program import Program
from neocpu.planning.choice import ESTIMATED
from neocpu.planning.operators.network_costs import MOVING, NetworkCosts, NetworkTime
from neocpu.schedules.estimates.kernel_work import KernelWork, work_seconds
from neocpu.schedules.estimates.memory_traffic import fork_seconds, overlapped

TRANSFORM: Final = "transform"
OTHER: Final = "other"
"""What no operator of the plan is: what fusion made of the rest of the model."""
RUNTIME: Final = "runtime"
"""What lies between the kernels: calling them, and copying inputs."""

KERNEL_CALL_SECONDS: Final = 0.05e-6
"""What calling a kernel takes besides it."""
RUN_SECONDS: Final = 8e-6
"""What a run takes besides its kernels and inputs, called from Python."""
COPY_RATE: Final = 40e9
"""Bytes per second of an input that is copied, by one thread and from memory."""


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A kernel and all its calls.

    Attributes
    ----------
    name : str
    kind : str
        That of the plan's operators which it computes, or `TRANSFORM`, `OTHER` or `RUNTIME`.
    calls : int
        How often a run calls it.
    seconds : float
        Of all calls.
    source : str
        Where that is from, of the calls that take the longest.
    pace : str
        The kind whose pace it has; nothing where its loops told the seconds.
    computing, moving : float
        Seconds of all calls at a pace of 1, without entering and leaving parallel loops: see
        `neocpu.planning.operators.network_costs.NetworkTime`.
    forks : int
        How often it enters and leaves one besides.
    streamed : float
        Bytes of feature maps that a call reads and writes, see there too.
    work : KernelWork
        What its loops do in a call, where these told the seconds.
    skippable : float
        Of the seconds, those of calls that data may make needless.
    images : int
        Images that the tasks of its loops go through one after another; 1 if they do not.
    largest : tuple of float
        Of each parallel loop, how many times the mean of all tasks the largest one is.
    """

    name: str
    kind: str
    calls: int
    seconds: float
    source: str
    pace: str = ""
    computing: float = 0.0
    moving: float = 0.0
    forks: int = 0
    streamed: float = 0.0
    work: KernelWork = ()
    skippable: float = 0.0
    images: int = 1
    largest: tuple[float, ...] = ()

    def to_json(self, total: float) -> dict[str, Any]:
        """JSON form; the cost is in microseconds, ``share`` of a run of ``total`` seconds."""
        return {
            "kernel": self.name,
            "kind": self.kind,
            "calls": self.calls,
            "cost_us": self.seconds * 1e6,
            "cost_source": self.source,
            "share": self.seconds / total,
            "images": self.images,
            "largest": [round(each, 4) for each in self.largest],
        }


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """The calls of a kernel that the plan has operators or transforms for.

    Attributes
    ----------
    kind : str
    times : tuple of NetworkTime
        None where its loops are to tell.
    forks : bool
        Whether entering and leaving its parallel loop is to be added.
    """

    kind: str
    times: tuple[NetworkTime, ...]
    forks: bool = False

    def report(self, name: str, calls: int, network: NetworkCosts, *, enters: bool) -> KernelReport:
        """Return what all calls take; there are fewer where equal ones became one.

        Parameters
        ----------
        enters : bool
            Whether the kernel has a parallel loop.
        """
        longest = max(self.times, key=lambda time: time.computing + time.moving)
        computing = calls * statistics.fmean(time.computing for time in self.times)
        moving = calls * statistics.fmean(time.moving for time in self.times)
        forks = calls if self.forks and enters else 0
        streamed = statistics.fmean(time.streamed for time in self.times)
        parts = (
            computing * network.pace(longest.kind) + moving * network.pace(MOVING),
            calls * network.streaming(streamed),
        )
        return KernelReport(
            name,
            self.kind,
            calls,
            overlapped(*parts) + forks * fork_seconds(network.threads, network.warm),
            longest.source,
            longest.kind,
            computing,
            moving,
            forks,
            streamed,
        )


def kernel_reports(
    program: Program,
    work: Mapping[str, KernelWork],
    known: Mapping[str, KnownCalls],
    network: NetworkCosts,
    input_bytes: int,
) -> tuple[KernelReport, ...]:
    """Return what each kernel that a program calls is predicted to take, in calling order.

    Parameters
    ----------
    work : mapping of str to KernelWork
        What the loops of each kernel do: it tells what takes those of no ``known`` cost.
    input_bytes : int
        Of all the model's inputs.
    """
    counted: Counter[str] = Counter()
    by_data: Counter[str] = Counter()
    skippable = program.skippable
    for place, ((name, _), times) in enumerate(zip(program.calls, program.times, strict=True)):
        counted[name] += times
        by_data[name] += times * (place in skippable)
    reports = []
    for name, calls in counted.items():
        if name in known and known[name].times:
            enters = any(nest.forks for nest in work[name])
            report = known[name].report(name, calls, network, enters=enters)
        else:
            seconds = work_seconds(work[name], network.warm, network.threads)
            kind = known[name].kind if name in known else OTHER
            report = KernelReport(name, kind, calls, calls * seconds, ESTIMATED, work=work[name])
        needless = report.seconds * by_data[name] / calls
        nests = [nest for nest in work[name] if nest.forks]
        images = min((nest.images for nest in nests), default=1)
        largest = tuple(nest.largest for nest in nests)
        reports.append(replace(report, skippable=needless, images=images, largest=largest))
    between = RUN_SECONDS + counted.total() * KERNEL_CALL_SECONDS + input_bytes / COPY_RATE
    return (*reports, KernelReport(RUNTIME, RUNTIME, 1, between, ESTIMATED))
