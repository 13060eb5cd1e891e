"""The choice of layers that compute in integers: the faster ones, within a budget of noise.

The layout search takes the model with all layers in 8 bits, and decides by time, layer by layer.
Layers that it still computes in float32 need no grid and are left out, and the search is repeated
until nothing changes. The noise that each remaining layer adds to the outputs is measured one by
one, and assumed to add up. A price on noise, the multiplier of the budget, then decides which
layers are worth it. The result is checked afterwards, on data that took no part in the choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx

from neocpu.compilation.compile_each import plan_only
from neocpu.compilation.compile_options import CompileOptions
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.plan.reports.decisions import Decisions, IntegerLayer
from neocpu.planning.operators.operator_report import OperatorReport
from neocpu.planning.precision import Precision
from neocpu.quantiser.calibrated import Calibrated
from neocpu.quantiser.observation import Samples
from neocpu.quantiser.sensitivity import laboratory_of
from neocpu.schedules.vocabulary.target import CpuTarget

MAX_ROUNDS: Final = 4  # searches; each leaves out the layers that the last one had in float32


def faster_in_integers(
    calibrated: Calibrated, cpu: CpuTarget, options: CompileOptions, on_progress: ProgressCallback
) -> tuple[IntegerLayer, ...]:
    """Return a plan's layers in integers by choice; none if not faster, or not in the plan."""
    plain = _plan(calibrated.graph.proto, cpu, options, Precision.FP32)
    costs = _by_result(plain, calibrated)
    chosen: set[str] = set(calibrated.layers)
    found = plain
    for number in range(MAX_ROUNDS):
        on_progress(Progress("choose precisions", number, MAX_ROUNDS))
        found = _plan(calibrated.written_with(chosen), cpu, options, Precision.AUTO)
        ops = _by_result(found, calibrated)
        kept = {name for name in chosen if name in ops and ops[name].reads_integers}
        if kept == chosen:
            break
        chosen = kept
        if not chosen:
            return ()
    if found.estimated_seconds >= plain.estimated_seconds:
        return ()
    return _saved(calibrated, costs, ops, chosen)


def all_in_integers(
    calibrated: Calibrated, cpu: CpuTarget, options: CompileOptions
) -> tuple[IntegerLayer, ...]:
    plain = _plan(calibrated.graph.proto, cpu, options, Precision.FP32)
    ops = _by_result(_plan(calibrated.written(), cpu, options, Precision.INT8), calibrated)
    chosen = {name for name, op in ops.items() if op.reads_integers}
    return _saved(calibrated, _by_result(plain, calibrated), ops, chosen)


def _saved(
    calibrated: Calibrated,
    costs: Mapping[str, OperatorReport],
    ops: Mapping[str, OperatorReport],
    chosen: Collection[str],
) -> tuple[IntegerLayer, ...]:
    return tuple(
        IntegerLayer(
            layer.name,
            layer.result,
            costs[layer.result].seconds - ops[layer.result].seconds
            if layer.result in costs
            else 0.0,
        )
        for layer in calibrated.graph.layers
        if layer.result in chosen
    )


def _plan(
    proto: onnx.ModelProto, cpu: CpuTarget, options: CompileOptions, precision: Precision
) -> Decisions:
    return plan_only(proto, cpu, replace(options.computing(precision), signatures=(NO_SHAPES,)))


def _by_result(plan: Decisions, calibrated: Calibrated) -> dict[str, OperatorReport]:
    results = set(calibrated.layers)
    return {name: op for op in plan.ops for name in results.intersection(op.tensors)}


def measure_noise(
    calibrated: Calibrated,
    layers: Sequence[IntegerLayer],
    samples: Samples,
    threads: int | None,
    on_progress: ProgressCallback,
) -> tuple[IntegerLayer, ...]:
    """Return the layers with the noise that each alone adds to the outputs."""
    stored = {one.result: calibrated.layers[one.result] for one in layers}
    found = []
    with laboratory_of(calibrated.graph, stored, samples, threads) as laboratory:
        for number, one in enumerate(layers):
            on_progress(Progress("measure noise", number, len(layers), one.result))
            grids = {name: calibrated.grids[name] for name in calibrated.tensors_of([one.result])}
            noise = laboratory.noise(grids, [one.result])
            found.append(replace(one, noise=noise))
    return tuple(found)


def within(layers: Sequence[IntegerLayer], budget: float) -> tuple[IntegerLayer, ...]:
    """Return the layers that save most within a budget of noise.

    A price on noise, the lowest that keeps the budget, drops what saves least for its noise first.
    """
    ranked = sorted(layers, key=lambda one: one.noise / max(one.saved_seconds, 1e-9))
    kept: set[str] = set()
    total = 0.0
    for one in ranked:
        if not total + one.noise <= budget:
            break
        total += one.noise
        kept.add(one.result)
    return tuple(one for one in layers if one.result in kept)
