"""Batch normalisations become products and sums, which merge and vanish in weights before them."""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import TUPLE_ITEM, Kind, local_rule
from neocpu.ir.constants import Array, constant_value, make_const, vector_along, with_rank
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.frame_calls import CONVOLUTION
from neocpu.ir.rewriting import Rewrite
from neocpu.runtime.aligned_memory import aligned_empty


@local_rule(Kind.FOLDING, TUPLE_ITEM)
def fold_batch_norm(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Batch normalisation becomes a multiply and an add per channel.

    ::

        batch_norm(x, gamma, beta, mean, var)  ->  x * scale + shift

    ``y = (x - mean) / sqrt(var + eps) * gamma + beta`` is ``x * scale + shift`` with constants.
    After a convolution `fold_scale` then moves both into its weights and bias; before one
    (DenseNet's pre-activation) or after a concat they stay, and fuse with the activation that
    follows.
    """
    if not isinstance(expr, relax.TupleGetItem) or expr.index != 0:
        return None
    call = rewrite.definition(expr.tuple_value)
    if not is_op(call, "relax.nn.batch_norm") or call.attrs.training:
        return None
    return _scale_and_shift(call, rewrite)


def _scale_and_shift(call: Call, rewrite: Rewrite) -> Expr | None:
    data, *statistics = call.args
    shape = static_shape(data)
    values = [constant_value(arg) for arg in statistics]
    if shape is None or any(value is None for value in values):
        return None
    # In float64: a variance near zero makes the scale large, and its rounding error with it.
    gamma, beta, mean, variance = (np.asarray(value, np.float64) for value in values)
    attrs = call.attrs
    with np.errstate(all="ignore"):  # for a variance of zero or below, the model's are not finite
        scale = 1.0 / np.sqrt(variance + attrs.epsilon)
        if attrs.scale:
            scale = scale * gamma
        shift = -mean * scale
        if attrs.center:
            shift = shift + beta
        scale, shift = (each.astype(dtype_of(data)) for each in (scale, shift))
    axis = attrs.axis % len(shape)
    per_channel = tuple(extent if i == axis else 1 for i, extent in enumerate(shape))
    scaled = rewrite.emit(relax.op.multiply(data, make_const(scale.reshape(per_channel))))
    return relax.op.add(scaled, make_const(shift.reshape(per_channel)))


WEIGHTED: Final = (
    CONVOLUTION,
    "relax.matmul",
    "relax.nn.conv1d_transpose",
    "relax.nn.conv2d",
    "relax.nn.conv2d_transpose",
    "relax.nn.conv3d",
    "relax.nn.conv3d_transpose",
)
"""Operators with weights that can take a scale, if they are constant."""


@local_rule(Kind.FOLDING, "relax.multiply", "relax.add")
def fold_scale(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Multiplies and adds by constants merge, and vanish in the weights before them.

    Within a chain every multiply is moved before every add, neighbours of a kind are merged, and a
    multiply that reaches a convolution (or a dense layer) scales its weights instead: ``conv ->
    add(c1) -> multiply(c2) -> add(c3)`` becomes ``conv' -> add(c1 * c2 + c3)``. Only values with a
    single consumer are folded. Nothing moves across an activation. Where there is neither a
    convolution nor a multiply before it, ``(x + c) * s`` stays: of large x and c, the difference of
    ``x * s`` and ``c * s`` would be less exact.
    """
    if not is_op(expr, "relax.multiply", "relax.add"):
        return None
    operands = data_and_constant(expr)
    if operands is None:
        return None
    data, constant = operands
    producer = rewrite.sole_definition(data)
    if is_op(expr, "relax.multiply"):
        folded = _fold_multiply(producer, constant, rewrite)
    else:
        folded = _fold_add(producer, constant)
    return folded if folded is not None else _normalize_constant(expr, data, producer, constant)


def _fold_multiply(producer: Expr | None, scale: Array, rewrite: Rewrite) -> Expr | None:
    if is_op(producer, *WEIGHTED):
        return _scale_weights(producer, scale)
    operands = data_and_constant(producer)
    if operands is None:
        return None
    data, constant = operands
    merged = _merge(np.multiply, constant, scale)
    if merged is None:
        return None
    if is_op(producer, "relax.multiply"):
        return relax.op.multiply(data, make_const(merged))
    if not _takes_scale(rewrite.sole_definition(data)):
        return None
    return relax.op.add(
        rewrite.emit(relax.op.multiply(data, make_const(scale))), make_const(merged)
    )


def _takes_scale(value: Expr | None) -> bool:
    if is_op(value, *WEIGHTED):
        return constant_value(value.args[1]) is not None
    return is_op(value, "relax.multiply") and data_and_constant(value) is not None


def _fold_add(producer: Expr | None, shift: Array) -> Expr | None:
    operands = data_and_constant(producer) if is_op(producer, "relax.add") else None
    if operands is None:
        return None
    data, constant = operands
    merged = _merge(np.add, constant, shift)
    return None if merged is None else relax.op.add(data, make_const(merged))


def data_and_constant(expr: Expr | None) -> tuple[Expr, Array] | None:
    """Return the variable and the constant operand of a floating-point multiply or add. None if it
    has no constant operand, or if broadcasting that constant enlarges the result.
    """
    if not is_op(expr, "relax.multiply", "relax.add"):
        return None
    data, constant = expr.args[0], constant_value(expr.args[1])
    if constant is None:
        data, constant = expr.args[1], constant_value(expr.args[0])
    if constant is None or not np.issubdtype(constant.dtype, np.floating):
        return None
    if constant_value(data) is not None or static_shape(data) != static_shape(expr):
        return None
    return data, constant


def _merge(operation: np.ufunc, first: Array, second: Array) -> Array | None:
    """Combine two constants in float64; None if that overflows or makes an outer product."""
    shape = np.broadcast_shapes(first.shape, second.shape)
    if np.prod(shape) > max(first.size, second.size):
        return None
    merged = operation(first.astype(np.float64), second.astype(np.float64))
    try:
        with np.errstate(over="raise"):
            return np.asarray(merged, first.dtype)
    except FloatingPointError:
        return None  # the results may be finite if both operations are applied in turn


def _scale_weights(call: Call, scale: Array) -> Expr | None:
    data, weight = call.args[0], constant_value(call.args[1])
    channels = None if weight is None else per_channel(call, scale)
    if weight is None or channels is None:
        return None
    factor = _weight_factor(call, channels, weight.shape)
    if factor is None:
        return None
    scaled = aligned_empty(weight.shape, weight.dtype)
    try:
        with np.errstate(over="raise"):
            np.multiply(weight, factor.astype(weight.dtype), out=scaled)
    except FloatingPointError:
        return None
    return Call(call.op, [data, make_const(scaled)], call.attrs, call.ty_args, ret_ty=call.ty)


def _weight_factor(call: Call, channels: Array, shape: tuple[int, ...]) -> Array | None:
    """Spread ``channels`` ``(C,)`` or ``(1,)`` so that it broadcasts over a weight of ``shape``."""
    if is_op(call, "relax.matmul"):
        return channels
    layout, image = str(call.attrs.kernel_layout), [1] * (len(shape) - 2)
    if not call.op.name.endswith("_transpose"):
        return channels.reshape(-1, 1, *image) if layout.startswith("OI") else None
    if not layout.startswith("IO"):
        return None
    # (I, O / groups, ...): the group of an output channel is that of its input channels.
    groups, (inputs, outputs, *_) = call.attrs.groups, shape
    factor = np.broadcast_to(channels, (groups * outputs,)).reshape(groups, 1, outputs)
    return np.repeat(factor, inputs // groups, axis=1).reshape(inputs, outputs, *image)


def _channel_axis(call: Call, rank: int) -> int | None:
    """Return the axis of a weighted operator's output along which its weights can be scaled."""
    if is_op(call, "relax.matmul"):
        weight = static_shape(call.args[1])
        return rank - 1 if weight is not None and len(weight) == 2 else None
    layouts = str(call.attrs.data_layout), str(call.attrs.out_layout)
    return 1 if set(layouts) <= {"NCW", "NCHW", "NCDHW"} else None


def per_channel(call: Call, constant: Array) -> Array | None:
    """Return ``constant`` as one value per output channel ``(C,)``, or one in all ``(1,)``."""
    shape = static_shape(call)
    axis = None if shape is None else _channel_axis(call, len(shape))
    if shape is None or axis is None:
        return None
    return vector_along(constant, len(shape), axis)


def _normalize_constant(
    expr: Call, data: Expr, producer: Expr | None, constant: Array
) -> Expr | None:
    shape = static_shape(data)
    if shape is None:
        return None
    normal = constant
    bias = per_channel(producer, constant) if is_op(producer, *WEIGHTED) else None
    if bias is not None and is_op(expr, "relax.add"):
        if is_op(producer, "relax.matmul"):
            normal = np.broadcast_to(bias, shape[-1:])
        else:
            normal = np.broadcast_to(bias, shape[1:2]).reshape(1, -1, *[1] * (len(shape) - 2))
    elif constant.size == 1:
        normal = constant.reshape(())
    elif len(shape) == 4:
        normal = with_rank(constant, 4)
    if normal.shape == constant.shape:
        return None
    assert dtype_of(data) == str(normal.dtype)
    return Call(expr.op, [data, make_const(normal)], ret_ty=expr.ty)
