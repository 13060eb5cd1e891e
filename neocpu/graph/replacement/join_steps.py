"""Products of all steps of a sequence with the same weights become one product of the sequence.

Cells of recurrent layers that are written out, step by step, multiply each step's input by the same
weights. Together the steps read the weights once::

    matmul(x[:, 0], w), matmul(x[:, 1], w), ...  ->  y = matmul(x, w); y[:, 0], y[:, 1], ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.redundancy.axis_parts import extent_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.graph.steps import Step, step_of
from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _joined(expr: Call, rewrite: Rewrite) -> Expr | None:
    weights, step = constant_value(expr.args[1]), _step_of(expr.args[0], rewrite)
    if weights is None or weights.ndim != 2 or step is None:
        return None
    key = ("join-steps", step.source, step.axis)
    known: Any = rewrite.met.get(key)
    products: list[tuple[Array, Expr]] = [] if known is None else list(known)
    together = next((made for own, made in products if _are_equal(own, weights)), None)
    if together is None:
        if not _reads_all_steps(step, weights, rewrite):
            return None
        together = rewrite.emit(relax.op.matmul(step.source, expr.args[1]))
        rewrite.met[key] = (*products, (weights, together))
    own = relax.op.strided_slice(together, [step.axis], [step.index], [step.index + 1])
    return relax.op.reshape(rewrite.emit(own), static_shape(expr))


def _reads_all_steps(step: Step, weights: Array, rewrite: Rewrite) -> bool:
    """Whether each step, and there are several, is multiplied by these weights."""
    found: set[int] = set()
    for var, other in _steps(step.source, rewrite):
        shaped = [one for one, value in rewrite.readers(var) if is_op(value, "relax.reshape")]
        for row in (var, *shaped):
            for _, product in rewrite.readers(row):
                if is_op(product, "relax.matmul") and product.args[0].same_as(row):
                    own = constant_value(product.args[1])
                    if other.axis == step.axis and own is not None and _are_equal(own, weights):
                        found.add(other.index)
    return len(found) == extent_of(step.source, step.axis) > 1


def _steps(source: Expr, rewrite: Rewrite) -> Iterator[tuple[Var, Step]]:
    """Yield the variables that are single indices of ``source``."""
    for var, value in rewrite.readers(source):
        if is_op(value, "relax.split"):
            yield from _each(rewrite.readers(var), rewrite)
        else:
            yield from _each([(var, value)], rewrite)


def _each(readers: Sequence[tuple[Var, Expr]], rewrite: Rewrite) -> Iterator[tuple[Var, Step]]:
    for var, value in readers:
        step = step_of(value, rewrite.definition)
        if step is not None:
            yield var, step


def _step_of(tensor: Expr, rewrite: Rewrite) -> Step | None:
    """Return which step the rows of a matrix are, perhaps reshaped."""
    value: Any = rewrite.definition(tensor)
    if is_op(value, "relax.reshape"):
        value = rewrite.definition(value.args[0])
    step = step_of(value, rewrite.definition)
    shape = static_shape(tensor)
    if step is None or not isinstance(step.source, Var) or not shape:
        return None
    whole = static_shape(step.source)
    is_row = whole is not None and step.axis != len(whole) - 1 and whole[-1] == shape[-1]
    return step if is_row else None


def _are_equal(one: Array, other: Array) -> bool:
    if one is other or one.shape != other.shape:
        return one is other
    return bool(np.array_equal(one[0], other[0])) and bool(np.array_equal(one, other))


JOIN_STEPS: Final = LocalRule(
    "join-steps",
    Kind.REPLACEMENT,
    "Products of all steps of a sequence with the same weights become one of the sequence.",
    operators=("relax.matmul",),
    apply=_joined,
)
