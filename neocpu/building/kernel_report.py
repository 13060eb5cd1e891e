"""What each kernel of an artifact is predicted to take: a run's prediction leaves none out."""

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
from neocpu.schedules.estimates.shortcomings import (
    AS_IT_STANDS,
    Shortcoming,
    is_register_tile,
)

logger = logging.getLogger(__name__)

KERNEL_CALL_SECONDS: Final = 0.05e-6
"""What calling a kernel takes besides it."""
RUN_SECONDS: Final = 8e-6
"""What a run takes besides its kernels and inputs, called from Python."""
NEXT_TO_NOTHING: Final = 0.05
"""Of a kernel's time, what is no shortcoming."""
WORTH_A_WARNING: Final = 0.05
"""Of a run, what a shortcoming takes that compilation warns of,"""
WARNED_OF: Final = 1e-4
"""if it takes so many seconds besides."""
COPY_RATE: Final = 40e9
"""Bytes per second of an input that is copied, by one thread and from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedShortcoming:
    """What a kernel lacks, and what that takes.

    Attributes
    ----------
    seconds : float
        Of all calls, about.
    """

    shortcoming: Shortcoming
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
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
    lacks : tuple of PricedShortcoming
        What is not as it should be.
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
    lacks: tuple[PricedShortcoming, ...] = ()


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
            name=name,
            kind=self.kind,
            calls=calls,
            seconds=overlapped(*parts) + forks * fork_seconds(network.threads, network.warm),
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
    """Return what each kernel that a program calls is predicted to take, in calling order.

    Parameters
    ----------
    work : mapping of str to KernelWork
        What the loops of each kernel do: it tells what takes those of no ``known`` cost.
    input_bytes : int
        Of all the model's inputs.
    lacks : mapping of str to tuple of Shortcoming
        What each kernel lacks. What the plan knows of its cost takes it for what it should be.
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
            name=name,
            kind=kind,
            calls=calls,
            seconds=by_loops,
            source=ESTIMATED,
            work=work[name],
        )
        lacking = _priced(lacks.get(name, ()), report, network)
        if name in known and known[name].times:
            enters = any(nest.forks for nest in work[name])
            planned = known[name].report(name, calls, network, enters=enters)
            if not lacking or planned.seconds > by_loops:
                report = planned
        needless = report.seconds * by_data[name] / calls
        nests = [nest for nest in work[name] if nest.forks]
        images = min((nest.images for nest in nests), default=1)
        largest = tuple(nest.largest for nest in nests)
        reports.append(
            replace(report, skippable=needless, images=images, largest=largest, lacks=lacking)
        )
    between = RUN_SECONDS + counted.total() * KERNEL_CALL_SECONDS + input_bytes / COPY_RATE
    runtime = KernelReport(name=RUNTIME, kind=RUNTIME, calls=1, seconds=between, source=ESTIMATED)
    return (*reports, runtime)


def _priced(
    lacks: Sequence[Shortcoming], report: KernelReport, network: NetworkCosts
) -> tuple[PricedShortcoming, ...]:
    """Return what the calls of a kernel lose to what it lacks, but for what is next to nothing."""
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
    """Log what takes a part of a run to speak of, and what nobody knows a reason for.

    What is compiled without optimisation was told before, with what failed.
    """
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
