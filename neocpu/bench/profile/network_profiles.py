"""Profiles of models, one after another."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from neocpu.bench.engines.measured_model import find_model
from neocpu.bench.limits.instruction_peaks import measure_peaks
from neocpu.bench.limits.roofline import measure_limits
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.plan.profiling.operator_times import Operator, ProfileReport, measure_profile
from neocpu.schedules.vocabulary.target_parsing import parse_target


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    threads: int
    databases: tuple[Path, ...] = ()
    shapes: InputShapes = NO_SHAPES
    precision: str | None = None  # the precision that models are quantised to first


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductKernel:
    """All layers of one shape, by one sequence of instructions that add several products."""

    work: str  # the layers' shapes, in words
    sequence: str  # the instructions that multiply and add
    count: int
    seconds: float  # the sum of their times, each in its fastest round, as peaks are best samples
    macs: int  # Multiply-accumulates of all of them
    peak: float  # Multiply-accumulates per second that the sequence reaches at most

    @property
    def share(self) -> float:
        return self.macs / self.seconds / self.peak

    def to_json(self) -> JsonObject:
        return {**asdict(self), "share": self.share}


@dataclass(frozen=True, slots=True)
class ModelProfile:
    name: str
    target: str
    profile: ProfileReport
    kernels: tuple[ProductKernel, ...] = ()  # layers in 8-bit integers or in tiles

    def __str__(self) -> str:
        return f"{self.name}: {self.profile.total * 1e3:.2f} ms of operators"

    def to_json(self) -> JsonObject:
        return {
            "model": self.name,
            "target": self.target,
            "profile": self.profile.to_json(),
            "product_kernels": [kernel.to_json() for kernel in self.kernels],
        }


def measure_profiles(
    models: Sequence[str], request: ProfileRequest, on_progress: ProgressCallback = silent
) -> Iterator[ModelProfile | ModelFailure]:
    """Profile each model or artifact. Raises TargetError: the limits cannot be measured."""
    limits = measure_limits(request.threads, on_progress)

    def measure(_: int, model: str) -> ModelProfile:
        with TemporaryFolder("bench") as folder:
            tested = find_model(
                model,
                Path(folder),
                threads=request.threads,
                shapes=request.shapes,
                databases=request.databases,
                precision=request.precision,
                on_progress=on_progress,
            )
            header = tested.header
            profile = measure_profile(
                tested.artifact, header.plan, limits, on_progress=on_progress, number=tested.number
            )
            kernels = product_kernels(profile, header.target, on_progress)
        return ModelProfile(tested.name, header.target, profile, kernels)

    yield from measure_each(models, measure)


def product_kernels(
    profile: ProfileReport, target: str, on_progress: ProgressCallback = silent
) -> tuple[ProductKernel, ...]:
    """Measure the peaks of layers in 8-bit integers or in tiles. Raises TargetError: impossible."""
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
    measured = measure_peaks(target, profile.threads, tuple(found.values()))
    kernels = (
        ProductKernel(
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


def average_share(kernels: Sequence[ProductKernel]) -> float:
    return statistics.fmean(kernel.share for kernel in kernels)


def total_share(kernels: Sequence[ProductKernel]) -> float:
    return sum(k.macs / k.peak for k in kernels) / sum(k.seconds for k in kernels)
