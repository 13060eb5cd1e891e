"""Integer arithmetic and conversions to integers, defined for every operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from tvm import relax, te, tirx

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.frontend.converters.node import (
    Node,
    call_kernel,
    const,
    constant_value,
    dtype_of,
    scalar,
    static_shape,
)
from neocpu.schedules.operators.integer_arithmetic import lower_integer_binary


def div(node: Node) -> relax.Expr:
    """Div; integers round towards zero, ``x / 0`` is 0, and the least integer by -1 is itself."""
    return _divided(node, "Div", "divide")


def mod(node: Node) -> relax.Expr:
    """Mod, with the sign of the divisor unless ``fmod`` is set; for integers, ``x % 0`` is 0."""
    fmod = int(node.attrs.get("fmod", 0))
    if fmod not in (0, 1):
        raise ValueError(f"its fmod {fmod} is neither 0 nor 1")
    floored = not fmod
    left, right = node.inputs[:2]
    if floored and not is_integer(left):
        # TVM computes it from a quotient rounded down, which is NaN for infinite divisors.
        rest = node.emit(relax.op.mod(left, right))
        signs = [node.emit(relax.op.sign(value)) for value in (rest, right)]
        product = node.emit(relax.op.multiply(*signs))
        differs = node.emit(relax.op.less(product, scalar(0.0, product)))
        return relax.op.where(differs, node.emit(relax.op.add(rest, right)), rest)
    return _divided(node, "Mod", "floored_remainder" if floored else "truncated_remainder")


def _divided(node: Node, op_type: str, operation: str) -> relax.Expr:
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
        node.emit(relax.op.reshape(operand, shape))
        for operand, shape in ((left, left_shape), (right, right_shape))
    ]
    types = [relax.TensorType((1,) * (rank - len(result)) + result, dtypes[0])]
    found = node.emit(call_kernel(node, operation, kernel, args, types))
    return node.emit(relax.op.reshape(found, result))


def bit_shift(node: Node) -> relax.Expr:
    """BitShift; a shift by all bits or more leaves 0, or the sign if it goes right."""
    data, amount = node.inputs[:2]
    if constant_value(data) is not None and constant_value(amount) is not None:
        return node.convert_by_tvm("BitShift", node.inputs)
    bits = np.iinfo(dtype_of(data)).bits
    some = node.emit(relax.op.minimum(amount, scalar(bits - 1, amount)))
    shifted = node.emit(node.convert_by_tvm("BitShift", [data, some]))
    if node.string("direction", "") == "RIGHT" and dtype_of(data).startswith("int"):
        return shifted
    inside = node.emit(relax.op.less(amount, scalar(bits, amount)))
    return relax.op.where(inside, shifted, scalar(0, data))


def bit_cast(node: Node) -> relax.Expr:
    """BitCast: the same bits as another type of the same width; a bool is a byte of 0 or 1."""
    data = node.inputs[0]
    source = dtype_of(data)
    target = onnx.helper.tensor_dtype_to_np_dtype(int(node.attrs["to"])).name
    if target not in DTYPES or bytes_of(target) != bytes_of(source):
        raise ValueError(f"{source} has other bits than {target}")
    if "bool" in (source, target):
        return relax.op.astype(data, target)

    def reinterpret(tensor: te.Tensor) -> te.Tensor:
        return te.compute(tensor.shape, lambda *at: tirx.reinterpret(target, tensor(*at)))

    return node.bb.emit_te(reinterpret, data)


def cast(node: Node) -> relax.Expr:
    """Cast; an integer made of NaN, or of a number too large to be converted, is 0.

    Too large is beyond int64, or beyond int32 for types of 8 and 16 bits. Other numbers wrap.
    """
    data, target = node.inputs[0], onnx.helper.tensor_dtype_to_np_dtype(int(node.attrs["to"]))
    if _is_converted(data, target):
        return _integers(node, data, np.dtype(target))
    return node.convert_by_tvm("Cast", node.inputs)


def cast_like(node: Node) -> relax.Expr:
    """CastLike; see `cast`."""
    data, like = node.inputs[:2]
    assert like is not None
    if isinstance(like.ty, relax.TensorType) and _is_converted(data, dtype_of(like)):
        return _integers(node, data, np.dtype(dtype_of(like)))
    return node.convert_by_tvm("CastLike", node.inputs)


def as_type(node: Node, value: relax.Expr, dtype: str) -> relax.Expr:
    """Return a tensor converted as `cast` does."""
    if dtype_of(value) == dtype:
        return value
    if _is_converted(value, dtype):
        return _integers(node, value, np.dtype(dtype))
    return node.emit(relax.op.astype(value, dtype))


def _is_converted(value: relax.Expr, target: npt.DTypeLike) -> bool:
    """Return whether a conversion is one from a tensor of floats to integers."""
    is_tensor = isinstance(value.ty, relax.TensorType)
    return is_tensor and dtype_of(value).startswith("float") and np.dtype(target).kind in "iu"


def _integers(node: Node, value: relax.Expr, target: np.dtype[Any]) -> relax.Expr:
    """Convert floats through int32 or int64, whichever is the narrowest that is wide enough."""
    bits = 32 if target.itemsize <= 2 else 64
    wide, limit = np.dtype(f"int{bits}"), 2.0 ** (bits - 1)
    constant = constant_value(value)
    if constant is not None:
        return const(np.where(np.abs(constant) < limit, constant, 0).astype(wide).astype(target))
    inside = node.emit(relax.op.less(node.emit(relax.op.abs(value)), scalar(limit, value)))
    clean = node.emit(relax.op.where(inside, value, scalar(0.0, value)))
    integers = node.emit(relax.op.astype(clean, str(wide)))
    return integers if target == wide else node.emit(relax.op.astype(integers, str(target)))


def is_integer(operand: relax.Expr) -> bool:
    """Return whether an expression is a tensor of integers, not a shape."""
    if not isinstance(operand.ty, relax.TensorType):
        return False
    return bool(np.issubdtype(np.dtype(dtype_of(operand)), np.integer))
