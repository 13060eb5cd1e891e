"""The predicted time of each kernel of an artifact; together they make up a run's prediction."""

from __future__ import annotations

import logging
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neocpu.building.program import Program
from neocpu.foundation.units import duration
from neocpu.plan.kernels import OTHER, RUNTIME
from neocpu.planning.choice import ESTIMATED
from neocpu.planning.operators.network_costs import MOVING, NetworkCosts, NetworkTime
from neocpu.schedules.estimates.kernel_work import KernelWork, work_seconds
from neocpu.schedules.estimates.memory_traffic import fork_seconds, overlapped
from neocpu.schedules.estimates.shortcomings import AS_IT_STANDS, Shortcoming, is_register_tile

logger = logging.getLogger(__name__)

KERNEL_CALL_SECONDS: Final = 0.05e-6
"""Seconds that the call of a kernel takes besides the kernel."""
RUN_SECONDS: Final = 8e-6
"""Seconds that a run called from Python takes besides its kernels and inputs."""
NEXT_TO_NOTHING: Final = 0.05
"""Fraction of a kernel's time below which a loss is no shortcoming."""
WORTH_A_WARNING: Final = 0.05
"""Fraction of a run that a shortcoming must take for compilation to warn of it."""
WARNED_OF: Final = 1e-4
"""Seconds that a shortcoming must take besides, for compilation to warn of it."""
COPY_RATE: Final = 40e9
"""Bytes per second at which one thread copies an input from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedShortcoming:
    """A shortcoming of a kernel, and the time it costs."""

    shortcoming: Shortcoming
    seconds: float  # approximate cost over all calls


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """A kernel and all its calls."""

    name: str
    kind: str  # kind of the plan's operators that it computes, or `TRANSFORM`, `OTHER` or `RUNTIME`
    calls: int  # in a run
    seconds: float  # of all calls
    source: str  # source of the time of the longest calls
    pace: str = ""  # kind whose pace applies; empty where the time is that of its loops
    # `computing`, `moving`: seconds of all calls at a pace of 1, without entering and leaving
    # parallel loops: see `neocpu.planning.operators.network_costs.NetworkTime`.
    computing: float = 0.0
    moving: float = 0.0
    forks: int = 0  # the number of times that it enters and leaves a parallel loop besides
    # Bytes of feature maps that a call reads and writes; see `NetworkTime` too.
    streamed: float = 0.0
    work: KernelWork = ()  # work of its loops in a call, where the time is theirs
    skippable: float = 0.0  # part of the seconds spent in calls that data may make needless
    lacks: tuple[PricedShortcoming, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """The calls of a kernel that stem from operators or transforms of the plan."""

    kind: str
    times: tuple[NetworkTime, ...]  # times of the calls; empty if the kernel's loops decide them
    forks: bool = False  # whether entering and leaving the kernel's parallel loop is to be added

    def report(self, name: str, calls: int, network: NetworkCosts, *, enters: bool) -> KernelReport:
        """Return the time of all calls, which are fewer where equal ones became one."""
        longest = max(self.times, key=lambda time: time.computing + time.moving)
        computing = calls * statistics.fmean(time.computing for time in self.times)
        moving = calls * statistics.fmean(time.moving for time in self.times)
        forks = calls if self.forks and enters else 0
        streamed = statistics.fmean(time.streamed for time in self.times)
        working = computing * network.pace(longest.kind) + moving * network.pace(MOVING)
        seconds = overlapped(working, calls * network.streaming(streamed))
        return KernelReport(
            name=name,
            kind=self.kind,
            calls=calls,
            seconds=seconds + forks * fork_seconds(network.threads, network.warm),
            source=longest.source,
            pace=longest.kind,
            computing=computing,
            moving=moving,
            forks=forks,
            streamed=streamed,
        )


def kernel_reports(
    program: Program,
    work: Mapping[str, KernelWork],
    known: Mapping[str, KnownCalls],
    network: NetworkCosts,
    input_bytes: int,
    lacks: Mapping[str, tuple[Shortcoming, ...]],
) -> tuple[KernelReport, ...]:
    """Return the predicted time of each kernel that a program calls, in calling order.

    The ``work`` of its loops decides the time of a kernel of no ``known`` cost, and known costs do
    not include the shortcomings ``lacks``.
    """
    counted: Counter[str] = Counter()
    by_data: Counter[str] = Counter()
    skippable = program.skippable
    for place, ((name, _), times) in enumerate(zip(program.calls, program.times, strict=True)):
        counted[name] += times
        by_data[name] += times * (place in skippable)
    reports = []
    for name, calls in counted.items():
        kind = known[name].kind if name in known else OTHER
        by_loops = calls * work_seconds(work[name], network.warm, network.threads)
        report = KernelReport(
            name=name, kind=kind, calls=calls, seconds=by_loops, source=ESTIMATED, work=work[name]
        )
        lacking = _priced(lacks.get(name, ()), report, network)
        if name in known and known[name].times:
            enters = any(nest.forks for nest in work[name])
            planned = known[name].report(name, calls, network, enters=enters)
            if not lacking or planned.seconds > by_loops:
                report = planned
        needless = report.seconds * by_data[name] / calls
        reports.append(replace(report, skippable=needless, lacks=lacking))
    between = RUN_SECONDS + counted.total() * KERNEL_CALL_SECONDS + input_bytes / COPY_RATE
    runtime = KernelReport(name=RUNTIME, kind=RUNTIME, calls=1, seconds=between, source=ESTIMATED)
    return (*reports, runtime)


def _priced(
    lacks: Sequence[Shortcoming], report: KernelReport, network: NetworkCosts
) -> tuple[PricedShortcoming, ...]:
    """Return the time that a kernel's calls lose to each shortcoming, without negligible ones."""
    priced = (
        PricedShortcoming(
            shortcoming=one,
            seconds=report.calls * one.seconds(report.work, network.warm, network.threads),
        )
        for one in lacks
        if one.kind == AS_IT_STANDS or not is_register_tile(report.name)
    )
    return tuple(one for one in priced if one.seconds > NEXT_TO_NOTHING * report.seconds)


def report_shortcomings(kernels: Sequence[KernelReport]) -> None:
    """Warn of shortcomings of unknown, unreported reason that take a good part of a run."""
    total = math.fsum(kernel.seconds for kernel in kernels)
    for kernel in kernels:
        for one in kernel.lacks:
            known = one.shortcoming.reason or one.shortcoming.kind == AS_IT_STANDS
            if known or one.seconds < max(WORTH_A_WARNING * total, WARNED_OF):
                continue
            logger.warning(
                "kernel '%s' is slow (%s: %s): that is about %s of the %s that a run is predicted "
                "to take; please report this model",
                kernel.name,
                one.shortcoming.kind,
                one.shortcoming.detail,
                duration(one.seconds),
                duration(total),
            )
