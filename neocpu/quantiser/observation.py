"""Running a float32 model on calibration data so that it also returns inner tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from neocpu.compilation.compiler import compile as compile_model
from neocpu.foundation.errors import UsageError
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.quantiser.histogram import Array, Distribution, Histogram
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
    """A compiled model that also returns inner tensors."""

    module: Module

    def on(
        self, samples: Samples, on_progress: ProgressCallback, phase: str
    ) -> Iterator[dict[str, Array]]:
        """Yield the results for each sample."""
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
    """Return the distribution of each tensor's values over all samples. Raises UsageError if a
    value is infinite or NaN; the message names the sample.
    """
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
    """Return the ratio of the powers of a signal and of the error of another, in decibels."""
    signal = noise = 0.0
    for first, second in zip(truth, other, strict=True):
        wide = first.astype(np.float64)
        signal += float(np.square(wide).sum())
        noise += float(np.square(wide - second).sum())
    return decibels(signal, noise)


def decibels(signal: float, noise: float) -> float:
    """Return the ratio of two powers in decibels; infinite without noise, and -inf of infinite."""
    if noise == 0.0 or math.isinf(noise):
        return math.inf if noise == 0.0 else -math.inf
    return 10 * math.log10(max(signal, 1e-300) / noise)
