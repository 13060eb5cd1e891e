"""Relax expressions: which operator one calls, its shape and its element type."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import tvm
from tvm import relax
from tvm.ir import Call, Op

#: TVM is untyped; the name says what is meant.
Expr: TypeAlias = Any

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


def is_op(expr: Expr, *names: str) -> bool:
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
