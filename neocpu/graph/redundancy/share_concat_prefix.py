"""Let a concat continue an earlier one that it starts with.

::

    y = concat([a, b])                y = concat([a, b])
    z = concat([a, b, c])     ->      z = concat([y, c])

PyTorch exports a DenseNet block as ``concat(a)``, ``concat(a, b)``, ``concat(a, b, c)``, ...: every
step copies the whole block again. ``concat(concat(a, b), c)`` copies the same bytes, but it leaves
one big input and one small one, so that its layout follows its big input and the copy can be
planned away.
"""

from __future__ import annotations

from typing import Final

from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, is_op
from neocpu.ir.rewriting import Rewrite

_MAX_LEAVES: Final = 4096
"""The most inputs of one concatenation. Forty nested ones of a value and itself have a trillion."""


def _continued(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Replace the longest run of leading inputs that is already concatenated by that concat."""
    if not rewrite.reads_all:
        return None
    inputs = rewrite.definition(expr.args[0])
    if not isinstance(inputs, relax.Tuple):
        return None
    if not all(isinstance(field, Var) for field in inputs.fields):
        return None
    fields = list(inputs.fields)
    axis = int(expr.attrs.axis or 0)
    leaves = [_leaves(field, axis, rewrite) for field in fields]
    for end in range(len(fields), 1, -1):
        prefix = tuple(leaf for group in leaves[:end] for leaf in group)
        earlier = rewrite.met.get((axis, prefix))
        shared = None if earlier is None else rewrite.variable(earlier)
        if shared is not None:
            rest = fields[end:]
            return relax.op.concat([shared, *rest], axis) if rest else shared
    rewrite.met[axis, tuple(leaf for group in leaves for leaf in group)] = expr
    return None


def _leaves(expr: Var, axis: int, rewrite: Rewrite) -> tuple[Var, ...]:
    """Return the inputs of nested concats along ``axis``, in order; itself if they are too many."""
    key = ("leaves", axis, expr)
    if key not in rewrite.met:
        found = tuple(
            leaf for field in _inputs(expr, axis, rewrite) for leaf in _leaves(field, axis, rewrite)
        )
        rewrite.met[key] = found if 0 < len(found) <= _MAX_LEAVES else (expr,)
    leaves: tuple[Var, ...] = rewrite.met[key]
    return leaves


def _inputs(expr: Var, axis: int, rewrite: Rewrite) -> list[Var]:
    call = rewrite.definition(expr)
    if not isinstance(call, Call) or not is_op(call, "relax.concat"):
        return []
    inputs = rewrite.definition(call.args[0])
    if int(call.attrs.axis or 0) != axis or not isinstance(inputs, relax.Tuple):
        return []
    return list(inputs.fields) if all(isinstance(field, Var) for field in inputs.fields) else []


SHARE_CONCAT_PREFIX: Final = LocalRule(
    "share-concat-prefix",
    Kind.REDUNDANCY,
    "A concatenation continues an earlier one that it starts with.",
    operators=("relax.concat",),
    apply=_continued,
)
