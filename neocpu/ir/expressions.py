"""Relax expressions: the operator that one calls, its shape, its type and its attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard

import tvm
from tvm import relax
from tvm.ir import Call, Op, Var

#: TVM is untyped; the name says what is meant.
Expr: TypeAlias = Any

#: Activations of single numbers.
ACTIVATIONS = (
    "relax.clip",
    "relax.nn.gelu",
    "relax.nn.gelu_tanh",
    "relax.nn.leakyrelu",
    "relax.nn.relu",
    "relax.nn.silu",
    "relax.sigmoid",
    "relax.tanh",
)

#: Operators whose results are the values of their first operand, in another shape or order.
SHAPING = (
    "relax.expand_dims",
    "relax.flatten",
    "relax.permute_dims",
    "relax.reshape",
    "relax.squeeze",
)

#: TVM's ``OpPatternKind::kOpaque``: FuseOps leaves a function of this ``op_pattern`` alone.
OPAQUE = 8


def is_op(expr: Expr | None, *names: str) -> TypeGuard[Expr]:
    """Whether ``expr`` is a call of one of the named operators, such as ``relax.nn.conv2d``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in names


def op_name(expr: Expr) -> str | None:
    """Return the operator's name if ``expr`` calls a TVM operator, else ``None``."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else None


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """Return a tensor expression's shape, or ``None`` if it is no tensor or not static."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return None
    return shape_values(ty.shape)


def known_shape(expr: Expr) -> tuple[int, ...]:
    """Return the shape of a tensor that is known to be static."""
    shape = static_shape(expr)
    assert shape is not None, expr
    return shape


def shape_values(expr: Expr) -> tuple[int, ...] | None:
    """Return the integers of a static ``ShapeExpr``, or ``None``."""
    return _shape_values(expr) if isinstance(expr, relax.ShapeExpr) else None


@lru_cache(maxsize=1 << 16)  # TVM takes microseconds for each of very many calls
def _shape_values(expr: relax.ShapeExpr) -> tuple[int, ...] | None:
    values = tuple(expr.values)
    if not all(isinstance(value, tvm.tirx.IntImm) for value in values):
        return None
    return tuple(int(value) for value in values)


def dtype_of(expr: Expr) -> str:
    """Return a tensor expression's dtype as a string, such as ``float32``."""
    return str(expr.ty.dtype.dtype)


def has_type_of(data: Expr, call: Expr) -> bool:
    """Whether two tensor expressions have the same element type and the same static shape."""
    shape = static_shape(call)
    return shape is not None and static_shape(data) == shape and dtype_of(data) == dtype_of(call)


def is_tensor(expr: Expr) -> bool:
    """Whether an expression is one tensor: no tuple, shape or number."""
    return isinstance(expr.ty, relax.TensorType)


def feature_map_shape(expr: Expr) -> tuple[int, int, int, int] | None:
    """Return the NCHW shape of a float32 rank-4 tensor expression, else None."""
    if not isinstance(expr.ty, relax.TensorType) or dtype_of(expr) != "float32":
        return None
    shape = static_shape(expr)
    if shape is None or len(shape) != 4:
        return None
    n, c, h, w = shape
    return n, c, h, w


def is_nearest(value: Expr) -> bool:
    """Whether ``value`` resizes by copying the nearest pixels."""
    return is_op(value, "relax.image.resize2d") and str(value.attrs.method) == "nearest_neighbor"


def integers_of(values: Any) -> list[int]:
    return [int(value) for value in values]


def pair_of(values: Any) -> tuple[int, int]:
    first, second = (int(v) for v in values)
    return first, second


def four_of(values: Any) -> tuple[int, int, int, int]:
    """Return padding as four numbers, repeating one number or two."""
    numbers = [int(v) for v in values]
    top, left, bottom, right = numbers if len(numbers) == 4 else (numbers * 4)[:4]
    return top, left, bottom, right


def permutation_of(call: Call) -> tuple[int, ...]:
    """Return the axes of a ``permute_dims``, none below zero."""
    rank, axes = int(call.ty.ndim), call.attrs.axes
    if axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in axes)


def reduced_axes(call: Call) -> list[int] | None:
    """Return a reduction's axes, rising and none below zero; None, for all, if it names none."""
    shape, axes = static_shape(call.args[0]), call.attrs.axis
    if shape is None or axes is None:
        return None
    return sorted(int(axis) % len(shape) for axis in axes)


def channel_slice(call: Call) -> tuple[int, int] | None:
    """Return the first channel of a slice of consecutive channels, and the one after its last."""
    source, shape = static_shape(call.args[0]), static_shape(call)
    if not isinstance(call.args[0], Var) or source is None or shape is None or len(source) != 4:
        return None
    if len(call.args) > 4 and any(int(step.value) != 1 for step in call.args[4].fields):
        return None
    if [int(axis.value) for axis in call.args[1].fields] != [1]:
        return None
    first = int(call.args[2].fields[0].value)
    first = max(first + source[1], 0) if first < 0 else first
    return first, first + shape[1]


Inferred = Callable[[Call, relax.BlockBuilder], relax.Type]
Legalised = Callable[[relax.BlockBuilder, Call], Expr]


def register_operator(name: str, inferred: Inferred, legalised: Legalised | None = None) -> None:
    """Make ``name`` an operator of Relax without side effects.

    `inferred` returns the type of a call's result; `legalised` the expression that computes it,
    which is not needed if planning has a kernel for every call.
    """
    tvm.ir.register_op_attr(name, "FInferType", inferred)
    tvm.ir.register_op_attr(name, "FPurity", True)
    if legalised is not None:
        tvm.ir.register_op_attr(name, "FLegalize", legalised)
