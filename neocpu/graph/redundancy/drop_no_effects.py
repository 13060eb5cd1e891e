"""Operators that return what they read, by their parameters: a rule for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import TUPLE_ITEM, Kind, LocalRule
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, dtype_of, has_type_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _only_forward(call: Call) -> bool:
    """Whether no axis is sliced backwards, so that an unchanged shape means unchanged data."""
    if len(call.args) < 5:
        return True
    strides = call.args[4]
    return isinstance(strides, relax.Tuple) and all(
        isinstance(stride, tvm.tirx.IntImm) and stride.value > 0 for stride in strides.fields
    )


def _is_whole(call: Call) -> bool:
    return has_type_of(call.args[0], call) and _only_forward(call)


def _adds_nothing(call: Call) -> bool:
    return not any(int(width) for width in call.attrs.pad_width)


def _is_single(call: Call) -> bool:
    """Whether a pool's windows are single elements, one after the other."""
    sizes = (*call.attrs.pool_size, *call.attrs.strides)
    unpadded = not any(int(width) for width in call.attrs.padding)
    return unpadded and all(int(size) == 1 for size in sizes)


def _keeps_type(call: Call) -> bool:
    return has_type_of(call.args[0], call)


def _is_same_size(call: Call) -> bool:
    """Whether a resize maps every element to itself, in whatever mode."""
    mode = str(call.attrs.coordinate_transformation_mode)
    return mode in ("half_pixel", "align_corners", "asymmetric") and _keeps_type(call)


def _takes_all(call: Call) -> bool:
    """Whether a lookup takes every element along its axis, in order."""
    shape, places = static_shape(call.args[0]), constant_value(call.args[1])
    if shape is None or places is None or places.ndim != 1 or call.attrs.axis is None:
        return False
    return np.array_equal(places, np.arange(shape[int(call.attrs.axis)]))


def _dropping(
    name: str, summary: str, has_none: Callable[[Call], bool], *operators: str
) -> LocalRule:
    """Return the rule that drops calls of ``operators`` of which ``has_none`` is true."""

    def apply(call: Expr, rewrite: Rewrite) -> Expr | None:
        return call.args[0] if has_none(call) else None

    return LocalRule(name, Kind.REDUNDANCY, summary, operators=operators, apply=apply)


def _chosen(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Return what a selection always selects."""
    condition = constant_value(call.args[0])
    if condition is None or not (condition.all() or not condition.any()):
        return None
    data = call.args[1] if condition.all() else call.args[2]
    return data if has_type_of(data, call) else None


def _unreduced(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Return a reduction of axes of one element as a reshape."""
    shape, result = static_shape(call.args[0]), static_shape(call)
    if shape is None or result is None or dtype_of(call) != dtype_of(call.args[0]):
        return None
    return relax.op.reshape(call.args[0], result) if math.prod(shape) == math.prod(result) else None


def _only_part(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Return a concatenation's input, if it has one."""
    inputs = rewrite.definition(expr.args[0])
    single = isinstance(inputs, relax.Tuple) and len(inputs.fields) == 1
    return inputs.fields[0] if single else None


def _item(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Return Dropout's data, and a field of a tuple literal."""
    value = rewrite.definition(expr.tuple_value)
    if isinstance(value, relax.Tuple):
        return value.fields[expr.index]
    if is_op(value, "relax.nn.dropout") and expr.index == 0:
        return value.args[0]
    return None


DROP_NO_EFFECTS: Final = (
    _dropping("drop-cast", "Cast to the type that it reads.", _keeps_type, "relax.astype"),
    _dropping(
        "drop-expand", "Expand to the shape that it reads.", _keeps_type, "relax.broadcast_to"
    ),
    _dropping("drop-tile", "Tile by 1.", _keeps_type, "relax.tile"),
    _dropping("drop-resize", "Resize to the same size.", _is_same_size, "relax.image.resize2d"),
    _dropping("drop-gather", "Gather of everything, in order.", _takes_all, "relax.take"),
    _dropping("drop-split", "Split into one part.", _keeps_type, "relax.split"),
    _dropping("drop-slice", "Slice of everything.", _is_whole, "relax.strided_slice"),
    _dropping("drop-pad", "Pad by nothing.", _adds_nothing, "relax.nn.pad"),
    _dropping(
        "drop-pool",
        "Pooling of single elements.",
        _is_single,
        "relax.nn.max_pool2d",
        "relax.nn.avg_pool2d",
    ),
    LocalRule(
        "drop-where",
        Kind.REDUNDANCY,
        "Where of a constant condition that is the same everywhere.",
        operators=("relax.where",),
        apply=_chosen,
    ),
    LocalRule(
        "drop-reduction",
        Kind.REDUNDANCY,
        "Mean, Max, Min, Sum and Prod over axes of one element, such as a second global pooling.",
        operators=tuple(f"relax.{name}" for name in ("max", "mean", "min", "prod", "sum")),
        apply=_unreduced,
    ),
    LocalRule(
        "drop-concat",
        Kind.REDUNDANCY,
        "Concat of one input.",
        operators=("relax.concat",),
        apply=_only_part,
    ),
    LocalRule(
        "drop-dropout",
        Kind.REDUNDANCY,
        "Dropout, and tuples that are taken apart again.",
        operators=(TUPLE_ITEM,),
        apply=_item,
    ),
)
