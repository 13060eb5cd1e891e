"""Integer arithmetic and conversions to integers, defined for every operand; and quantisation.

Quantisation and its inverse are one Relax operator each if scales and zeros are constants.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from tvm import relax, te, tirx

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.frontend.converters.convert_conv import conv
from neocpu.frontend.converters.node import (
    Converters,
    Node,
    const,
    constant_value,
    dtype_of,
    positive_axis,
    scalar,
    static_shape,
)
from neocpu.schedules.operators.integer_arithmetic import lower_integer_binary
from neocpu.schedules.operators.quantised.quantise import lower_dynamic_quantise


def _mod(node: Node) -> relax.Expr:
    """Mod, with the sign of the divisor unless ``fmod`` is set; for integers, ``x % 0`` is 0."""
    fmod = int(node.attrs.get("fmod", 0))
    if fmod not in (0, 1):
        raise ValueError(f"its fmod {fmod} is neither 0 nor 1")
    floored = not fmod
    left, right = node.inputs[:2]
    if floored and not is_integer(left):
        # TVM computes it from a quotient rounded down, which is NaN for infinite divisors.
        rest = node.op.mod(left, right)
        signs = [node.op.sign(value) for value in (rest, right)]
        product = node.op.multiply(*signs)
        differs = node.op.less(product, scalar(0.0, product))
        return relax.op.where(differs, node.op.add(rest, right), rest)
    operation = "floored_remainder" if floored else "truncated_remainder"
    return _divided(node, op_type="Mod", operation=operation)


def _divided(node: Node, *, op_type: str, operation: str) -> relax.Expr:
    left, right = node.inputs[:2]
    if not (is_integer(left) and is_integer(right)):
        return node.convert_by_tvm(op_type, node.inputs)
    divisors = constant_value(right)
    if divisors is not None and (divisors == 0).any():
        raise ValueError("it divides by a constant 0")
    if divisors is not None and (divisors != np.array(-1).astype(divisors.dtype)).all():
        return node.convert_by_tvm(op_type, node.inputs)  # no dividend traps
    return integer_binary(node, operation, left, right)


def integer_binary(node: Node, operation: str, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Return an operation of two integer tensors, broadcast, in the type of the left one."""
    shapes = [static_shape(operand) for operand in (left, right)]
    result = np.broadcast_shapes(*shapes)
    rank = max(1, len(result))
    left_shape, right_shape = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    dtypes = dtype_of(left), dtype_of(right)
    kernel = lower_integer_binary(operation, left_shape, right_shape, dtypes)
    args = [
        node.op.reshape(operand, shape)
        for operand, shape in ((left, left_shape), (right, right_shape))
    ]
    results = [((1,) * (rank - len(result)) + result, dtypes[0])]
    found = node.call(operation, kernel, args, results)
    return node.op.reshape(found, result)


def _bit_shift(node: Node) -> relax.Expr:
    """BitShift; a shift by all bits or more gives 0, or -1 for negative numbers shifted right."""
    data, amount = node.inputs[:2]
    if constant_value(data) is not None and constant_value(amount) is not None:
        return node.convert_by_tvm("BitShift", node.inputs)
    bits = np.iinfo(dtype_of(data)).bits
    some = node.op.minimum(amount, scalar(bits - 1, amount))
    shifted = node.emit(node.convert_by_tvm("BitShift", [data, some]))
    if node.string("direction", "") == "RIGHT" and dtype_of(data).startswith("int"):
        return shifted
    inside = node.op.less(amount, scalar(bits, amount))
    return relax.op.where(inside, shifted, scalar(0, data))


def _bit_cast(node: Node) -> relax.Expr:
    """BitCast: the same bits as another type of the same width; a bool is a byte of 0 or 1."""
    data = node.data
    source = dtype_of(data)
    target = onnx.helper.tensor_dtype_to_np_dtype(int(node.attrs["to"])).name
    if target not in DTYPES or bytes_of(target) != bytes_of(source):
        raise ValueError(f"{source} has other bits than {target}")
    if "bool" in (source, target):
        return relax.op.astype(data, target)

    def reinterpret(tensor: te.Tensor) -> te.Tensor:
        return te.compute(tensor.shape, lambda *at: tirx.reinterpret(target, tensor(*at)))

    return node.bb.emit_te(reinterpret, data)


def _cast(node: Node) -> relax.Expr:
    """Cast; an integer made of NaN, or of a number too large to be converted, is 0.

    Too large is beyond int64, or beyond int32 for types of 8 and 16 bits. Other numbers wrap.
    """
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(int(node.attrs["to"])))
    if _is_converted(node.data, dtype):
        return _integers(node, node.data, dtype)
    return node.convert_by_tvm("Cast", node.inputs)


def _cast_like(node: Node) -> relax.Expr:
    data, like = node.inputs[:2]
    if isinstance(like.ty, relax.TensorType) and _is_converted(data, dtype_of(like)):
        return _integers(node, data, np.dtype(dtype_of(like)))
    return node.convert_by_tvm("CastLike", node.inputs)


def as_type(node: Node, value: relax.Expr, dtype: str) -> relax.Expr:
    """Return a tensor converted as Cast does."""
    if dtype_of(value) == dtype:
        return value
    if _is_converted(value, dtype):
        return _integers(node, value, np.dtype(dtype))
    return node.op.astype(value, dtype)


def _is_converted(value: relax.Expr, target: npt.DTypeLike) -> bool:
    is_tensor = isinstance(value.ty, relax.TensorType)
    return is_tensor and dtype_of(value).startswith("float") and np.dtype(target).kind in "iu"


def _integers(node: Node, value: relax.Expr, target: np.dtype[Any]) -> relax.Expr:
    """Convert floats through int32 or int64, whichever is the narrowest that is wide enough."""
    bits = 32 if target.itemsize <= 2 else 64
    wide, limit = np.dtype(f"int{bits}"), 2.0 ** (bits - 1)
    constant = constant_value(value)
    if constant is not None:
        return const(np.where(np.abs(constant) < limit, constant, 0).astype(wide).astype(target))
    inside = node.op.less(node.op.abs(value), scalar(limit, value))
    clean = node.op.where(inside, value, scalar(0.0, value))
    integers = node.op.astype(clean, str(wide))
    return integers if target == wide else node.op.astype(integers, str(target))


def is_integer(operand: relax.Expr) -> bool:
    """Return whether an expression is a tensor of integers, not a shape."""
    if not isinstance(operand.ty, relax.TensorType):
        return False
    return bool(np.issubdtype(np.dtype(dtype_of(operand)), np.integer))


_EIGHT_BITS: Final = ("int8", "uint8")
_KINDS: Final = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16"}
"""The names of the types that `quantize_linear` makes, by ONNX's codes."""


def _quantize_linear(node: Node) -> relax.Expr:
    """QuantizeLinear: ``saturate(round(x / scale) + zero)``, halves to even."""
    data, scale, zero = node.data, node.inputs[1], node.optional(2)
    number = int(node.attrs.get("output_dtype", 0))
    named = _KINDS.get(number, f"numbers of ONNX's type {number}") if number else "uint8"
    dtype = named if zero is None else dtype_of(zero)
    if dtype not in _KINDS.values():
        raise ValueError(f"it quantises to {dtype}; int8, uint8, int16 and uint16 are supported")
    axis, rank = _axis(node, scale, zero), len(node.shape())
    single = data if dtype_of(data) == "float32" else relax.op.astype(data, "float32")
    scale_value = constant_value(scale)
    zero_value = np.zeros((), dtype) if zero is None else constant_value(zero)
    if dtype in _EIGHT_BITS and scale_value is not None and zero_value is not None:
        scales, zeros = _same_shape(scale_value.astype(np.float32), zero_value)
        return relax.op.quantize(node.emit(single), const(scales), const(zeros), axis, dtype)
    limits = np.iinfo(dtype)
    scaled = relax.op.round(relax.op.divide(single, _spread(node, scale, axis, rank)))
    moved = relax.op.add(node.emit(scaled), _spread(node, zero, axis, rank))
    clipped = relax.op.clip(node.emit(moved), float(limits.min), float(limits.max))
    return relax.op.astype(node.emit(clipped), dtype)


def _dequantize_linear(node: Node) -> relax.Expr:
    data, scale, zero = node.data, node.inputs[1], node.optional(2)
    if int(node.attrs.get("block_size", 0)):
        raise ValueError("it has a scale for each block: use one scale, or one per channel")
    axis, rank = _axis(node, scale, zero), len(node.shape())
    scale_value, dtype = constant_value(scale), dtype_of(data)
    zero_value = np.zeros((), dtype) if zero is None else constant_value(zero)
    result = dtype_of(scale)
    is_short = dtype in _EIGHT_BITS and result == "float32"
    if is_short and scale_value is not None and zero_value is not None:
        scales, zeros = _same_shape(scale_value, zero_value)
        return relax.op.dequantize(data, const(scales), const(zeros), axis, "float32")
    # Differences of 8 and 16 bits are exact in float32; int32 has no zero point.
    moved = relax.op.astype(data, "float32")
    if zero is not None and (zero_value is None or zero_value.any()):
        moved = relax.op.subtract(node.emit(moved), _spread(node, zero, axis, rank))
    scaled = relax.op.multiply(node.emit(moved), _spread(node, scale, axis, rank))
    scaled = node.emit(scaled)
    return scaled if result == "float32" else relax.op.astype(scaled, result)


def _dynamic_quantize_linear(node: Node) -> relax.Expr:
    """DynamicQuantizeLinear: uint8 numbers, and their scale and zero point by the data's range."""
    data, shape = node.data, node.shape()
    results = [(shape, "uint8"), ((1,), "float32"), ((1,), "uint8")]
    kernel = lower_dynamic_quantise(shape)
    found = node.bind(node.call("dynamic_quantise", kernel, [data], results))
    scale, zero = (node.op.reshape(relax.TupleGetItem(found, i), ()) for i in (1, 2))
    return relax.Tuple([node.emit(relax.TupleGetItem(found, 0)), scale, zero])


def _conv_integer(node: Node) -> relax.Expr:
    """ConvInteger: int32 sums of products, after subtraction of the zero points."""
    centred = []
    for place, axis in ((0, 1), (1, 0)):
        zero, value = node.optional(place + 2), relax.op.astype(node.inputs[place], "int32")
        if zero is not None:
            spread = _spread(node, zero, axis, len(node.shape(place)), "int32")
            value = relax.op.subtract(node.emit(value), spread)
        centred.append(node.bind(value))
    spatial = len(node.shape()) - 2
    if spatial != 2:
        raise ValueError(f"its data have {spatial} spatial dimensions; 2 are supported")
    if node.string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise ValueError("auto_pad is not supported")
    return conv(replace(node, inputs=centred))


def _axis(node: Node, *numbers: relax.Expr) -> int:
    """Return the axis of ``numbers``, which are scales and zero points; 0 if they are scalars.

    An axis that scalars do not need would make equal calls differ.
    """
    shape = node.shape()
    several = {math.prod(static_shape(each)) for each in numbers if each is not None} - {1}
    if not several:
        return 0
    axis = positive_axis(int(node.attrs.get("axis", 1)), len(shape))
    if several != {shape[axis]}:
        raise ValueError(
            f"it has {max(several)} scales or zero points along axis {axis}, which has "
            f"{shape[axis]} elements"
        )
    return axis


def _same_shape(scale: np.ndarray[Any, Any], zero: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Return both as scalars, or as vectors of the same length."""
    if scale.size == zero.size == 1:
        return scale.reshape(()), zero.reshape(())
    length = max(scale.size, zero.size)
    first, second = (np.broadcast_to(each.reshape(-1), (length,)) for each in (scale, zero))
    return first, second


def _spread(
    node: Node, value: relax.Expr, axis: int, rank: int, dtype: str = "float32"
) -> relax.Expr:
    if value is None:
        return relax.const(0, dtype)
    size = math.prod(static_shape(value))
    wanted = [1] * rank
    if size > 1:
        wanted[axis] = size
    shaped = relax.op.reshape(value, wanted if rank else [])
    return node.op.astype(node.emit(shaped), dtype)


CONVERTERS: Converters = {
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize_linear,
    # Integers round towards zero, x / 0 is 0, and the least integer by -1 is itself.
    "Div": partial(_divided, op_type="Div", operation="divide"),
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "Mod": _mod,
    "QuantizeLinear": _quantize_linear,
}
