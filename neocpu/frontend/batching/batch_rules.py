"""The batch dimension of a node's outputs, and the constants that the batch changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from neocpu.frontend.batching.batched_node import BatchedNode
from neocpu.ir.row_analysis.independence import PARAMETERS, DependentRowsError, carry
from neocpu.ir.row_analysis.table import ONNX_RULES

Rule: TypeAlias = Callable[[BatchedNode], Sequence[int]]
"""A function that returns the batch dimension of each output, or one for all of them."""


def _independent(node: BatchedNode) -> Sequence[int]:
    """Return the dimensions that the table of operators gives, and repeat inputs as it requires."""
    call = node.call
    found = carry(call.inputs, node.batched, ONNX_RULES[call.op_type](call))
    for index, axis in found.required.items():
        if call.shape(index)[axis] != 1:
            raise DependentRowsError("spreads an image over the {axis}")
        node.repeat(index, axis)
    if node.output[found.results[0]] != 1:
        raise DependentRowsError("spreads an image over the {axis}")
    return found.results


def _data_axis(node: BatchedNode) -> int:
    """Return the batch dimension of the first input; no other input may have one."""
    if set(node.batched) != {0}:
        raise DependentRowsError(PARAMETERS)
    return node.batched[0]


def _flatten(node: BatchedNode) -> Sequence[int]:
    shape = node.call.shape()
    (at,) = node.call.integers("axis") or [1]
    rows = shape[: at + len(shape) if at < 0 else at]
    if _data_axis(node) != 0 or not rows or math.prod(rows) != 1:
        raise DependentRowsError("merges the {axis} with another")
    return [0]


def _reshape(node: BatchedNode) -> Sequence[int]:
    """Keep the dimensions before the batch, and give the target an extent for the batch."""
    axis = _data_axis(node)
    _check_constant_shape(node)
    before = math.prod(node.call.shape()[:axis])
    places = [
        place
        for place, extent in enumerate(node.output)
        if extent == 1 and math.prod(node.output[:place]) == before
    ]
    if not places:
        raise DependentRowsError(
            f"to {'x'.join(map(str, node.output))} leaves the batch no dimension of its own"
        )
    place = axis if axis in places else places[0]
    node.set_target(place)
    return [place]


def _expand(node: BatchedNode) -> Sequence[int]:
    _check_constant_shape(node)
    return _independent(node)


def _check_constant_shape(node: BatchedNode) -> None:
    if node.call.constant(1) is None:
        raise DependentRowsError("has a shape that is not a constant")


def _resize(node: BatchedNode) -> Sequence[int]:
    results = _independent(node)
    call = node.call
    axes = call.integers("axes") or range(call.rank())
    if call.integers("sizes") is not None:
        for place, used in enumerate(axes):
            if used % call.rank() == 0:
                node.set_extent(3, place)
    return results


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(ONNX_RULES, _independent),
    "Expand": _expand,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Resize": _resize,
}
"""The rules by operator; other operators may mix images."""
