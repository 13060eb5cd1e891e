"""Definitions, uses and readers of the variables of a Relax function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst, Var

from neocpu.ir.expressions import Expr


def bindings(func: relax.Function) -> Iterator[Any]:
    for block in func.body.blocks:
        yield from block.bindings


def used_vars(value: Expr) -> Iterator[Var]:
    """Yield every variable ``value`` reads, once per occurrence."""
    if isinstance(value, Var):
        yield value
    elif isinstance(value, Call):
        for arg in value.args:
            yield from used_vars(arg)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from used_vars(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from used_vars(value.tuple_value)
    elif not isinstance(value, GenericConst | relax.ShapeExpr):
        yield from relax.analysis.free_vars(value)


def count_uses(func: relax.Function) -> dict[Var, int]:
    """Count the reads of every variable that the result depends on; the result is one of them."""
    uses: dict[Var, int] = {}
    for var in used_vars(func.body.body):
        uses[var] = uses.get(var, 0) + 1
    for block in reversed(func.body.blocks):
        pure = isinstance(block, relax.DataflowBlock)
        for binding in reversed(block.bindings):
            if pure and binding.var not in uses and isinstance(binding, relax.VarBinding):
                continue
            uses.setdefault(binding.var, 0)
            for var in used_vars(binding.value):
                uses[var] = uses.get(var, 0) + 1
    return uses


def consumers(func: relax.Function) -> dict[Var, list[Var]]:
    """Map variables to those whose definitions read them, in program order.

    A variable that reads another twice is listed twice. Parameters and dead bindings are included.
    """
    readers: dict[Var, list[Var]] = {param: [] for param in func.params}
    for binding in bindings(func):
        readers.setdefault(binding.var, [])
        for var in used_vars(binding.value):
            readers.setdefault(var, []).append(binding.var)
    return readers


def definitions(func: relax.Function) -> dict[Var, Expr]:
    return {binding.var: binding.value for binding in bindings(func)}
