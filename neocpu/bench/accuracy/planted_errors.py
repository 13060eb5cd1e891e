"""Whether verification refuses what is wrong and nothing else, whatever the magnitude.

Networks' inputs, or all of their weights, are scaled. None of them is to be refused; then single
elements of their outputs are replaced by wrong ones, each of which is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import onnx
from onnx import numpy_helper

import neocpu
from neocpu.bench.accuracy.network_errors import AccuracyRequest
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.option_words import AccuracyName
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.foundation.units import json_number
from neocpu.frontend import models as catalogue
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.plan.plan import Plan
from neocpu.schedules.vocabulary.accuracy import DEFAULT
from neocpu.verification.reference.tolerance import scales
from neocpu.verification.reference.verification import Array, Verifier

PLACES: Final = 5
"""Places of each output where wrong elements are planted, one at a time."""

WRONG: Final = 0.01
"""What a planted element is off by, at least: of its own value and of its scale."""

WEIGHTED: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose weights and biases are scaled."""

Kind = Literal["inputs", "weights"]


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a network with its inputs or weights scaled.

    Attributes
    ----------
    refused : str
        Why it was, though nothing is wrong with it; else empty.
    norm_error : float or None
        Of its outputs; None if it was refused.
    missed : tuple of str
        Admissions of the plans before, which did not keep the promise.
    kept : bool
        Whether the last plan does: otherwise float32 cannot.
    float32_error : float
        What numpy errs in float32.
    planted, found : int
        Wrong elements, and those of them that were refused. None are planted where outputs are not
        finite, or float32 exceeds the bound.
    """

    kind: Kind
    scale: float
    refused: str = ""
    norm_error: float | None = None
    missed: tuple[str, ...] = ()
    kept: bool = True
    float32_error: float = 0.0
    planted: int = 0
    found: int = 0

    @property
    def right(self) -> bool:
        """Whether what is right was accepted, and all that is wrong refused."""
        return not self.refused and self.found == self.planted

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        error = json_number(self.norm_error)
        return {
            "scaled": self.kind,
            "by": self.scale,
            "refused": self.refused,
            "norm_error": error,
            "missed": list(self.missed),
            "kept": self.kept,
            "float32_error": json_number(self.float32_error),
            "planted": self.planted,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True)
class RefusalReport:
    """All trials of one network."""

    name: str
    trials: tuple[Trial, ...]

    @property
    def right(self) -> bool:
        """Whether all trials are."""
        return all(trial.right for trial in self.trials)

    def __str__(self) -> str:
        refused = sum(bool(trial.refused) for trial in self.trials)
        planted, found = (
            sum(each) for each in zip(*((t.planted, t.found) for t in self.trials), strict=True)
        )
        return (
            f"{self.name}: {refused} of {len(self.trials)} refused, "
            f"{found} of {planted} planted errors found"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"model": self.name, "trials": [trial.to_json() for trial in self.trials]}


def measure_refusals(
    models: Sequence[str],
    request: AccuracyRequest,
    factors: Sequence[float],
    on_progress: ProgressCallback = silent,
) -> Iterator[RefusalReport | ModelFailure]:
    """Scale each model's inputs and weights by each factor, and plant wrong elements.

    Parameters
    ----------
    models : sequence of str
        ``.onnx`` files or built-in names.
    factors : sequence of float
    """

    def measure(number: int, model: str) -> RefusalReport:
        on_progress(Progress("accuracy", number, len(models), model))
        given = _read(model, request.shapes)
        trials = [*_of_inputs(given, request, factors), *_of_weights(given, request, factors)]
        return RefusalReport(Path(model).stem, tuple(trials))

    return measure_each(models, measure)


def _read(model: str, shapes: InputShapes) -> onnx.ModelProto:
    if catalogue.is_name(model):
        return catalogue.build_with_shapes(model, shapes)
    return load_model(model, shapes).original


def _of_inputs(
    model: onnx.ModelProto, request: AccuracyRequest, factors: Sequence[float]
) -> Iterator[Trial]:
    """Compile once, then run on other inputs: these are no part of an artifact.

    What does not keep the promise is judged by the last plan that `compile` would come to.
    """
    with _compiled(model, request) as compiled:
        trials = [_on_inputs(model, compiled, factor) for factor in factors]
    if all(trial.right for trial in trials):
        yield from trials
        return
    missed = (compiled.plan.admission,)
    with _compiled(model, request, "strict") as strictest:
        for trial in trials:
            again = trial.refused and _on_inputs(model, strictest, trial.scale)
            yield replace(again, missed=missed) if again else trial


def _on_inputs(model: onnx.ModelProto, compiled: CompiledModule, factor: float) -> Trial:
    with compiled.module() as module:
        inputs = {
            name: array * np.float32(factor) if array.dtype == np.float32 else array
            for name, array in random_inputs(module.inputs, seed=0).items()
        }
        return _trial("inputs", factor, model, inputs, module.run(inputs), compiled.plan)


def _of_weights(
    model: onnx.ModelProto, request: AccuracyRequest, factors: Sequence[float]
) -> Iterator[Trial]:
    for factor in factors:
        if factor == 1:  # as the inputs'
            continue
        other = with_weights_scaled(model, factor)
        try:
            compiled = _compiled(other, request)
        except AccuracyError as error:
            yield Trial("weights", factor, refused=str(error))
            continue
        with compiled, compiled.module() as module:
            inputs = random_inputs(module.inputs, seed=0)
            outputs = module.run(inputs)
        yield _trial("weights", factor, other, inputs, outputs, compiled.plan)


def _compiled(
    model: onnx.ModelProto, request: AccuracyRequest, accuracy: AccuracyName = "default"
) -> CompiledModule:
    return neocpu.compile(
        model, threads=request.threads, databases=request.databases, accuracy=accuracy
    )


def with_weights_scaled(model: onnx.ModelProto, factor: float) -> onnx.ModelProto:
    """Return the network with the weights and biases of its `WEIGHTED` operators multiplied."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    used = {name for node in graph.node if node.op_type in WEIGHTED for name in node.input[1:]}
    for tensor in graph.initializer:
        if tensor.name in used and tensor.data_type == onnx.TensorProto.FLOAT:
            weights = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    return changed


def _trial(
    kind: Kind,
    factor: float,
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    plan: Plan,
) -> Trial:
    """Judge the outputs as they are, then with wrong elements in them."""
    loaded = load_model(model)
    verifier = Verifier(loaded.original, inputs, DEFAULT, loaded.row_groups)
    right = verifier.judge(outputs)
    judged = [verifier.judge(wrong) for wrong in _planted(outputs, np.random.default_rng(0))]
    float32 = max((verdict.float32_error or 0.0 for verdict in (right, *judged)), default=0.0)
    if float32 > DEFAULT.bound:  # it knows the right answer no better
        judged = []
    return Trial(
        kind,
        factor,
        refused="" if right.is_accepted else verifier.reason(right),
        norm_error=right.found.norm_error,
        missed=tuple(each.admission for each in plan.missed),
        kept=right.kept,
        float32_error=float32,
        planted=len(judged),
        found=sum(not verdict.is_accepted for verdict in judged),
    )


def _planted(right: Mapping[str, Array], rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield outputs with one wrong element each: as `wrong_values` has them, at some places."""
    for name, output in right.items():
        for _ in range(PLACES if output.size and np.isfinite(output).all() else 0):
            place = tuple(int(rng.integers(0, extent)) for extent in output.shape)
            for value in wrong_values(output, place):
                changed = output.copy()
                changed[place] = value
                yield {**right, name: changed}


def wrong_values(output: Array, place: tuple[int, ...]) -> list[float]:
    """Return zero, the negative, the neighbour's and slightly other values, if wrong enough."""
    own = output[place]
    if output.dtype.kind != "f":
        return [not own if output.dtype == bool else own + 1]
    scale = float(np.broadcast_to(scales(output.astype(np.float64)), output.shape)[place])
    near = (*place[:-1], (place[-1] + 1) % output.shape[-1])
    least = WRONG * max(abs(float(own)), scale)
    values = [0.0, -float(own), float(output[near]), own + 1.05 * least, own - 1.05 * least]
    # Where float32 loses digits, neither this nor a kernel can tell.
    smallest = float(np.finfo(np.float32).tiny) / np.finfo(np.float32).eps
    return [v for v in values if abs(v - float(own)) >= max(least, smallest)]
