"""Cells of LSTM and GRU, and their sums of products with weights, as exporters write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """``sum of row @ weights, plus bias``, for rows of several tensors."""

    terms: Mapping[Var, Array]  # (width, outputs), by the tensor whose rows they multiply
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
    """Return a float32 tensor as a sum of products with constant weights, outputs last.

    None if it is none, or is written in more than ``depth`` steps.
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


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A step of a layer."""

    kind: str  # ``LSTM`` or ``GRU``
    h: Var  # the state after it
    c: Var | None  # an LSTM's cell state after it
    before: Expr  # an LSTM's cell state, or a GRU's state, before it
    gates: tuple[Linear, ...]  # ONNX's order; a GRU's candidate is last, for input and state


def cell_of(var: Var, value: Any, known: Mapping[Var, Expr]) -> Cell | None:
    """Return the cell whose state ``var`` is; None if it is no such state."""
    if is_op(value, "relax.multiply"):
        return next(_lstms(var, value, known), None)
    if is_op(value, "relax.add"):
        return next(_grus(var, value, known), None)
    return None


def _activated(name: str, tensor: Expr, known: Mapping[Var, Expr]) -> Any:
    value = bound(tensor, known)
    return value.args[0] if is_op(value, f"relax.{name}") else None


def _gate(name: str, tensor: Expr, known: Mapping[Var, Expr]) -> Linear | None:
    inner = _activated(name, tensor, known)
    return None if inner is None else linear_of(inner, known)


def _operands(name: str, tensor: Expr, known: Mapping[Var, Expr]) -> Iterator[tuple[Expr, Expr]]:
    value = bound(tensor, known)
    if is_op(value, f"relax.{name}"):
        one, other = value.args
        yield one, other
        yield other, one


def _lstms(var: Var, value: Any, known: Mapping[Var, Expr]) -> Iterator[Cell]:
    """Match ``sigmoid(o) * tanh(c)``, with ``c = sigmoid(f) * before + sigmoid(i) * tanh(g)``."""
    for left, right in (value.args, reversed(value.args)):
        c, output = _activated("tanh", right, known), _gate("sigmoid", left, known)
        if c is None or output is None or not isinstance(c, Var):
            continue
        for kept, added in _operands("add", c, known):
            for first, second in _operands("multiply", added, known):
                write, new = _gate("sigmoid", first, known), _gate("tanh", second, known)
                if write is None or new is None:
                    continue
                for gate, before in _operands("multiply", kept, known):
                    forget = _gate("sigmoid", gate, known)
                    if forget is not None:
                        old = row_of(before, known)
                        yield Cell("LSTM", var, c, old, (write, output, forget, new))


def _grus(var: Var, value: Any, known: Mapping[Var, Expr]) -> Iterator[Cell]:
    """Match ``(before - n) * sigmoid(z) + n`` or ``(1 - sigmoid(z)) * n + sigmoid(z) * before``."""
    for one, other in (value.args, reversed(value.args)):
        for left, right in _operands("multiply", one, known):
            difference = bound(left, known)
            if is_op(difference, "relax.subtract") and difference.args[1].same_as(other):
                yield from _gru(var, right, other, difference.args[0], known)
            for update, before in _operands("multiply", other, known):
                if _is_one_minus(left, update, known):
                    yield from _gru(var, update, right, before, known)


def _is_one_minus(tensor: Expr, other: Expr, known: Mapping[Var, Expr]) -> bool:
    value = bound(tensor, known)
    if not is_op(value, "relax.subtract") or not value.args[1].same_as(other):
        return False
    one = constant_value(value.args[0])
    return one is not None and bool((one == 1).all())


def _gru(
    var: Var, update: Expr, new: Expr, before: Expr, known: Mapping[Var, Expr]
) -> Iterator[Cell]:
    """Yield a cell whose reset gate is applied after the product of the state."""
    z, candidate = _gate("sigmoid", update, known), _activated("tanh", new, known)
    if z is None or candidate is None:
        return
    for of_input, product in _operands("add", candidate, known):
        own = linear_of(of_input, known)
        for reset, state in _operands("multiply", product, known):
            r, share = _gate("sigmoid", reset, known), linear_of(state, known)
            if own is not None and r is not None and share is not None:
                yield Cell("GRU", var, None, row_of(before, known), (z, r, own, share))
