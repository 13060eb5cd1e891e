"""Remove Expand, and Tile of axes of one element, before operators that broadcast themselves.

::

    multiply(x, broadcast_to(gate, x.shape))  ->  multiply(x, gate)
    add(x, tile(row, [4, 1]))                 ->  add(x, row)

PyTorch's ``expand_as`` leaves such an Expand, as in the gates of ECA and in MobileViT v2.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite

_BROADCASTING: Final = (
    "add",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "power",
    "subtract",
    "where",
)


def _unexpanded(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Return ``call`` without the expansion, if its own broadcast results in the same shape.

    A selection by one condition stays, because only the selected tensor is made if both have the
    same shape.
    """
    if is_op(call, "relax.where") and static_shape(call.args[0]) == ():
        return None
    for place, arg in enumerate(call.args):
        expanded = rewrite.definition(arg)
        if not _repeats(expanded):
            continue
        args = [*call.args]
        args[place] = expanded.args[0]
        shapes = [static_shape(each) for each in args]
        known = [shape for shape in shapes if shape is not None]
        if len(known) == len(args) and np.broadcast_shapes(*known) == static_shape(call):
            return Call(call.op, args, call.attrs, ret_ty=call.ty)
    return None


def _repeats(value: Expr) -> bool:
    if is_op(value, "relax.broadcast_to"):
        return True
    if not is_op(value, "relax.tile"):
        return False
    data, whole = static_shape(value.args[0]), static_shape(value)
    if data is None or whole is None:
        return False
    last = whole[len(whole) - len(data) :]
    return all(extent in (1, size) for extent, size in zip(data, last, strict=True))


EXPAND_BEFORE: Final = LocalRule(
    "expand-before",
    Kind.REDUNDANCY,
    "Expand, or Tile of axes of one element, before an operator that broadcasts.",
    operators=tuple(f"relax.{name}" for name in _BROADCASTING),
    apply=_unexpanded,
)
