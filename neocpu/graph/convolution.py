"""A convolution of images with constant filters, in a form that rules can change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.ir.attributes import four_of, pair_of
from neocpu.ir.constants import Array, constant_value, make_const
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Convolution:
    """A convolution of float32 NCHW images with constant OIHW weights.

    `weights`, ``(O, C / groups, KH, KW)``, may have any floating type while rules compute with
    them. `padding` counts rows above, columns on the left, rows below, columns on the right.
    """

    data: Expr
    weights: Array
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
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
    assert value is not None
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
    constant = (
        constant_value(made.args[1]) if made is not None and is_op(made, "relax.add") else None
    )
    if made is None or constant is None:
        return None
    found = convolution_of(rewrite.sole_definition(made.args[0]))
    if found is None or static_shape(made) != found.shape:
        return None
    bias = channel_vector(constant, found.shape[1])
    return None if bias is None else Biased(found, bias)
