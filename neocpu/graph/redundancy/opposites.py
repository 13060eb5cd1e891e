"""Operators that undo what they read, or do it again."""

from __future__ import annotations

from typing import Final

from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, has_type_of, is_op
from neocpu.ir.rewriting import Rewrite

_INVERSE: Final = ("relax.negative", "relax.logical_not", "relax.bitwise_not")
"""Their own inverses."""

_IDEMPOTENT: Final = (
    "relax.abs",
    "relax.ceil",
    "relax.floor",
    "relax.round",
    "relax.sign",
)
"""Twice is once."""


def _undone(call: Expr, rewrite: Rewrite) -> Expr | None:
    inner = rewrite.definition(call.args[0])
    return inner.args[0] if is_op(inner, call.op.name) else None


def _done_before(call: Expr, rewrite: Rewrite) -> Expr | None:
    inner = rewrite.definition(call.args[0])
    if is_op(inner, call.op.name):
        return call.args[0]
    if is_op(call, "relax.abs") and is_op(inner, "relax.negative"):
        # Of the least integer too, which is its own negative.
        return Call(call.op, [inner.args[0]], call.attrs)
    return None


def _same_twice(call: Expr, rewrite: Rewrite) -> Expr | None:
    first, second = call.args[-2:]
    return first if first.same_as(second) and has_type_of(first, call) else None


DROP_OPPOSITES: Final = LocalRule(
    "drop-opposites",
    Kind.REDUNDANCY,
    "Neg of Neg, Not of Not and BitwiseNot of BitwiseNot.",
    operators=_INVERSE,
    apply=_undone,
)
DROP_REPEATED: Final = LocalRule(
    "drop-repeated",
    Kind.REDUNDANCY,
    "Abs, Ceil, Floor, Round and Sign of their own results, and Abs after Neg.",
    operators=_IDEMPOTENT,
    apply=_done_before,
)
DROP_SAME_OPERANDS: Final = LocalRule(
    "drop-same-operands",
    Kind.REDUNDANCY,
    "Max, Min, And, Or and Where of a tensor and itself.",
    operators=(
        "relax.maximum",
        "relax.minimum",
        "relax.logical_and",
        "relax.logical_or",
        "relax.bitwise_and",
        "relax.bitwise_or",
        "relax.where",
    ),
    apply=_same_twice,
)
