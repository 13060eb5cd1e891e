"""Remove operators that return their input, and merge runs of reshapes and transposes."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.relax_utils import (
    Expr,
    Rewrite,
    constant_value,
    dtype_of,
    is_op,
    op_name,
    rewrite_function,
    static_shape,
)

#: Neutral element of the right operand.
_NEUTRAL = {
    "relax.add": 0.0,
    "relax.subtract": 0.0,
    "relax.multiply": 1.0,
    "relax.divide": 1.0,
    "relax.power": 1.0,
}
_COMMUTATIVE = ("relax.add", "relax.multiply")
#: Operators that only give the same elements, in the same order, another shape.
_RESHAPES = ("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims")
_POOLS = ("relax.nn.max_pool2d", "relax.nn.avg_pool2d")


@relax.transform.function_pass(opt_level=0, name="EliminateIdentities")
class EliminateIdentities:
    """Remove no-ops; afterwards ``reshape`` is the only operator that merely changes a shape."""

    def transform_function(
        self, func: relax.Function, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Return ``func`` without operators that do nothing."""
        return rewrite_function(func, _eliminate_identity)


def _eliminate_identity(expr: Expr, rewrite: Rewrite) -> Expr | None:
    if isinstance(expr, relax.TupleGetItem):
        return _tuple_identity(expr, rewrite)
    name = op_name(expr)
    if name in _NEUTRAL:
        return _neutral_operand(expr)
    if name in _RESHAPES:
        return _reshape(expr, rewrite)
    if name == "relax.permute_dims":
        return _permute_dims(expr, rewrite)
    if name == "relax.concat":
        inputs = rewrite.definition(expr.args[0])
        single = isinstance(inputs, relax.Tuple) and len(inputs.fields) == 1
        return inputs.fields[0] if single else None
    return expr.args[0] if _returns_input(expr) else None


def _tuple_identity(expr: relax.TupleGetItem, rewrite: Rewrite) -> Expr | None:
    """Dropout's data and a field of a tuple literal."""
    value = rewrite.definition(expr.tuple_value)
    if isinstance(value, relax.Tuple):
        return value.fields[expr.index]
    if is_op(value, "relax.nn.dropout") and expr.index == 0:
        return value.args[0]
    return None


def _neutral_operand(call: Call) -> Expr | None:
    """``x + 0``, ``x - 0``, ``x * 1``, ``x / 1`` and ``x ** 1``."""
    sides = [(call.args[0], call.args[1])]
    if call.op.name in _COMMUTATIVE:
        sides.append((call.args[1], call.args[0]))
    for data, operand in sides:
        value = constant_value(operand)
        if value is not None and _same_type(data, call) and np.all(value == _NEUTRAL[call.op.name]):
            return data
    return None


def _same_type(data: Expr, call: Call) -> bool:
    shape = static_shape(call)
    if shape is None or static_shape(data) != shape:
        return False
    return dtype_of(data) == dtype_of(call)


def _reshape(call: Call, rewrite: Rewrite) -> Expr | None:
    """Drop a reshape to the same shape, reshape once where the model does it twice."""
    data, shape = call.args[0], static_shape(call)
    if shape is None:
        return None
    if static_shape(data) == shape:
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.reshape"):
        return relax.op.reshape(inner.args[0], shape)
    return None if is_op(call, "relax.reshape") else relax.op.reshape(data, shape)


def _permutation(call: Call) -> tuple[int, ...] | None:
    shape = static_shape(call)
    if shape is None:
        return None
    axes = call.attrs.axes
    if axes is None:
        return tuple(reversed(range(len(shape))))
    return tuple(int(axis) % len(shape) for axis in axes)


def _permute_dims(call: Call, rewrite: Rewrite) -> Expr | None:
    """Compose two transposes; one that moves no element in memory is a reshape."""
    axes = _permutation(call)
    if axes is None:
        return None
    data = call.args[0]
    if axes == tuple(range(len(axes))):
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.permute_dims"):
        inner_axes = _permutation(inner)
        if inner_axes is not None:
            return relax.op.permute_dims(inner.args[0], [inner_axes[axis] for axis in axes])
    shape = static_shape(data)
    if shape is not None:
        moved = [axis for axis in axes if shape[axis] != 1]
        if moved == sorted(moved):
            return relax.op.reshape(data, [shape[axis] for axis in axes])
    return None


def _returns_input(call: Expr) -> bool:
    """Whether a one-input operator returns its input unchanged."""
    name = op_name(call)
    if name in ("relax.broadcast_to", "relax.astype", "relax.split"):
        return _same_type(call.args[0], call)
    if name == "relax.clip":
        low, high = (float(bound.value) for bound in call.args[1:])
        return (low, high) == (-math.inf, math.inf)
    if name == "relax.strided_slice":
        return _same_type(call.args[0], call) and _only_forward(call)
    if name == "relax.nn.pad":
        return not any(int(width) for width in call.attrs.pad_width)
    if name in _POOLS:
        sizes = (*call.attrs.pool_size, *call.attrs.strides)
        unpadded = not any(int(width) for width in call.attrs.padding)
        return unpadded and all(int(size) == 1 for size in sizes)
    return False


def _only_forward(call: Call) -> bool:
    """Whether no axis is sliced backwards, so that an unchanged shape means unchanged data."""
    if len(call.args) < 5:
        return True
    strides = call.args[4]
    return isinstance(strides, relax.Tuple) and all(
        isinstance(stride, tvm.tirx.IntImm) and stride.value > 0 for stride in strides.fields
    )
