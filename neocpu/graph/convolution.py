"""Convolutions with constant filters in a form that rules can change, and their channels' order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.ir.constants import Array, constant_value, make_const
from neocpu.ir.elementwise import HARD_SWISH, MISH
from neocpu.ir.expressions import (
    ACTIVATIONS,
    Expr,
    dtype_of,
    four_of,
    is_op,
    op_name,
    pair_of,
    static_shape,
)
from neocpu.ir.rewriting import Rewrite


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Convolution:
    """A convolution of float32 NCHW images with constant OIHW weights."""

    data: Expr
    weights: Array  # (O, C / groups, KH, KW), of any floating type while rules compute
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # rows above, columns left, rows below, right
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def kernel(self) -> tuple[int, int]:
        return int(self.weights.shape[2]), int(self.weights.shape[3])

    @property
    def is_pointwise(self) -> bool:
        """Whether it mixes the channels of a pixel, and does nothing else."""
        return self.kernel == (1, 1) and not any(self.padding) and self.groups == 1

    @property
    def mixes_pixels(self) -> bool:
        """Whether it is pointwise and leaves every pixel in its place."""
        return self.is_pointwise and self.strides == (1, 1)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, _, *extents = static_shape(self.data) or ()
        pads = (self.padding[0] + self.padding[2], self.padding[1] + self.padding[3])
        height, width = (
            (extent + pad - (size - 1) * spread - 1) // stride + 1
            for extent, pad, size, spread, stride in zip(
                extents, pads, self.kernel, self.dilation, self.strides, strict=True
            )
        )
        return batch, int(self.weights.shape[0]), height, width

    @property
    def products(self) -> int:
        _, _, height, width = self.shape
        return self.shape[0] * height * width * int(self.weights.size)

    def call(self) -> Call:
        """Return the Relax call, with weights rounded to float32."""
        return relax.op.nn.conv2d(
            self.data,
            make_const(self.weights.astype(np.float32)),
            strides=self.strides,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


def convolution_of(value: Expr | None) -> Convolution | None:
    """Return ``value`` as a convolution; None if it is no such convolution."""
    if not is_op(value, "relax.nn.conv2d"):
        return None
    weights, attrs = constant_value(value.args[1]), value.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if weights is None or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    if dtype_of(value) != "float32" or weights.dtype != np.float32:
        return None
    found = Convolution(
        data=value.args[0],
        weights=weights,
        strides=pair_of(attrs.strides),
        padding=four_of(attrs.padding),
        dilation=pair_of(attrs.dilation),
        groups=int(attrs.groups),
    )
    return found if found.shape == static_shape(value) else None


def channel_vector(constant: Array, channels: int) -> Array | None:
    """Return a constant that is broadcast to feature maps as ``(C,)``; None if it varies more."""
    if constant.size == 1:
        return np.broadcast_to(constant.reshape(1), (channels,))
    rank = constant.ndim
    if rank < 3 or constant.shape[rank - 3 :] != (channels, 1, 1) or constant.size != channels:
        return None
    return constant.reshape(channels)


@dataclass(frozen=True, slots=True, eq=False)
class Biased:
    """A convolution and the bias of its channels, ``(O,)``, if it has one."""

    convolution: Convolution
    bias: Array | None

    def emit(self, rewrite: Rewrite) -> Expr:
        """Return the expression of its result; all but its last step is bound."""
        call = self.convolution.call()
        if self.bias is None:
            return call
        return relax.op.add(rewrite.emit(call), channel_constant(self.bias))


def channel_constant(vector: Array) -> Expr:
    """Return ``(C,)`` as a float32 constant that is broadcast to feature maps."""
    return make_const(vector.astype(np.float32).reshape(1, -1, 1, 1))


def biased_convolution(value: Expr, rewrite: Rewrite) -> Biased | None:
    """Return the convolution that ``value`` is bound to, if nothing else reads it."""
    made = rewrite.sole_definition(value)
    found = convolution_of(made)
    if found is not None:
        return Biased(found, None)
    constant = constant_value(made.args[1]) if is_op(made, "relax.add") else None
    if made is None or constant is None:
        return None
    found = convolution_of(rewrite.sole_definition(made.args[0]))
    if found is None or static_shape(made) != found.shape:
        return None
    bias = channel_vector(constant, found.shape[1])
    return None if bias is None else Biased(found, bias)


_POOLS = ("relax.nn.max_pool2d", "relax.nn.avg_pool2d")
_UNARY: Final = frozenset((*ACTIVATIONS, *_POOLS, HARD_SWISH, MISH))


def is_dense_conv(value: Expr, known: Mapping[Var, Expr]) -> bool:
    """Return whether a value is a convolution in NCHW with constant weights and without groups."""
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
    call: Call, known: Mapping[Var, Expr], before: Sequence[int] | None, after: Sequence[int] | None
) -> Call:
    """Return a convolution, or an operator on each channel alone, with reordered constants.

    `before` and `after` have the old channel at each new position, in the data and in the result;
    None if the order stays. For operators on each channel alone, ``before`` is the order of both.
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
