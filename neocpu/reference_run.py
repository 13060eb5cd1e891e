"""Run onnx's reference evaluator on a large model: nothing is held longer than it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from neocpu.frontend.skeleton import strip_weights

NOISE: Final = 4 * float(np.finfo(np.float32).eps)
"""Relative: what a sum of a few hundred products errs, added up one by one."""

_WHOLE: Final = 2.0**20
"""Above, float32 has hardly any but whole numbers."""

Array: TypeAlias = npt.NDArray[Any]


def evaluate(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    operators: Sequence[type[OpRun]],
    *,
    double: bool = False,
    noise: np.random.Generator | None = None,
) -> dict[str, Array]:
    """Run ``model``; ``operators`` replace the evaluator's own of the same names.

    onnx's own loop keeps every intermediate result, and a second copy of all weights.

    Parameters
    ----------
    double : bool
        Compute in float64 whatever the model computes in float32, but for a model with control
        flow, whose bodies onnx runs in the types they declare. Otherwise denormal results are
        zeros, as in compiled code.
    noise : Generator, optional
        Also move what nodes compute in float32 by up to `NOISE`: another way to round.

    Returns
    -------
    dict of str to array
        The graph outputs by name, in graph order.
    """
    light = strip_weights(model)
    evaluator = ReferenceEvaluator(light.model, new_ops=list(operators))
    nodes: list[Any] = evaluator.rt_nodes_
    names: list[str] = evaluator.output_names
    if any(node.need_context() for node in nodes):
        # The bodies of If and Loop may read any value around them.
        weights = {name: numpy_helper.to_array(tensor) for name, tensor in light.weights.items()}
        return dict(zip(names, evaluator.run(None, {**weights, **inputs}), strict=True))
    keep = _widened if double else _flushed
    last_reader = {name: index for index, node in enumerate(nodes) for name in node.input}
    rounded = keep if noise is None else partial(_moved, noise)
    given = {**evaluator.rt_inits_, **inputs}
    values: dict[str, Any] = {"": None} | {name: keep(array) for name, array in given.items()}

    def value(name: str) -> Any:
        if name not in values:
            values[name] = keep(numpy_helper.to_array(light.weights[name]))
        return values[name]

    for index, node in enumerate(nodes):
        results = node.run(*map(value, node.input))
        values.update(zip(node.output, map(rounded, results), strict=False))
        for name in {*node.input, *node.output} - {"", *names}:
            if last_reader.get(name, index) <= index:
                values.pop(name, None)
    return {name: value(name) for name in names}


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


def _moved(noise: np.random.Generator, value: Any) -> Any:
    """Return float32 as `_flushed` and moved at random; whole numbers count something, and stay."""
    value = _flushed(value)
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    whole = (value == np.rint(value)) & (np.abs(value) < _WHOLE)
    factors = np.asarray(noise.uniform(1 - NOISE, 1 + NOISE, value.shape), np.float32)
    return np.where(whole, value, value * factors)
