"""Run onnx's reference evaluator on a large model: nothing is held longer than it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from neocpu.frontend.weightless_model import strip_weights
from neocpu.reference.tolerance import finite, scales

_WHOLE: Final = 2.0**20
"""Above, float32 has hardly any but whole numbers."""

_SUMS: Final = frozenset(
    """
    AveragePool BatchNormalization Conv ConvTranspose CumSum Einsum Gemm GlobalAveragePool
    GroupNormalization InstanceNormalization LayerNormalization MatMul MeanVarianceNormalization
    ReduceMean ReduceSum
    """.split()
)
"""Operators whose result near zero errs as much as its neighbours: long sums, and what is left
after a mean was subtracted."""

Array: TypeAlias = npt.NDArray[Any]


class Noise:
    """Moves float32 at random: another way to round.

    Parameters
    ----------
    seed : int
    ulps : float
        At most by so many units in the last place of a number that is just below a power of two.
        The number is the result, or what results around a sum of products are, if that is more.
    """

    def __init__(self, seed: int, ulps: float) -> None:
        self._random = np.random.default_rng(seed)
        self._largest = ulps * float(np.finfo(np.float32).epsneg)

    def moved(self, value: Any, op_type: str) -> Any:
        """Return a node's result, moved; whole numbers count something, and stay."""
        value = _flushed(value)
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            return value
        whole = (value == np.rint(value)) & (np.abs(value) < _WHOLE)
        size = np.abs(finite(value.astype(np.float64)))
        if op_type in _SUMS:
            size = np.maximum(size, scales(size))
        drawn = self._random.uniform(-self._largest, self._largest, value.shape)
        # In float64, where a number so near to another is not rounded itself.
        return np.where(whole, value, (value + drawn * size).astype(np.float32))


def evaluate(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    operators: Sequence[type[OpRun]],
    *,
    double: bool = False,
    noise: Noise | None = None,
) -> dict[str, Array]:
    """Run ``model``; ``operators`` replace the evaluator's own of the same names.

    onnx's own loop keeps every intermediate result, and a second copy of all weights.

    Parameters
    ----------
    double : bool
        Compute in float64 whatever the model computes in float32, but for a model with control
        flow, whose bodies onnx runs in the types they declare. Otherwise denormal results are
        zeros, as in compiled code.
    noise : Noise, optional
        Of what nodes compute in float32.

    Returns
    -------
    dict of str to array
        The graph outputs by name, in graph order.
    """
    light = strip_weights(model)
    flat = light.model
    if flat.functions:  # whose nodes would be onnx's own
        flat = onnx.inliner.inline_local_functions(flat, convert_version=True)
    evaluator = ReferenceEvaluator(flat, new_ops=list(operators))
    names: list[str] = evaluator.output_names
    nodes = _needed(evaluator.rt_nodes_, names)
    if any(node.need_context() for node in nodes):
        # The bodies of If and Loop may read any value around them.
        weights = {name: numpy_helper.to_array(tensor) for name, tensor in light.weights.items()}
        return dict(zip(names, evaluator.run(None, {**weights, **inputs}), strict=True))
    keep = _widened if double else _flushed
    last_reader = {name: index for index, node in enumerate(nodes) for name in node.input}
    given = {**evaluator.rt_inits_, **inputs}
    values: dict[str, Any] = {"": None} | {name: keep(array) for name, array in given.items()}

    def value(name: str) -> Any:
        if name not in values:
            values[name] = keep(numpy_helper.to_array(light.weights[name]))
        return values[name]

    for index, node in enumerate(nodes):
        results = node.run(*map(value, node.input))
        kept = (
            keep(result) if noise is None else noise.moved(result, node.op_type)
            for result in results
        )
        values.update(zip(node.output, kept, strict=False))
        for name in {*node.input, *node.output} - {"", *names}:
            if last_reader.get(name, index) <= index:
                values.pop(name, None)
    return {name: value(name) for name in names}


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Return the nodes that outputs depend on: others may fail, and nobody would know."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if node.need_context() or not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]


def _widened(value: Any) -> Any:
    """Return float32 as float64: also what a node makes of its own accord, as Constant and Cast."""
    is_single = isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32
    return value.astype(np.float64) if is_single else value


def _flushed(value: Any) -> Any:
    """Return float32 without denormal numbers, which compiled code takes for zero."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    denormal = (np.abs(value) < np.finfo(np.float32).tiny) & (value != 0)
    return np.where(denormal, np.float32(0), value) if denormal.any() else value
