"""Compiling a float32 model in mixed precision: quantised where it pays, held to a budget."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx

from neocpu.compile_options import CompileOptions
from neocpu.compiled_module import CompiledModule
from neocpu.compiler import ModelLike, load_for_import
from neocpu.compiler import compile as compile_model
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.foundation.instruction_sets import code_obstacle, host_features
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.input_shapes import InputShapes
from neocpu.planning.precision import Precision
from neocpu.quantiser.calibrated import Calibrated, calibrate
from neocpu.quantiser.calibration import Source, read_samples
from neocpu.quantiser.comparison import Comparison, compare_models
from neocpu.quantiser.equalisation import equalise
from neocpu.quantiser.float_graph import float_graph
from neocpu.quantiser.mixed_precision import (
    LayerChoice,
    described,
    faster_in_integers,
    measure_noise,
    within,
)
from neocpu.quantiser.observation import Samples, VisibleModel, visible
from neocpu.quantiser.quantise_options import QuantiseOptions
from neocpu.schedules.vocabulary.target import CpuTarget, parse_target
from neocpu.tensor_spec import random_inputs

DEFAULT_MAX_ERROR: Final = 0.1
"""Norm-wise, of outputs: 20 dB. Classifiers then agree with float32 on 98 to 99 of 100 pictures."""

_TIGHTER: Final = 0.5
"""Of the budget of noise, where what was measured afterwards was more than the parts' sum."""
_ATTEMPTS: Final = 4
_RACE_SECONDS: Final = 1.0
_WORTH: Final = 0.99
"""Of float32's time, what integers may take at most to be worth their noise."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What outputs may differ by from float32, on data that no range was taken from.

    Attributes
    ----------
    max_error : float or None
        Norm-wise, relative.
    min_agreement : float or None
        Share of rows whose largest score stays the same.
    """

    max_error: float | None
    min_agreement: float | None

    @classmethod
    def parse(cls, max_error: float | None, min_agreement: float | None) -> Budget:
        """Check the limits; without any, there is one on the error.

        Raises
        ------
        UsageError
        """
        if max_error is not None and not 0 < max_error < math.inf:
            raise UsageError(f"max_error must be above 0, got {max_error!r}")
        if min_agreement is not None and not 0 <= min_agreement <= 1:
            raise UsageError(f"min_agreement must be from 0 to 1, got {min_agreement!r}")
        if max_error is None and min_agreement is None:
            max_error = DEFAULT_MAX_ERROR
        return cls(max_error, min_agreement)

    @property
    def noise(self) -> float:
        """What layers may add to the outputs' power."""
        return math.inf if self.max_error is None else self.max_error**2

    def excess(self, found: Comparison) -> str:
        """Return by how much outputs differ too much, in words; empty if they do not."""
        error = 10 ** (-max(found.worst, -300.0) / 20)
        if self.max_error is not None and not error <= self.max_error:
            return f"outputs err by {error:.2g} of their norm, more than {self.max_error:g}"
        if self.min_agreement is not None:
            if found.agreement is None:
                raise UsageError("min_agreement is for models that return rows of scores")
            if found.agreement < self.min_agreement:
                share = f"{found.agreement:.1%} of rows"
                return f"{share} have the same largest score, not {self.min_agreement:.1%}"
        return ""


def compile_calibrated(
    model: ModelLike,
    calibration: Source,
    how: QuantiseOptions | None = None,
    *,
    precision: str = "auto",
    max_error: float | None = None,
    min_agreement: float | None = None,
    target: str | dict[str, Any] | CpuTarget = "host",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    on_progress: ProgressCallback | None = None,
    **settings: Any,
) -> CompiledModule:
    """Compile a float32 model with those layers in integers that are faster so.

    Ranges are taken from half of the calibration data, limits are held on the other half. Where
    this host can run what was compiled, it is timed beside the float32 model, and the faster one is
    returned.

    Parameters
    ----------
    model, target, threads, shapes, batch, settings
        As `neocpu.compile` takes them.
    calibration, how
        As `neocpu.quantize` takes them.
    precision : str
        ``auto``; or ``int8``: all layers, faster or not.
    max_error : float, optional
        The most that outputs may differ from float32, norm-wise; 0.1 if no limit is given.
    min_agreement : float, optional
        The least share of rows whose largest score stays the same.

    Raises
    ------
    AccuracyError
        If ``int8`` does not keep the limits; ``auto`` leaves layers in float32 until it does.
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError
    """
    if precision not in (Precision.INT8, Precision.AUTO):
        raise UsageError(f"calibration data are for --precision int8 or auto, not {precision}")
    cpu, tell, options = parse_target(target), on_progress or silent, how or QuantiseOptions()
    budget = Budget.parse(max_error, min_agreement)
    if options.correction == "activations":
        raise UsageError("correction by activations is for quantize: it takes all layers")
    settings |= {"threads": threads}
    shaped: dict[str, Any] = {"shapes": shapes, "batch": batch}
    parsed = CompileOptions.parse(precision=precision, **shaped, **settings)
    graph = float_graph(load_for_import(model, InputShapes.parse(shapes, batch)), options.exclude)
    graph = equalise(graph) if options.equalise else graph
    samples = read_samples(calibration, graph.inputs, options.samples, options.pictures)
    choosing, checking = samples[::2], samples[1::2] or samples
    outputs = tuple(spec.name for spec in graph.outputs)
    with visible(graph.proto, graph.tensors, threads) as original:
        calibrated = calibrate(graph, original, choosing, options, threads, tell)

        def excess(proto: onnx.ModelProto) -> str:
            return _excess(budget, original, proto, outputs, checking, threads, tell)

        if precision == Precision.INT8:
            proto = calibrated.written()
            if reason := excess(proto):
                raise AccuracyError(
                    f"in 8 bits {reason}; pass --precision auto, or raise the limit"
                )
            return compile_model(proto, precision="int8", target=cpu, on_progress=tell, **settings)
        layers = faster_in_integers(calibrated, cpu, parsed, tell)
        layers = _kept(calibrated, layers, budget, choosing, threads, excess, tell)
        settings |= {"target": cpu, "on_progress": tell}
        if not layers:
            return compile_model(model, precision="fp32", **shaped, **settings)
        proto = calibrated.written_with([one.result for one in layers])
    mixed = compile_model(proto, precision="auto", **settings)
    mixed.integers = described(layers, calibrated)
    if code_obstacle(cpu.machine, cpu.features, host_features()):
        return mixed
    plain = compile_model(model, precision="fp32", **shaped, **settings)
    is_worth_it = _time_ratio(mixed, plain, parsed.threads, tell) <= _WORTH
    winner, loser = (mixed, plain) if is_worth_it else (plain, mixed)
    loser.close()
    return winner


def _excess(
    budget: Budget,
    original: VisibleModel,
    proto: onnx.ModelProto,
    outputs: tuple[str, ...],
    samples: Samples,
    threads: int | None,
    tell: ProgressCallback,
) -> str:
    with visible(proto, (), threads) as rounded:
        found = compare_models((original, rounded), outputs, (), samples, tell)
    return budget.excess(found)


def _kept(
    calibrated: Calibrated,
    layers: tuple[LayerChoice, ...],
    budget: Budget,
    samples: Samples,
    threads: int | None,
    excess: Callable[[onnx.ModelProto], str],
    tell: ProgressCallback,
) -> tuple[LayerChoice, ...]:
    """Leave layers out until the rest keeps the budget."""
    if not layers or not excess(calibrated.written_with([one.result for one in layers])):
        return layers
    measured = measure_noise(calibrated, layers, samples, threads, tell)
    # All of them were just found to be too many.
    allowed = min(budget.noise, _TIGHTER * sum(one.noise for one in measured))
    for _ in range(_ATTEMPTS):
        kept = within(measured, allowed)
        if not kept or not excess(calibrated.written_with([one.result for one in kept])):
            return kept
        allowed *= _TIGHTER
    return ()


def _time_ratio(
    first: CompiledModule, second: CompiledModule, threads: int, tell: ProgressCallback
) -> float:
    """Return how long one takes relative to the other: medians of runs in turns."""
    tell(Progress("race"))
    seconds: tuple[list[float], list[float]] = ([], [])
    with first.module(threads) as a, second.module(threads) as b:
        inputs = random_inputs(a.inputs, 0)
        end = time.perf_counter() + 2 * _RACE_SECONDS
        while len(seconds[0]) < 4 or time.perf_counter() < end:
            for module, times in zip((a, b), seconds, strict=True):
                start = time.perf_counter()
                module.run(inputs)
                times.append(time.perf_counter() - start)
    return statistics.median(seconds[0][1:]) / statistics.median(seconds[1][1:])
