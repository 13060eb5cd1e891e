"""Quantisation and its inverse, as one Relax operator each if scales and zeros are constants."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import dtype_of, static_shape
from neocpu.schedules.operators.quantised.quantise import lower_dynamic_quantise

_EIGHT_BITS: Final = ("int8", "uint8")
_KINDS: Final = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}
"""The names of the types that `quantize_linear` makes, by ONNX's codes."""


def quantize_linear(node: Node) -> relax.Expr:
    """QuantizeLinear: ``saturate(round(x / scale) + zero)``, halves to even."""
    data, scale, zero = node.inputs[0], node.inputs[1], node.optional(2)
    number = int(node.attrs.get("output_dtype", 0))
    named = _KINDS.get(number, f"numbers of ONNX's type {number}") if number else "uint8"
    dtype = named if zero is None else dtype_of(zero)
    if dtype not in _KINDS.values():
        raise ValueError(f"it quantises to {dtype}; int8, uint8, int16 and uint16 are supported")
    axis, rank = _axis(node, data, scale, zero), len(static_shape(data) or ())
    single = data if dtype_of(data) == "float32" else relax.op.astype(data, "float32")
    scale_value = constant_value(scale)
    zero_value = np.zeros((), dtype) if zero is None else constant_value(zero)
    if dtype in _EIGHT_BITS and scale_value is not None and zero_value is not None:
        scales, zeros = _same_shape(scale_value.astype(np.float32), zero_value)
        return relax.op.quantize(
            node.bb.normalize(single), make_const(scales), make_const(zeros), axis, dtype
        )
    limits = np.iinfo(dtype)
    scaled = relax.op.round(relax.op.divide(single, _spread(node, scale, axis, rank)))
    moved = relax.op.add(node.bb.normalize(scaled), _spread(node, zero, axis, rank))
    clipped = relax.op.clip(node.bb.normalize(moved), float(limits.min), float(limits.max))
    return relax.op.astype(node.bb.normalize(clipped), dtype)


def dequantize_linear(node: Node) -> relax.Expr:
    """DequantizeLinear: ``(x - zero) * scale``."""
    data, scale, zero = node.inputs[0], node.inputs[1], node.optional(2)
    if int(node.attrs.get("block_size", 0)):
        raise ValueError("it has a scale for each block")
    axis, rank = _axis(node, data, scale, zero), len(static_shape(data) or ())
    scale_value, dtype = constant_value(scale), dtype_of(data)
    zero_value = np.zeros((), dtype) if zero is None else constant_value(zero)
    result = dtype_of(scale)
    if (
        dtype in _EIGHT_BITS
        and result == "float32"
        and scale_value is not None
        and zero_value is not None
    ):
        scales, zeros = _same_shape(scale_value, zero_value)
        return relax.op.dequantize(data, make_const(scales), make_const(zeros), axis, "float32")
    # Differences of 8 and 16 bits are exact in float32; int32 has no zero point.
    moved = relax.op.astype(data, "float32")
    if zero is not None and not (zero_value is not None and not zero_value.any()):
        moved = relax.op.subtract(node.bb.normalize(moved), _spread(node, zero, axis, rank))
    scaled = relax.op.multiply(node.bb.normalize(moved), _spread(node, scale, axis, rank))
    scaled = node.bb.normalize(scaled)
    return scaled if result == "float32" else relax.op.astype(scaled, result)


def dynamic_quantize_linear(node: Node) -> relax.Expr:
    """DynamicQuantizeLinear: uint8 numbers, and their scale and zero point by the data's range."""
    data, shape = node.inputs[0], node.shape()
    types = [
        relax.TensorType(each, kind)
        for each, kind in ((shape, "uint8"), ((1,), "float32"), ((1,), "uint8"))
    ]
    kernel = lower_dynamic_quantise(shape)
    found = node.bind(call_kernel(node, "dynamic_quantise", kernel, [data], types))
    scale, zero = (node.emit(relax.op.reshape(relax.TupleGetItem(found, i), ())) for i in (1, 2))
    return relax.Tuple([node.emit(relax.TupleGetItem(found, 0)), scale, zero])


def conv_integer(node: Node) -> relax.Expr:
    """ConvInteger: int32 sums of products, after subtraction of the zero points."""
    centred = []
    for place, axis in ((0, 1), (1, 0)):
        data, zero = node.inputs[place], node.optional(place + 2)
        value = relax.op.astype(data, "int32")
        if zero is not None:
            rank = len(static_shape(data) or ())
            spread = _spread(node, zero, axis, rank, "int32")
            value = relax.op.subtract(node.bb.normalize(value), spread)
        centred.append(node.bb.emit(value))
    spatial = len(static_shape(centred[0]) or ()) - 2
    if spatial != 2:
        raise ValueError(f"its data have {spatial} spatial dimensions; 2 are supported")
    pads = [int(p) for p in node.attrs.get("pads", (0,) * 2 * spatial)]
    if node.attrs.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise ValueError("auto_pad is not supported")
    return relax.op.nn.conv2d(
        *centred,
        strides=[int(s) for s in node.attrs.get("strides", (1,) * spatial)],
        padding=pads,
        dilation=[int(d) for d in node.attrs.get("dilations", (1,) * spatial)],
        groups=int(node.attrs.get("group", 1)),
    )


def _axis(node: Node, data: relax.Expr, *numbers: relax.Expr | None) -> int:
    """Return the axis of ``numbers``, which are scales and zero points; 0 if they are scalars.

    An axis that scalars do not need would make equal calls differ.
    """
    shape = static_shape(data) or ()
    counts = {math.prod(static_shape(each) or ()) for each in numbers if each is not None}
    axis, several = int(node.attrs.get("axis", 1)), counts - {1}
    if not several:
        return 0
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"its axis {axis} is out of range for {len(shape)} dimensions")
    if several != {shape[axis]}:
        raise ValueError(
            f"it has {max(several)} scales or zero points along axis {axis}, which has "
            f"{shape[axis]} elements"
        )
    return axis % len(shape)


def _same_shape(scale: np.ndarray[Any, Any], zero: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Return both as scalars, or as vectors of the same length."""
    if scale.size == zero.size == 1:
        return scale.reshape(()), zero.reshape(())
    length = max(scale.size, zero.size)
    first, second = (np.broadcast_to(each.reshape(-1), (length,)) for each in (scale, zero))
    return first, second


def _spread(
    node: Node, value: relax.Expr | None, axis: int, rank: int, dtype: str = "float32"
) -> relax.Expr:
    """Return scales or zero points in a shape that broadcasts along ``axis``."""
    if value is None:
        return relax.const(0, dtype)
    shape = static_shape(value) or ()
    size = int(np.prod(shape, dtype=np.int64))
    wanted = [1] * rank
    if size > 1:
        wanted[axis] = size
    shaped = relax.op.reshape(value, wanted if rank else [])
    return node.bb.normalize(relax.op.astype(node.bb.normalize(shaped), dtype))
