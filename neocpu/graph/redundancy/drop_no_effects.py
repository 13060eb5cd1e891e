"""Operators without an effect go: slices of all, pools of one, neutral operands, expansions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, has_type_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


@local_rule(Kind.REDUNDANCY, "relax.strided_slice")
def drop_slice(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Slice of everything.

    ::

        strided_slice(x, axes, begin=0, end=extents)  ->  x

    Swin Transformers cut off the padding of their windows in this way, whether there is any or not.
    """
    whole = has_type_of(call.args[0], call) and _runs_forward(call)
    return call.args[0] if whole else None


def _runs_forward(call: Call) -> bool:
    if len(call.args) < 5:
        return True
    strides = call.args[4]
    return isinstance(strides, relax.Tuple) and all(
        isinstance(stride, tvm.tirx.IntImm) and stride.value > 0 for stride in strides.fields
    )


@local_rule(Kind.REDUNDANCY, "relax.nn.max_pool2d", "relax.nn.avg_pool2d")
def drop_pool(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Pooling of single elements.

    ::

        max_pool2d(x, pool_size=1, strides=1)  ->  x
        avg_pool2d(x, pool_size=1, strides=1)  ->  x

    AlexNet and VGG end with an adaptive average pool to the size that their maps have already.
    """
    sizes = (*call.attrs.pool_size, *call.attrs.strides)
    is_padded = any(int(width) for width in call.attrs.padding)
    is_single = all(int(size) == 1 for size in sizes) and not is_padded
    return call.args[0] if is_single else None


_NEUTRAL: Final[Mapping[str, float]] = {
    "relax.add": 0.0,
    "relax.subtract": 0.0,
    "relax.multiply": 1.0,
    "relax.divide": 1.0,
    "relax.power": 1.0,
}
"""Neutral element of the right operand."""
_COMMUTATIVE: Final = ("relax.add", "relax.multiply")


@local_rule(Kind.REDUNDANCY, *_NEUTRAL)
def neutral_operands(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Adding 0 and multiplying by 1, and their inverses, go.

    ::

        x + 0  ->  x        x * 1  ->  x        x ** 1  ->  x
        x - 0  ->  x        x / 1  ->  x
    """
    sides = [(call.args[0], call.args[1])]
    if call.op.name in _COMMUTATIVE:
        sides.append((call.args[1], call.args[0]))
    for data, operand in sides:
        value = constant_value(operand)
        if (
            value is not None
            and has_type_of(data, call)
            and np.all(value == _NEUTRAL[call.op.name])
        ):
            return data
    return None


_BROADCASTING: Final = (
    "add",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "power",
    "subtract",
    "where",
)


@local_rule(Kind.REDUNDANCY, *(f"relax.{name}" for name in _BROADCASTING))
def expand_before(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Expand, or Tile of axes of one element, before an operator that broadcasts.

    ::

        multiply(x, broadcast_to(gate, x.shape))  ->  multiply(x, gate)
        add(x, tile(row, [4, 1]))                 ->  add(x, row)

    PyTorch's ``expand_as`` leaves such an Expand, as in the gates of ECA and in MobileViT v2.
    """
    if is_op(call, "relax.where") and static_shape(call.args[0]) == ():
        return None  # only the selected tensor is made if both have the same shape
    for place, arg in enumerate(call.args):
        expanded = rewrite.definition(arg)
        if not _repeats(expanded):
            continue
        args = [*call.args]
        args[place] = expanded.args[0]
        shapes = [static_shape(each) for each in args]
        known = [shape for shape in shapes if shape is not None]
        if len(known) == len(args) and np.broadcast_shapes(*known) == static_shape(call):
            return Call(call.op, args, call.attrs, ret_ty=call.ty)
    return None


def _repeats(value: Expr) -> bool:
    if is_op(value, "relax.broadcast_to"):
        return True
    if not is_op(value, "relax.tile"):
        return False
    data, whole = static_shape(value.args[0]), static_shape(value)
    if data is None or whole is None:
        return False
    last = whole[len(whole) - len(data) :]
    return all(extent in (1, size) for extent, size in zip(data, last, strict=True))
