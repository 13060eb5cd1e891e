"""Convolutions in 8-bit integers, compared with the peak of their instructions."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from neocpu.bench.limits.dot_peak import measure_dot_peaks
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.plan.profiling.operator_times import Operator, ProfileReport
from neocpu.schedules.vocabulary.target_parsing import parse_target


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerKernel:
    """All convolutions of one shape, by one sequence of instructions."""

    work: str  # the convolutions' shapes, in words
    sequence: str  # the instructions that multiply and add
    count: int
    # The time of all of them, each in its fastest round, as a peak is the best sample too.
    seconds: float
    macs: int  # Multiply-accumulates of all of them
    peak: float  # Multiply-accumulates per second that the sequence reaches at most

    @property
    def share(self) -> float:
        """The share of the peak that is reached."""
        return self.macs / self.seconds / self.peak

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {**asdict(self), "share": self.share}


def integer_kernels(
    profile: ProfileReport, target: str, on_progress: ProgressCallback = silent
) -> tuple[IntegerKernel, ...]:
    """Measure the peaks of the instructions of a profile's 8-bit convolutions, if it has any.

    target: the CPU that the network was compiled for.
    Raises TargetError: the peaks cannot be measured.
    """
    groups: dict[tuple[str, str], list[Operator]] = defaultdict(list)
    cpu = parse_target(target)
    found = {}
    for one in profile.operators:
        if one.sequence is not None:
            name = one.sequence.name(cpu)
            found[name] = one.sequence
            groups[one.work, name].append(one)
    if found:
        on_progress(Progress("measure instructions", detail=", ".join(found)))
    measured = measure_dot_peaks(target, profile.threads, tuple(found.values()))
    kernels = (
        IntegerKernel(
            work=work,
            sequence=name,
            count=len(operators),
            seconds=sum(one.fastest for one in operators),
            macs=sum(one.flops for one in operators) // 2,
            peak=measured[found[name]],
        )
        for (work, name), operators in groups.items()
    )
    return tuple(sorted(kernels, key=lambda kernel: kernel.seconds, reverse=True))


def average_share(kernels: Sequence[IntegerKernel]) -> float:
    """Return the share of their peaks that kernels reach, as the mean over shapes."""
    return statistics.fmean(kernel.share for kernel in kernels)


def total_share(kernels: Sequence[IntegerKernel]) -> float:
    """Return the time of all kernels at their peaks, as a share of their measured time."""
    return sum(k.macs / k.peak for k in kernels) / sum(k.seconds for k in kernels)
