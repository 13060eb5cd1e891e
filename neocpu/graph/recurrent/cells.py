"""Cells of LSTM and GRU in the operators that exporters write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm.ir import Var

from neocpu.graph.recurrent.linear import Linear, bound, linear_of, row_of
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A step of a layer.

    - `kind`: ``LSTM`` or ``GRU``.
    - `h`: the state after it.
    - `c`: an LSTM's cell state after it.
    - `before`: an LSTM's cell state, or a GRU's state, before it.
    - `gates`: the gates in ONNX's order. A GRU has its candidate last, in two parts: the input's,
      and the state's with its own bias.
    """

    kind: str
    h: Var
    c: Var | None
    before: Expr
    gates: tuple[Linear, ...]


def cell_of(var: Var, value: Any, known: Mapping[Var, Expr]) -> Cell | None:
    """Return the cell whose state ``var`` is; None if it is no such state."""
    if is_op(value, "relax.multiply"):
        return next(_lstms(var, value, known), None)
    if is_op(value, "relax.add"):
        return next(_grus(var, value, known), None)
    return None


def _activated(name: str, tensor: Expr, known: Mapping[Var, Expr]) -> Any:
    """Return the operand of an activation; None if a tensor is no such activation."""
    value = bound(tensor, known)
    return value.args[0] if is_op(value, f"relax.{name}") else None


def _gate(name: str, tensor: Expr, known: Mapping[Var, Expr]) -> Linear | None:
    """Return the sum of products before an activation; None if a tensor is no such activation."""
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
