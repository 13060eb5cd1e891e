"""The order of channels: the operators that may change it, and their constants in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.ir.activations import HARD_SWISH, MISH
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import Expr, is_op, op_name, static_shape

_UNARY: Final = frozenset(
    f"relax.{name}"
    for name in (
        "nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "sigmoid", "tanh", "clip",
        "nn.max_pool2d", "nn.avg_pool2d",
    )
) | {HARD_SWISH, MISH}  # fmt: skip


def is_dense_conv(value: Expr, known: Mapping[Var, Expr]) -> bool:
    """Whether each output channel is made of all input channels, by constant weights."""
    return (
        is_op(value, "relax.nn.conv2d")
        and int(value.attrs.groups) == 1
        and _weights(value, known) is not None
        and (str(value.attrs.data_layout), str(value.attrs.kernel_layout)) == ("NCHW", "OIHW")
    )


def is_channelwise(value: Expr, known: Mapping[Var, Expr]) -> bool:
    """Whether each output channel is made of the same input channel, by constants."""
    if not isinstance(value, Call) or not value.args or not isinstance(value.args[0], Var):
        return False
    shape = static_shape(value)
    if shape is None or len(shape) != 4 or (static_shape(value.args[0]) or ())[:2] != shape[:2]:
        return False
    if is_op(value, "relax.nn.conv2d"):
        layouts = (str(value.attrs.data_layout), str(value.attrs.kernel_layout))
        depthwise = int(value.attrs.groups) == shape[1] and layouts == ("NCHW", "OIHW")
        return depthwise and _weights(value, known) is not None
    if is_op(value, "relax.quantize", "relax.dequantize"):
        numbers = [constant_value(arg) for arg in value.args[1:]]
        return all(number is not None and number.size == 1 for number in numbers)
    if is_op(value, "relax.add", "relax.multiply"):
        constant = constant_value(value.args[1])
        per_channel = constant is not None and constant.shape == (1, shape[1], 1, 1)
        return per_channel or (constant is not None and constant.shape in ((), (1, 1, 1, 1)))
    return op_name(value) in _UNARY


def reordered(
    call: Call,
    known: Mapping[Var, Expr],
    before: Sequence[int] | None,
    after: Sequence[int] | None,
) -> Call:
    """Return a convolution, or an operator on each channel alone, with reordered constants.

    `is_dense_conv` or `is_channelwise` holds for ``call``. `before` and `after` have the old
    channel at each new position, in the data and in the result; None if the order stays. For
    operators on each channel alone, ``before`` is the order of both.
    """
    if is_op(call, "relax.nn.conv2d"):
        weights = _weights(call, known)
        if not is_dense_conv(call, known):
            return _with_constant(call, _take(weights, before, 0))
        return _with_constant(call, _take(_take(weights, before, 1), after, 0))
    if is_op(call, "relax.add", "relax.multiply") and static_shape(call.args[1]):
        return _with_constant(call, _take(call.args[1], before, 1))
    return call


def _weights(call: Call, known: Mapping[Var, Expr]) -> Expr | None:
    """Return a convolution's weights if they are constants, or dequantised ones."""
    weights: Expr = known.get(call.args[1]) if isinstance(call.args[1], Var) else call.args[1]
    stored = weights.args[0] if is_op(weights, "relax.dequantize") else weights
    return weights if constant_value(stored) is not None else None


def _take(constant: Expr, order: Sequence[int] | None, axis: int) -> Expr:
    if isinstance(constant, Call):  # a dequantisation: scales are permuted with the integers
        stored, *numbers = constant.args
        along = int(constant.attrs.axis)
        if along == axis:
            numbers = [_take(each, order, 0) if each.ty.ndim else each for each in numbers]
        dtype = str(constant.attrs.out_dtype)
        return relax.op.dequantize(_take(stored, order, axis), *numbers, along, dtype)
    value = constant_value(constant)
    assert value is not None
    if order is None or list(order) == sorted(order) or value.shape[axis] == 1:
        return constant
    return make_const(np.take(value, order, axis))


def _with_constant(call: Call, constant: Expr) -> Call:
    return Call(call.op, [call.args[0], constant], call.attrs, call.ty_args, ret_ty=call.ty)
