"""Casts in a row, the first of which loses nothing."""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, dtype_of, is_op
from neocpu.ir.rewriting import Rewrite


def _cast_once(call: Expr, rewrite: Rewrite) -> Expr | None:
    inner = rewrite.definition(call.args[0])
    if not is_op(inner, "relax.astype"):
        return None
    source, middle, target = (dtype_of(expr) for expr in (inner.args[0], inner, call))
    return relax.op.astype(inner.args[0], target) if _is_same(source, middle, target) else None


def _is_same(source: str, middle: str, target: str) -> bool:
    """Whether casting to ``middle`` and then to ``target`` is casting to ``target``.

    What overflows is converted as each machine does: where a float becomes an integer, ``target``
    has to hold all that ``source`` may be.
    """
    try:
        first, second, third = map(np.dtype, (source, middle, target))
    except TypeError:  # bfloat16, float8
        return False
    if not np.can_cast(first, second, "safe") or _rounds(first, second):
        return False
    if second.kind == "f" and third.kind in "iu":
        return first.kind in "biu" and np.can_cast(first, third, "safe")
    return True


def _rounds(integer: np.dtype[np.generic], number: np.dtype[np.generic]) -> bool:
    """Whether a float type does not hold all integers: of int64 numpy calls that safe."""
    return number.kind == "f" and integer.kind in "iu" and integer.itemsize >= number.itemsize


MERGE_CASTS: Final = LocalRule(
    "merge-casts",
    Kind.REDUNDANCY,
    "A Cast after one that loses nothing reads what that one reads.",
    operators=("relax.astype",),
    apply=_cast_once,
)
