"""The Relax operators that constant folding can evaluate, each as a numpy function.

A function takes the call's attributes and its arguments: tensors as read-only arrays, shapes and
tuples as tuples, scalars as Python numbers. It returns an array, or a sequence of arrays where the
operator returns a tuple.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from neocpu.ir.constants import Array
from neocpu.runtime.aligned_memory import aligned_empty

NumpyOp: TypeAlias = Callable[..., Any]

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
