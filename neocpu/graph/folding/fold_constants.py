"""Operators whose arguments are all constants are evaluated with numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import Array, constant_value, make_const
from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    is_op,
    op_name,
    permutation_of,
    shape_values,
    static_shape,
)
from neocpu.ir.rewriting import Rewrite
from neocpu.runtime.aligned_memory import aligned_empty

NumpyOp: TypeAlias = Callable[..., Any]
"""A function of the call's attributes and its arguments: tensors as read-only arrays, shapes and
tuples as tuples, scalars as Python numbers. It returns an array, or a sequence of arrays where the
operator returns a tuple."""

#: Edge of the square blocks in which a matrix is transposed: 64 KiB of float32 stays in L2.
TRANSPOSE_BLOCK = 128


def _elementwise(function: NumpyOp) -> NumpyOp:
    return lambda attrs, *args: function(*args)


def _divide(attrs: Any, a: Array, b: Array) -> Array:
    """Divide; integers are truncated towards zero, as in C."""
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(a / b)
    floored = np.floor_divide(a, b)
    above = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(floored + above.astype(floored.dtype))


def _clip(attrs: Any, a: Array, low: float, high: float) -> Array:
    return np.asarray(np.minimum(np.maximum(a, low), high))


def _reduction(function: NumpyOp) -> NumpyOp:
    def reduce(attrs: Any, a: Array) -> Any:
        return function(a, axis=_axes(attrs.axis), keepdims=bool(attrs.keepdims))

    return reduce


def _axes(axis: Any) -> tuple[int, ...] | None:
    return None if axis is None else tuple(int(a) for a in axis)


def _permute_dims(attrs: Any, a: Array) -> Array:
    axes = _axes(attrs.axes)
    transposed = a.transpose(axes)
    if a.ndim != 2 or transposed.flags.c_contiguous:
        return transposed
    # A dense layer's weight can be 400 MB: a blocked copy is twice as fast as numpy's.
    out = aligned_empty(transposed.shape, a.dtype)
    for row in range(0, a.shape[0], TRANSPOSE_BLOCK):
        rows = slice(row, row + TRANSPOSE_BLOCK)
        for column in range(0, a.shape[1], TRANSPOSE_BLOCK):
            columns = slice(column, column + TRANSPOSE_BLOCK)
            out[columns, rows] = a[rows, columns].T
    return out


def _squeeze(attrs: Any, a: Array) -> Array:
    return np.squeeze(a, _axes(attrs.axis))


def _split(attrs: Any, a: Array) -> Sequence[Array]:
    where = attrs.indices_or_sections
    axis = int(attrs.axis)
    if isinstance(where, Sequence):
        return np.split(a, [int(index) for index in where], axis)
    # Relax's last section may be shorter than the others.
    size = math.ceil(a.shape[axis] / int(where))
    return np.split(a, range(size, a.shape[axis], size), axis)


def _strided_slice(
    attrs: Any,
    a: Array,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Array:
    index = [slice(None)] * a.ndim
    for axis, start, stop, step in zip(axes, begin, end, strides or (1,) * len(axes), strict=True):
        # A negative step that runs to the front ends before element 0, which -1 cannot say.
        past_front = step < 0 and stop < -a.shape[axis]
        index[axis] = slice(start, None if past_front else stop, step)
    return a[tuple(index)]


def _take(attrs: Any, a: Array, indices: Array) -> Array:
    axis = None if attrs.axis is None else int(attrs.axis)
    return np.take(a, np.asarray(indices), axis, mode="wrap")


def _full(attrs: Any, shape: tuple[int, ...], value: Array) -> Array:
    return np.full(shape, value)


def _arange(attrs: Any, start: float, stop: float, step: float) -> Array:
    return np.arange(start, stop, step)


def _cumsum(attrs: Any, a: Array) -> Array:
    total = np.cumsum(a, None if attrs.axis is None else int(attrs.axis))
    return np.asarray(total - a.reshape(total.shape) if attrs.exclusive else total)


_UNARY: Mapping[str, NumpyOp] = {
    "abs": np.abs,
    "bitwise_not": np.invert,
    "ceil": np.ceil,
    "cos": np.cos,
    "exp": np.exp,
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "logical_not": np.logical_not,
    "negative": np.negative,
    "nn.relu": lambda a: np.maximum(a, 0),
    "ones_like": np.ones_like,
    "round": np.round,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
    "zeros_like": np.zeros_like,
}

_BINARY: Mapping[str, NumpyOp] = {
    "add": np.add,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "equal": np.equal,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "matmul": np.matmul,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.fmod,
    "multiply": np.multiply,
    "not_equal": np.not_equal,
    "power": np.power,
    "subtract": np.subtract,
}

_REDUCTIONS: Mapping[str, NumpyOp] = {
    "max": np.max,
    "mean": np.mean,
    "min": np.min,
    "prod": np.prod,
    "std": np.std,
    "sum": np.sum,
    "variance": np.var,
}

_SHAPED: Mapping[str, NumpyOp] = {
    "arange": _arange,
    "astype": lambda attrs, a: a,  # the caller converts every result to the call's dtype
    "broadcast_to": lambda attrs, a, shape: np.broadcast_to(a, shape),
    "clip": _clip,
    "concat": lambda attrs, arrays: np.concatenate(arrays, int(attrs.axis or 0)),
    "cumsum": _cumsum,
    "divide": _divide,
    "expand_dims": lambda attrs, a: np.expand_dims(a, _axes(attrs.axis) or ()),
    "flatten": lambda attrs, a: a.reshape(-1),
    "flip": lambda attrs, a: np.flip(a, int(attrs.axis)),
    "full": _full,
    "ones": lambda attrs, shape: np.ones(shape),
    "permute_dims": _permute_dims,
    "repeat": lambda attrs, a: np.repeat(
        a, int(attrs.repeats), None if attrs.axis is None else int(attrs.axis)
    ),
    "reshape": lambda attrs, a, shape: a.reshape(shape),
    "split": _split,
    "squeeze": _squeeze,
    "stack": lambda attrs, arrays: np.stack(arrays, int(attrs.axis or 0)),
    "strided_slice": _strided_slice,
    "take": _take,
    "tile": lambda attrs, a: np.tile(a, [int(repeat) for repeat in attrs.repeats]),
    "where": _elementwise(np.where),
    "zeros": lambda attrs, shape: np.zeros(shape),
}

#: Operator name, such as ``relax.add``, to its numpy function.
NUMPY_OPS: Mapping[str, NumpyOp] = {
    **{f"relax.{name}": _elementwise(op) for name, op in {**_UNARY, **_BINARY}.items()},
    **{f"relax.{name}": _reduction(op) for name, op in _REDUCTIONS.items()},
    **{f"relax.{name}": op for name, op in _SHAPED.items()},
}


@local_rule(Kind.FOLDING, required=True)
def fold_constants(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Operators on constants become their value, arithmetic on shapes static shapes.

    ::

        multiply(2, 3)  ->  6

    TVM's own ``FoldConstant`` compiles each operator with LLVM, 10 to 23 s on ResNet-50; numpy
    takes milliseconds. An operator that is not in `NUMPY_OPS` is simply left for run time.
    """
    if isinstance(expr, relax.TupleGetItem):
        fields = rewrite.definition(expr.tuple_value)
        return fields.fields[expr.index] if isinstance(fields, relax.Tuple) else None
    name = op_name(expr)
    if name == "relax.shape_of":
        shape = static_shape(expr.args[0])
        return None if shape is None else relax.ShapeExpr(shape)
    if name == "relax.shape_to_tensor":
        shape = shape_values(rewrite.definition(expr.args[0]))
        return None if shape is None else make_const(np.array(shape, np.int64))
    if name == "relax.tensor_to_shape":
        value = constant_value(expr.args[0])
        return None if value is None else relax.ShapeExpr([int(extent) for extent in value])
    move = None if name is None else _MOVING.get(name)
    if move is not None and (moved := move(expr, rewrite.definition(expr.args[0]))) is not None:
        return moved
    return _evaluate(expr, rewrite) if name in NUMPY_OPS else None


def _permuted(call: Call, stored: Expr) -> Expr | None:
    values = constant_value(stored.args[0]) if is_op(stored, "relax.dequantize") else None
    if values is None:
        return None
    order = permutation_of(call)
    axis = order.index(int(stored.attrs.axis) % values.ndim)
    permuted = make_const(np.ascontiguousarray(values.transpose(order)))
    return relax.op.dequantize(permuted, *stored.args[1:], axis, str(stored.attrs.out_dtype))


def _expanded(call: Call, stored: Expr) -> Expr | None:
    """Return the dequantisation of weights with new axes, if ``stored`` is one of weights."""
    values = constant_value(stored.args[0]) if is_op(stored, "relax.dequantize") else None
    shape = static_shape(call)
    if values is None or shape is None:
        return None
    new = {int(axis) % len(shape) for axis in call.attrs.axis}
    old = [axis for axis in range(len(shape)) if axis not in new]
    axis = old[int(stored.attrs.axis) % values.ndim]
    expanded = make_const(values.reshape(shape))
    return relax.op.dequantize(expanded, *stored.args[1:], axis, str(stored.attrs.out_dtype))


_MOVING: Final[Mapping[str, Callable[[Call, Expr], Expr | None]]] = {
    "relax.expand_dims": _expanded,
    "relax.permute_dims": _permuted,
}
"""Operators that move the elements of quantised weights without changing them."""


def _evaluate(call: Call, rewrite: Rewrite) -> Expr | None:
    args = []
    for arg in call.args:
        value = _argument(rewrite.definition(arg))
        if value is None:
            return None
        args.append(value)
    # Overflow and 0/0 are the model's own: the operator would do the same at run time.
    with np.errstate(all="ignore"):
        result = NUMPY_OPS[call.op.name](call.attrs, *args)
    if isinstance(call.ty, relax.TupleType):
        return relax.Tuple([make_const(np.asarray(field)) for field in result])
    array = np.asarray(result).astype(dtype_of(call), copy=False)
    source = call.args[0] if call.args else None
    if isinstance(source, GenericConst) and _has_elements_of(array, source):
        # Only the shape changed: both constants share one buffer.
        return make_const(np.from_dlpack(source.value).reshape(array.shape))
    return make_const(array)


def _has_elements_of(array: Array, source: GenericConst) -> bool:
    value = constant_value(source)
    assert value is not None
    same_memory = value.ctypes.data == array.ctypes.data and value.nbytes == array.nbytes
    return same_memory and array.flags.c_contiguous


def _argument(arg: Expr) -> object | None:
    if isinstance(arg, GenericConst):
        return constant_value(arg)
    if isinstance(arg, relax.ShapeExpr):
        return shape_values(arg)
    if isinstance(arg, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return arg.value  # type: ignore[no-any-return]
    if isinstance(arg, relax.Tuple):
        fields = tuple(_argument(field) for field in arg.fields)
        return None if any(field is None for field in fields) else fields
    return None
