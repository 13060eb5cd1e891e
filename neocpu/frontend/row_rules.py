"""Which operators keep rows apart, when only the first so many rows of a tensor count.

A rule looks at one node that reads such tensors and returns None if each row of its result depends
on the same row of what it reads, else the reason why it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

_MIXED = "it combines rows that different operators selected"


@dataclass(frozen=True, slots=True)
class Operand:
    """One input of a node.

    Attributes
    ----------
    shape : tuple of int
        With the upper bound for the number of rows.
    count : str or None
        The value that says how many rows count; None if all do.
    constant : array or None
        Its value, where it is a constant.
    """

    shape: tuple[int, ...]
    count: str | None
    constant: np.ndarray[Any, Any] | None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class RowNode:
    """A node at least one of whose inputs has rows that do not all count.

    Attributes
    ----------
    node : onnx.NodeProto
        The node.
    operands : tuple of Operand or None
        Its inputs; None for an omitted one.
    output_rank : int
        Number of axes of the first output.
    """

    node: onnx.NodeProto
    operands: tuple[Operand | None, ...]
    output_rank: int

    @property
    def given(self) -> list[Operand]:
        """The inputs that are not omitted."""
        return [operand for operand in self.operands if operand is not None]

    def operand(self, index: int) -> Operand | None:
        """Return an input, or None where it is omitted."""
        return self.operands[index] if index < len(self.operands) else None

    def bounded(self, index: int) -> bool:
        """Whether not all rows of an input count."""
        operand = self.operand(index)
        return operand is not None and operand.count is not None

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return default

    def only_first_bounded(self) -> str | None:
        """Return a reason if any input but the first has rows that do not all count."""
        if self.bounded(0) and not any(map(self.bounded, range(1, len(self.operands)))):
            return None
        return "its parameters depend on the selected rows"


Rule = Callable[[RowNode], str | None]


def broken_rows(row_node: RowNode) -> str | None:
    """Return why a node does not keep rows apart, or None if it does."""
    rule = RULES.get(row_node.node.op_type)
    if rule is None:
        return "it is not known to work row by row"
    if len({operand.count for operand in row_node.given if operand.count is not None}) > 1:
        return _MIXED
    return rule(row_node)


def _elementwise(node: RowNode) -> str | None:
    for operand in node.given:
        if operand.count is not None:
            if operand.rank != node.output_rank:
                return "broadcasting moves the rows away from the first axis"
        elif operand.rank == node.output_rank and operand.shape[0] != 1:
            return "it combines the selected rows with a fixed number of rows"
    return None


def _along_axis(default: int) -> Rule:
    """Operators that work along one axis of their first input, an attribute."""

    def rule(node: RowNode) -> str | None:
        return node.only_first_bounded() or _off_rows(node, [node.attribute("axis", default)])

    return rule


def _off_rows(node: RowNode, axes: Sequence[int], rank: int | None = None) -> str | None:
    """Return a reason if one of the axes is that of the rows."""
    operand = node.operand(0)
    assert operand is not None
    extent = operand.rank if rank is None else rank
    return "it works along the rows" if any(int(axis) % extent == 0 for axis in axes) else None


def _reduction(node: RowNode) -> str | None:
    axes = node.operand(1)
    if axes is None or axes.constant is None or axes.constant.size == 0:
        return "it reduces over the rows"
    reason = node.only_first_bounded() or _off_rows(node, axes.constant.reshape(-1).tolist())
    return reason and "it reduces over the rows"


def _concat(node: RowNode) -> str | None:
    if _off_rows(node, [node.attribute("axis", 0)]):
        return "it appends rows to rows"
    apart = all(operand.count is not None for operand in node.given)
    return None if apart else "it combines the selected rows with a fixed number of rows"


def _slice(node: RowNode) -> str | None:
    data, starts, ends, axes, steps = (node.operand(i) for i in range(5))
    assert data is not None
    if node.only_first_bounded() or starts is None or starts.constant is None:
        return "its parameters depend on the selected rows"
    if ends is None or ends.constant is None:
        return "its parameters are no constants"
    count = starts.constant.size
    chosen = range(count) if axes is None or axes.constant is None else axes.constant.tolist()
    strides = [1] * count if steps is None or steps.constant is None else steps.constant.tolist()
    for axis, start, end, step in zip(chosen, starts.constant, ends.constant, strides, strict=True):
        # All rows, in order, is the one slice that does not ask how many there are.
        everything = start == 0 and step == 1 and end >= np.iinfo(np.int32).max
        if int(axis) % data.rank == 0 and not everything:
            return "it takes a range of the rows"
    return None


def _gather(node: RowNode) -> str | None:
    data = node.operand(0)
    assert data is not None
    axis = int(node.attribute("axis", 0)) % data.rank
    if node.bounded(0):
        if node.bounded(1):
            return "it takes selected rows by selected rows"
        return "it takes some of the rows" if axis == 0 else None
    return None if axis == 0 else "it moves the rows away from the first axis"


def _gather_nd(node: RowNode) -> str | None:
    if node.bounded(0):
        return "it takes some of the rows"
    return "it has batch_dims" if node.attribute("batch_dims", 0) else None


def _gather_elements(node: RowNode) -> str | None:
    if not (node.bounded(0) and node.bounded(1)):
        return "it combines the selected rows with a fixed number of rows"
    return _off_rows(node, [node.attribute("axis", 0)])


def _squeeze(node: RowNode) -> str | None:
    axes = node.operand(1)
    if axes is None or axes.constant is None:
        return "without axes it also drops a single row's axis"
    return node.only_first_bounded() or _off_rows(node, axes.constant.reshape(-1).tolist())


def _unsqueeze(node: RowNode) -> str | None:
    axes = node.operand(1)
    if axes is None or axes.constant is None:
        return "its axes are no constants"
    reason = node.only_first_bounded()
    return reason or _off_rows(node, axes.constant.reshape(-1).tolist(), node.output_rank)


def _reshape(node: RowNode) -> str | None:
    data, wanted = node.operand(0), node.operand(1)
    assert data is not None
    if node.only_first_bounded() or wanted is None or wanted.constant is None:
        return "its shape is no constant"
    first, *rest = wanted.constant.reshape(-1).tolist() or [1]
    copies = not node.attribute("allowzero", 0)
    row = math.prod(data.shape[1:])
    if copies:
        rest = [data.shape[i + 1] if extent == 0 else extent for i, extent in enumerate(rest)]
    if first == 0 and copies and (-1 in rest or math.prod(rest) == row):
        return None
    if first == -1 and math.prod(rest) == row:
        return None
    return "it folds rows together or breaks them up"


def _flatten(node: RowNode) -> str | None:
    return None if node.attribute("axis", 1) == 1 else "it folds rows together"


def _transpose(node: RowNode) -> str | None:
    order = node.attribute("perm", None)
    if node.output_rank < 2 or (order is not None and order[0] == 0):
        return None
    return "it moves the rows away from the first axis"


def _matmul(node: RowNode) -> str | None:
    left, right = node.operand(0), node.operand(1)
    assert left is not None
    assert right is not None
    plain = left.rank >= 2 and right.rank == 2
    if not plain or node.bounded(1) or node.attribute("transA", 0):
        return "it sums over the rows"
    if node.bounded(2):
        return "its bias depends on the selected rows"
    bias = node.operand(2)
    if bias is not None and bias.rank == 2 and bias.shape[0] != 1:
        return "it combines the selected rows with a fixed number of rows"
    return None


def _shape(node: RowNode) -> str | None:
    return "it asks for the number of rows"


_ELEMENTWISE = (
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf",
    "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg",
    "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt",
    "Sub", "Sum", "Tanh", "Where", "Xor",
)  # fmt: skip

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("ArgMax", "ArgMin", "Split"), _along_axis(0)),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax", "TopK"), _along_axis(-1)),
    **{
        f"Reduce{kind}": _reduction
        for kind in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    "Concat": _concat,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _matmul,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
