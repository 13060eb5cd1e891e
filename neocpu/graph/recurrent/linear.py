"""Sums of products with weights, written with any splits, concatenations and sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from tvm.ir import Var

from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of, part_of
from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """``sum of row @ weights, plus bias``, for rows of several tensors.

    `terms` has weights ``(width, outputs)`` by the tensor whose rows they multiply.
    """

    terms: Mapping[Var, Array]
    bias: Array

    def columns(self, first: int, end: int) -> Linear:
        terms = {row: weights[:, first:end] for row, weights in self.terms.items()}
        return Linear(terms, self.bias[first:end])

    def plus(self, other: Linear) -> Linear | None:
        """Return the sum; None if both multiply rows of one tensor, or have other outputs."""
        if self.terms.keys() & other.terms.keys() or self.bias.shape != other.bias.shape:
            return None
        return Linear({**self.terms, **other.terms}, self.bias + other.bias)


_DEPTH: Final = 8
"""The most consecutive steps that are followed. Each may read the one before twice."""


def linear_of(tensor: Expr, known: Mapping[Var, Expr], depth: int = _DEPTH) -> Linear | None:
    """Return a float32 tensor as a sum of products with constant weights; None if it is none.

    None also if the sum is written in more than ``depth`` steps.

    The tensor's last axis has the outputs.
    """
    if depth == 0:
        return None
    value = bound(tensor, known)
    if constant_value(value) is not None:
        return _constant(value)
    if is_op(value, "relax.matmul"):
        return _product(value, known)
    if is_op(value, "relax.add"):
        one = linear_of(value.args[0], known, depth - 1)
        other = None if one is None else linear_of(value.args[1], known, depth - 1)
        return None if one is None or other is None else one.plus(other)
    if is_op(value, "relax.reshape"):
        same = last_extent(value) == last_extent(value.args[0])
        return linear_of(value.args[0], known, depth - 1) if same else None
    return _part(value, known, depth - 1)


def bound(tensor: Expr, known: Mapping[Var, Expr]) -> Any:
    """Return the value of a variable; any other tensor itself."""
    return known.get(tensor, tensor) if isinstance(tensor, Var) else tensor


def last_extent(tensor: Expr) -> int | None:
    shape = static_shape(tensor)
    return shape[-1] if shape else None


def row_of(tensor: Expr, known: Mapping[Var, Expr]) -> Expr:
    """Return a tensor before reshapes that keep its last axis."""
    value = bound(tensor, known)
    while is_op(value, "relax.reshape") and last_extent(value) == last_extent(value.args[0]):
        tensor = value.args[0]
        value = bound(tensor, known)
    return tensor


def _constant(value: Expr) -> Linear | None:
    array = constant_value(value)
    if array is None or not array.ndim or array.dtype != np.float32:
        return None
    rows = array.reshape(-1, array.shape[-1])
    return Linear({}, rows[0].astype(np.float64)) if (rows == rows[0]).all() else None


def _product(call: Any, known: Mapping[Var, Expr]) -> Linear | None:
    weights = constant_value(call.args[1])
    if weights is None or weights.ndim != 2 or dtype_of(call) != "float32":
        return None
    nothing = Linear({}, np.zeros(weights.shape[1]))
    row = row_of(call.args[0], known)
    value = bound(row, known)
    if not is_op(value, "relax.concat"):
        return Linear({row: weights}, nothing.bias) if isinstance(row, Var) else None
    parts = inputs_of(value, partial(bound, known=known))
    if parts is None or parts[0] != len(static_shape(value) or ()) - 1:
        return None
    total: Linear | None = nothing
    first = 0
    for part in parts[1]:
        end = first + extent_of(part, parts[0])
        own = _product_of_part(row_of(part, known), weights[first:end])
        total = None if total is None or own is None else total.plus(own)
        first = end
    return total


def _product_of_part(part: Expr, weights: Array) -> Linear | None:
    if isinstance(part, Var):
        return Linear({part: weights}, np.zeros(weights.shape[1]))
    constant = _constant(part)
    return None if constant is None else Linear({}, constant.bias @ weights)


def _part(value: Expr, known: Mapping[Var, Expr], depth: int) -> Linear | None:
    part = part_of(value, partial(bound, known=known))
    if part is None or part.axis != len(static_shape(part.source) or ()) - 1:
        return None
    whole = linear_of(part.source, known, depth)
    return None if whole is None else whole.columns(part.first, part.end)
