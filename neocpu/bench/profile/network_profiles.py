"""Profiles of models, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from neocpu.bench.engines.measured_model import find_model
from neocpu.bench.limits.roofline import measure_limits
from neocpu.bench.profile.integer_kernels import IntegerKernel, integer_kernels
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.plan.profiling.operator_times import ProfileReport, measure_profile


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The options for compiling models, as in `neocpu.compile`."""

    threads: int
    databases: tuple[Path, ...] = ()
    shapes: InputShapes = NO_SHAPES
    precision: str | None = None  # the precision that models are quantised to first


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profile of a model."""

    name: str
    target: str
    profile: ProfileReport
    kernels: tuple[IntegerKernel, ...] = ()  # the model's convolutions in 8-bit integers

    def __str__(self) -> str:
        return f"{self.name}: {self.profile.total * 1e3:.2f} ms of operators"

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "model": self.name,
            "target": self.target,
            "profile": self.profile.to_json(),
            "integer_kernels": [kernel.to_json() for kernel in self.kernels],
        }


def measure_profiles(
    models: Sequence[str], request: ProfileRequest, on_progress: ProgressCallback = silent
) -> Iterator[ModelProfile | ModelFailure]:
    """Compile each model, or open each artifact, and time its operators.

    Raises TargetError: the machine's limits cannot be measured.
    """
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
                tested.artifact,
                header.plan,
                limits,
                on_progress=on_progress,
                number=tested.number,
            )
            kernels = integer_kernels(profile, header.target, on_progress)
        return ModelProfile(tested.name, header.target, profile, kernels)

    yield from measure_each(models, measure)
