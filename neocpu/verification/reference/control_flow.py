"""The operators If, Loop and Scan of the standard; the caller runs their bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

RunBody: TypeAlias = Callable[[ReferenceEvaluator, Sequence[Any]], list[Any]]
"""Runs an inner graph on its inputs, and returns its outputs."""


class Optional(OpRun):  # type: ignore[misc]
    """The element itself, or None; onnx's own makes a list, which OptionalGetElement refuses."""

    op_domain = ""

    def _run(self, element: Any = None, **attributes: Any) -> Any:
        return (element,)


class Scan(OpRun):  # type: ignore[misc]
    """The attributes of a Scan: the constructor of onnx's own refuses axes and directions."""

    op_domain = ""

    def need_context(self) -> bool:
        """Return True: its body may read values of the outer graph."""
        return True

    def _run(self, *inputs: Any, **attributes: Any) -> Any:
        raise AssertionError("`CONTROL_FLOW` runs it")


class SplitToSequence(OpRun):  # type: ignore[misc]
    """Drop the axis of elements of size 1 as PyTorch and ONNX Runtime do, unlike the standard."""

    op_domain = ""

    def _run(self, array: Any, split: Any = None, axis: int = 0, keepdims: int = 1) -> Any:
        size = np.array(1) if split is None else split
        step = int(size) if size.ndim == 0 else 0
        ends = np.arange(step, array.shape[axis], step) if step else size.cumsum()[:-1]
        parts = np.split(array, ends, axis)
        drops = step == 1 and not keepdims
        return ([part.squeeze(axis) if drops else part for part in parts],)


def _if(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    return run(node.then_branch if inputs[0].item() else node.else_branch, [])


def _loop(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    limit, condition, *states = (*inputs, None)[: max(len(inputs), 2)]
    goes_on = condition is None or condition.item()
    rows: list[list[Any]] = [[] for _ in node.body.output_names[1 + len(states) :]]
    # PyTorch sometimes declares a vector of one element, and ONNX Runtime then passes one.
    counter = (1,) * len(node.body.input_types[0].tensor_type.shape.dim)
    step = 0
    while goes_on and (limit is None or step < limit.item()):
        given = [np.full(counter, step, np.int64), np.array(True), *states]
        again, *results = run(node.body, given)
        goes_on, states, step = again.item(), results[: len(states)], step + 1
        for row, result in zip(rows, results[len(states) :], strict=True):
            row.append(result)
    return [*states, *(np.stack(row) if row else np.zeros(0, np.float32) for row in rows)]


def _scan(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    if node.run_params["opsets"][""] >= 9:
        return _scan_one(node, inputs, run)
    images = zip(*inputs[1:], strict=True)  # without lengths, which the importer refuses
    results = [_scan_one(node, image, run) for image in images]
    return [np.stack(parts) for parts in zip(*results, strict=True)]


def _scan_one(node: OpRun, inputs: Sequence[Any], run: RunBody) -> list[Any]:
    count = len(inputs) - node.num_scan_inputs
    states = list(inputs[:count])
    axes = getattr(node, "scan_input_axes", None) or [0] * node.num_scan_inputs
    backward = getattr(node, "scan_input_directions", None) or getattr(node, "directions", None)
    scanned = [
        _slices(array, axis, reverse)
        for array, axis, reverse in zip(
            inputs[count:], axes, backward or [0] * len(axes), strict=True
        )
    ]
    rows: list[list[Any]] = [[] for _ in node.body.output_names[count:]]
    for elements in zip(*scanned, strict=True):
        results = run(node.body, [*states, *elements])
        states = results[:count]
        for row, result in zip(rows, results[count:], strict=True):
            row.append(result)
    axes = getattr(node, "scan_output_axes", None) or [0] * len(rows)
    backward = getattr(node, "scan_output_directions", None) or [0] * len(rows)
    stacked = (
        np.stack(row[::-1] if reverse else row, axis)
        for row, axis, reverse in zip(rows, axes, backward, strict=True)
    )
    return [*states, *stacked]


def _slices(array: Any, axis: int, backward: int) -> Iterator[Any]:
    moved = np.moveaxis(array, axis, 0)
    return iter(moved[::-1] if backward else moved)


CONTROL_FLOW: Final = {"If": _if, "Loop": _loop, "Scan": _scan}
CONTROL_FLOW_OPERATORS: Final = (Optional, Scan, SplitToSequence)
"""Replacements of operators of onnx's evaluator."""
