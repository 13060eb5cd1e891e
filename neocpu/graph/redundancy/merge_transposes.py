"""Merge transposes in a row, and remove those that move no element in memory.

::

    transpose(transpose(x, a), b)  ->  transpose(x, a[b])
    transpose(x, identity)         ->  x
    transpose(x, a)                ->  reshape(x, shape)   # only axes of one element move
"""

from __future__ import annotations

from typing import Final

from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import permutation_of
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _transposed_once(call: Expr, rewrite: Rewrite) -> Expr | None:
    if static_shape(call) is None:
        return None
    axes, data = permutation_of(call), call.args[0]
    if axes == tuple(range(len(axes))):
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.permute_dims"):
        inner_axes = permutation_of(inner)
        return relax.op.permute_dims(inner.args[0], [inner_axes[axis] for axis in axes])
    shape = static_shape(data)
    if shape is not None:
        moved = [axis for axis in axes if shape[axis] != 1]
        if moved == sorted(moved):
            return relax.op.reshape(data, [shape[axis] for axis in axes])
    return None


MERGE_TRANSPOSES: Final = LocalRule(
    "merge-transposes",
    Kind.REDUNDANCY,
    "Transposes in a row become one, or none; of axes of one element, a reshape.",
    operators=("relax.permute_dims",),
    apply=_transposed_once,
)
