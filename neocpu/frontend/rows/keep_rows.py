"""Operators that keep rows apart: each row of the result is computed of the same row.

The rows that do not count are computed as well, and nobody sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neocpu.frontend.rows.row_value import RowError, Value
from neocpu.frontend.rows.step import FIXED, MIXED, Rule, Step, one_count


def elementwise(step: Step) -> Sequence[Value]:
    """Operators of tensors that broadcast."""
    given = [value for value in step.operands if value is not None]
    rows = one_count(given)
    rank = max(value.rank for value in given)
    axes = {value.axis + rank - value.rank for value in given if value.axis is not None}
    if len(axes) > 1:
        raise RowError("broadcasting lays rows along two axes")
    axis = axes.pop() if axes else None
    for value in given:
        own = None if axis is None else axis - (rank - value.rank)
        if value.axis is None and own is not None and own >= 0 and value.shape[own] != 1:
            raise RowError(FIXED)
    bounds = {value.shape[value.axis] for value in given if value.axis is not None}
    if len(bounds) > 1:
        given = [_cut(step, value, min(bounds)) for value in given]
        operands = iter(given)
        read = [None if value is None else next(operands) for value in step.operands]
        return [made.with_rows(axis, rows) for made in step.same(read)]
    return [made.with_rows(axis, rows) for made in step.same()]


def _cut(step: Step, value: Value, bound: int) -> Value:
    """Drop rows beyond a bound that another tensor of as many rows has."""
    if value.axis is None or value.shape[value.axis] == bound:
        return value
    limits = [step.graph.integers(number) for number in (0, bound, value.axis)]
    return step.graph.emit_one("Slice", value, *limits).with_rows(value.axis, value.rows)


def first_alone(step: Step) -> Sequence[Value]:
    """Operators on the elements of their first input; the others are parameters."""
    data = step.only_first_bounded()
    return [made.with_rows(data.axis, data.rows) for made in step.same()]


def along_axis(default: int) -> Rule:
    """Operators that work along one axis, an attribute, which must not be that of the rows."""

    def rule(step: Step) -> Sequence[Value]:
        data = step.only_first_bounded()
        if step.axis(default, data.rank) == data.axis:
            raise RowError("it works along the rows")
        return [made.with_rows(data.axis, data.rows) for made in step.same()]

    return rule


def layer_norm(step: Step) -> Sequence[Value]:
    """Norms over the axes from one on."""
    data = step.only_first_bounded()
    if data.axis is None or step.axis(-1, data.rank) <= data.axis:
        raise RowError("it works along the rows")
    return [made.with_rows(data.axis, data.rows) for made in step.same()]


def images(step: Step) -> Sequence[Value]:
    """Operators on images one by one, of which only the first so many count."""
    data = step.only_first_bounded()
    if data.axis != 0:
        raise RowError("it works along the rows")
    return [made.with_rows(0, data.rows) for made in step.same()]


def resized(step: Step) -> Sequence[Value]:
    """Resize of other axes than that of the rows; sizes may state the count."""
    data, sizes = step.operand(0), step.optional(3)
    if data.axis != 0:
        raise RowError("it works along the rows")
    operands = list(step.operands)
    if sizes is not None:
        if sizes.contents is None or step.attribute("axes", None) is not None:
            raise RowError("its parameters depend on the selected rows")
        wanted = [data.count, *sizes.contents[1:]]
        if sizes.contents[0] != data.count or any(not each.known for each in wanted[1:]):
            raise RowError("it works along the rows")
        extents = [data.shape[0], *(each.constant for each in wanted[1:])]
        operands[3] = step.graph.integers(*extents)
    elif (scales := step.array(2)) is None or scales[0] != 1:
        raise RowError("it works along the rows")
    return [step.same(operands)[0].with_rows(0, data.rows)]


def product(step: Step) -> Sequence[Value]:
    """MatMul and Gemm whose rows are none of what is summed over."""
    left, right = step.operand(0), step.operand(1)
    bias = step.optional(2)
    if bias is not None and bias.axis is not None:
        raise RowError("its bias depends on the selected rows")
    if left.axis is None or right.axis is not None:
        return _batched_product(step, left, right)
    transposed = bool(step.attribute("transA", 0))
    if transposed or left.axis == left.rank - 1:
        raise RowError("it sums over the rows")
    made = step.same()[0]
    axis = left.axis + max(made.rank - left.rank, 0)
    if left.axis < left.rank - 2 and right.rank > 2:
        raise RowError(FIXED)
    if bias is not None and bias.rank == 2 and bias.shape[0] != 1:
        raise RowError(FIXED)
    return [made.with_rows(axis, left.rows)]


def _batched_product(step: Step, left: Value, right: Value) -> Sequence[Value]:
    """Products of as many matrices as rows count, or by a matrix of as many columns."""
    rows = one_count([left, right])
    if right.axis is None:
        return step.same()
    if left.axis is None:
        gemm = step.node.op_type == "Gemm"
        columns = right.rank - (2 if gemm and step.attribute("transB", 0) else 1)
        if right.axis != columns or right.rank < 2 or step.optional(2) is not None:
            raise RowError("it sums over the rows")
        made = step.same()[0]
        return [made.with_rows(made.rank - 1, rows)]
    apart = left.axis < left.rank - 2 and right.axis < right.rank - 2
    if not apart or left.rank - left.axis != right.rank - right.axis:
        raise RowError("it sums over the rows")
    made = step.same()[0]
    return [made.with_rows(made.rank - (left.rank - left.axis), rows)]


def regions(step: Step) -> Sequence[Value]:
    """RoiAlign: as many regions as boxes; those that do not count are zeros."""
    data, boxes, places = (step.operand(i) for i in range(3))
    if data.axis is not None:
        raise RowError("its images depend on the selected rows")
    if boxes.axis is None and places.axis is None:
        return step.same()
    rows = one_count([boxes, places])
    if boxes.axis != 0 or places.axis != 0 or rows is None:
        raise RowError(MIXED if boxes.axis == 0 or places.axis == 0 else FIXED)
    bound = min(boxes.shape[0], places.shape[0])
    boxes, places = (_cut(step, value, bound) for value in (boxes, places))
    count = step.graph.counted(rows)
    kept = {
        name: value
        for name, value in step.attributes.items()
        if name != "mode" or value not in (b"avg", "avg")
    }
    bins = [int(step.attribute(f"output_{side}", 1)) for side in ("height", "width")]
    output = (step.node.output[0], data.kind, (bound, data.shape[1], *bins))
    (made,) = step.graph.emit_ours("RoiAlign", [data, boxes, places, count], [output], kept)
    return [made.with_rows(0, rows)]


_ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd",
    "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div",
    "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max",
    "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Swish", "Tan", "Tanh", "ThresholdedRelu", "Xor",
)  # fmt: skip

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(("DequantizeLinear", "Dropout", "QuantizeLinear"), first_alone),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), layer_norm),
    **dict.fromkeys(
        (
            "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace",
            "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization",
            "LRN", "MaxPool", "SpaceToDepth",
        ),
        images,
    ),
    "Gemm": product,
    "Hardmax": along_axis(-1),
    "LpNormalization": along_axis(-1),
    "MatMul": product,
    "Resize": resized,
    "RoiAlign": regions,
}  # fmt: skip
