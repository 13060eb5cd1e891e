"""Runs of a float32 model on calibration data with inner tensors, also beside a quantised model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from neocpu.compilation.compiler import compile as compile_model
from neocpu.foundation.errors import UsageError
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.quantiser.ranges import Array, Distribution, Histogram
from neocpu.runtime.module import Module

Feeds: TypeAlias = Mapping[str, Array]
Samples: TypeAlias = Sequence[Feeds]


def with_outputs(
    proto: onnx.ModelProto, outputs: Sequence[str], tensors: Iterable[str] = ()
) -> onnx.ModelProto:
    """Return a copy of a model that returns ``outputs`` and ``tensors`` in place of its outputs."""
    seen = onnx.ModelProto()
    seen.CopyFrom(proto)
    values = (*seen.graph.value_info, *seen.graph.input, *seen.graph.output)
    known = {value.name: value for value in values}
    kept = [known.get(name) or onnx.ValueInfoProto(name=name) for name in outputs]
    del seen.graph.output[:]
    seen.graph.output.extend(kept)
    present = {value.name for value in (*seen.graph.output, *seen.graph.input)}
    for name in dict.fromkeys(tensors):
        if name not in present:
            value = known.get(name)
            seen.graph.output.append(value or onnx.ValueInfoProto(name=name))
    return seen


@dataclass(frozen=True, slots=True)
class VisibleModel:
    module: Module

    def on(
        self, samples: Samples, on_progress: ProgressCallback, phase: str
    ) -> Iterator[dict[str, Array]]:
        for number, feeds in enumerate(samples):
            on_progress(Progress(phase, number, len(samples)))
            yield self.module.run(dict(feeds))
        on_progress(Progress(phase, len(samples), len(samples)))


@contextmanager
def visible(
    proto: onnx.ModelProto, outputs: Sequence[str], tensors: Sequence[str], threads: int | None
) -> Iterator[VisibleModel]:
    """Compile a model in float32 that returns ``outputs`` and inner ``tensors``."""
    seen = with_outputs(proto, outputs, tensors)
    with (
        compile_model(seen, precision="fp32", threads=threads, verify=False) as compiled,
        compiled.module() as module,
    ):
        yield VisibleModel(module)


def observe(
    model: VisibleModel, tensors: Sequence[str], samples: Samples, on_progress: ProgressCallback
) -> dict[str, Distribution]:
    """Return each tensor's distribution. Raises UsageError: a sample's value is not finite."""
    histograms = {name: Histogram() for name in tensors}
    for number, found in enumerate(model.on(samples, on_progress, "calibrate")):
        for name, histogram in histograms.items():
            values = found.get(name)
            values = samples[number][name] if values is None else values
            require_finite(number, name, values)
            histogram.add(values)
    return {name: histogram.result() for name, histogram in histograms.items()}


def require_finite(number: int, name: str, values: Array) -> None:
    """Raise a `UsageError` if a sample makes a tensor infinite or NaN."""
    if not np.isfinite(values).all():
        raise UsageError(
            f"calibration sample {number} makes tensor '{name}' infinite or NaN; "
            "leave the sample out, or correct how it is preprocessed"
        )


def signal_to_noise(truth: Iterable[Array], other: Iterable[Array]) -> float:
    """Return the ratio of the power of ``truth`` to that of the error of ``other``, in decibels."""
    signal = noise = 0.0
    for first, second in zip(truth, other, strict=True):
        wide = first.astype(np.float64)
        signal += float(np.square(wide).sum())
        noise += float(np.square(wide - second).sum())
    return decibels(signal, noise)


def decibels(signal: float, noise: float) -> float:
    """Return the ratio of two powers in decibels: inf without noise, -inf for infinite noise."""
    if noise == 0.0 or math.isinf(noise):
        return math.inf if noise == 0.0 else -math.inf
    return 10 * math.log10(max(signal, 1e-300) / noise)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The distance of a quantised model from the model that it was made of."""

    decibels: dict[str, float]  # signal to noise of tensors, outputs included
    wanted_means: dict[str, Array]  # of inner tensors' channels, in float32
    found_means: dict[str, Array]
    agreement: float | None  # share of rows with the same largest score, if outputs are scores
    outputs: tuple[str, ...]

    @property
    def worst(self) -> float:
        """The signal-to-noise ratio of the outputs, in decibels."""
        return min(self.decibels[name] for name in self.outputs)

    @property
    def error(self) -> float:
        """The norm-wise error of the outputs, by that ratio."""
        return float(10 ** (-max(self.worst, -300.0) / 20))


class _Tally:
    """Sums over samples of one tensor's signal, noise and channel means."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0
        self.means: list[tuple[Array, Array]] = []

    def add(self, wanted: Array, found: Array) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # equal infinities do not differ
            difference = np.where(wanted == found, 0.0, wanted - found)
        if not np.isfinite(difference).all():
            self.noise = float("inf")
            difference = np.zeros(())
        wanted, found = (np.nan_to_num(each, posinf=0.0, neginf=0.0) for each in (wanted, found))
        self.signal += float(np.vdot(wanted, wanted))
        self.noise += float(np.vdot(difference, difference))
        if wanted.ndim > 1:
            axes = (0, *range(2, wanted.ndim))
            wide = np.float64  # the sum of a few large numbers is infinite in float32
            self.means.append((wanted.mean(axes, wide), found.mean(axes, wide)))

    @property
    def decibels(self) -> float:
        return decibels(self.signal, self.noise)


def compare_models(
    models: tuple[VisibleModel, VisibleModel],
    outputs: tuple[str, ...],
    tensors: Sequence[str],
    samples: Samples,
    on_progress: ProgressCallback,
) -> Comparison:
    """Run a model and one made of it on all samples; compare outputs and inner ``tensors``."""
    names = tuple(dict.fromkeys((*outputs, *tensors)))
    runs = [
        model.on(samples, tell, "compare")
        for model, tell in zip(models, (silent, on_progress), strict=True)
    ]
    tallies = {name: _Tally() for name in names}
    same = rows = 0
    for first, second in zip(*runs, strict=True):
        for name, tally in tallies.items():
            tally.add(_real(first[name]), _real(second[name]))
        scores = [(first[name], second[name]) for name in outputs if first[name].ndim == 2]
        for a, b in scores:
            same += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
            rows += len(a)
    within = {name: tallies[name].means for name in tensors}
    wanted_means, found_means = (
        {name: np.mean([pair[side] for pair in pairs], axis=0) for name, pairs in within.items()}
        for side in (0, 1)
    )
    decibels = {name: tally.decibels for name, tally in tallies.items()}
    agreement = same / rows if rows else None
    return Comparison(decibels, wanted_means, found_means, agreement, outputs)


def _real(array: Any) -> Array:
    found: Array = np.asarray(array, np.float32)
    return found
