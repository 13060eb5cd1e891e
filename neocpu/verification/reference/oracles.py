"""The expected outputs of a model: by numpy in float64, then in float32, then ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

import onnx

from neocpu.foundation.arrays import Array
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.units import duration
from neocpu.frontend.onnx_graph.weightless_model import infer_shapes
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.source import first_line
from neocpu.verification.reference import onnxruntime_oracle
from neocpu.verification.reference.comparison import REFERENCE
from neocpu.verification.reference.evaluator import Noise
from neocpu.verification.reference.runner import custom_operators_of, image_count, run_reference

Outputs: TypeAlias = dict[str, Array]

SINGLE: Final = "numpy in float32"


@dataclass(frozen=True, slots=True)
class Oracle:
    """The source of the outputs that a module is compared with, such as ``ONNX Runtime 1.22.0``."""

    name: str
    reason: str  # why it is not a better one; empty for the best
    # Runs the model in float32, rounded differently than the truth; None if it cannot round so.
    single: Callable[[Noise | None], Outputs | None]


@dataclass(frozen=True, slots=True)
class Truth:
    """The expected outputs, and their source."""

    outputs: Outputs
    oracle: Oracle


_Candidate: TypeAlias = tuple[str, Callable[[], Outputs], Callable[[Noise | None], Outputs | None]]
"""The name of an oracle, its best run of a model, and its runs in float32."""


def find_truth(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    instead: str = "pass --no-verify to compile it unchecked",
) -> Truth:
    """Run a model with the best oracle that can, or raise an `AccuracyError` with ``instead``."""
    reasons: list[str] = []
    candidates = [*_in_numpy(model, inputs), *_in_onnxruntime(model, inputs)]
    for name, truth, single in candidates:
        try:
            outputs = truth()
        except Exception as error:  # an evaluator raises whatever numpy does
            reasons.append(f"{name}: {first_line(error)}")
        else:
            return Truth(outputs, Oracle(name, _reasons_text(reasons), single))
    lacks_onnxruntime = len(candidates) == 2 and not _has_custom_operators(model)
    more = "install onnxruntime to compare with, or " if lacks_onnxruntime else ""
    raise AccuracyError(
        f"nothing can tell what this model computes ({_reasons_text(reasons)}), so nothing was "
        f"checked or written: {more}{instead}"
    )


def find_quick_truth(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    patience: float,
    shapes: Mapping[str, tuple[int, ...]],
) -> Truth | None:
    """Run a model with a quicker oracle; None if the best one is quick enough, or the only one.

    The best one may take ``patience`` seconds; numpy in float32 takes half as long. ``shapes`` are
    those of the model's tensors, as far as known.
    """
    seconds = predicted_seconds(model, image_count(model, inputs), shapes)
    if seconds <= patience:
        return None
    reason = f"{REFERENCE} would take about {duration(seconds)}"
    _, in_float32 = _in_numpy(model, inputs)
    others = [*_in_onnxruntime(model, inputs)] if seconds / 2 > patience else []
    for name, truth, single in (*others, in_float32):
        try:
            return Truth(truth(), Oracle(name, reason, single))
        except Exception:  # of any kind: the best oracle is tried later
            continue
    return None


def _reasons_text(reasons: Sequence[str]) -> str:
    """Return the reasons, shortened if numpy fails in the same way at both precisions."""
    double, single = (f"{name}: " for name in (REFERENCE, SINGLE))
    if len(reasons) > 1 and reasons[0].replace(double, single) == reasons[1]:
        reasons = [reasons[0].replace(double, "numpy: "), *reasons[2:]]
    return "; ".join(reasons)


def _in_numpy(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Iterator[_Candidate]:
    run: Callable[..., Outputs] = partial(run_reference, model, inputs)

    def single(noise: Noise | None) -> Outputs:
        return run(noise=noise)

    yield REFERENCE, partial(run, double=True), single
    yield SINGLE, run, single


def _in_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Iterator[_Candidate]:
    try:
        name = f"ONNX Runtime {onnxruntime_oracle.version()}"
    except ImportError:
        return
    if _has_custom_operators(model):
        return
    other = partial(onnxruntime_oracle.run_onnxruntime, model, inputs)
    exact = partial(other, optimised=False)
    yield name, exact, lambda noise: other(optimised=True) if noise is None else None


def _has_custom_operators(model: onnx.ModelProto) -> bool:
    return bool(custom_operators_of(model))


SECONDS: Final = 1.8e-10  # seconds of a multiply-add in float64 (on two threads of a Zen 5)


def predicted_seconds(
    model: onnx.ModelProto,
    images: int = 1,
    known: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> float:
    """Return about how long the reference takes in float64; in float32 it takes half as long.

    Only the products of convolutions and matrix products of known shapes are counted: those that
    shape inference finds, and the ``known`` ones. The model is run ``images`` times.
    """
    try:
        graph = infer_shapes(model).graph
    except Exception:  # C++ has exceptions of its own
        return 0.0
    shapes = {**known, **known_shapes(graph)}
    return images * SECONDS * sum(_products(node, shapes) for node in graph.node)


def _products(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    if node.op_type not in ("Conv", "ConvTranspose", "MatMul", "Gemm"):
        return 0
    first, second, result = (shapes.get(n) for n in (*node.input[:2], node.output[0]))
    if not first or not second or not result:
        return 0
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    return math.prod(first) * math.prod(result) // max(1, math.prod(result[:-1]))
