"""Multiply the weights of attention by the values instead of the values by transposed weights.

::

    matmul(v, transpose(softmax(s)))  ->  transpose(matmul(softmax(s), transpose(v)))

Models of feature maps, such as YOLO11, keep channels before pixels and write the product on the
left. The one on the right is computed by one kernel, which reads and writes values as they lie.
"""

from __future__ import annotations

from typing import Final

from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import permutation_of
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _weights_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    moved = rewrite.sole_definition(expr.args[1])
    shapes = [static_shape(arg) for arg in expr.args]
    if moved is None or not is_op(moved, "relax.permute_dims") or None in shapes:
        return None
    swap = _swap(expr.args[1])
    weights = rewrite.sole_definition(moved.args[0])
    if weights is None or not is_op(weights, "relax.nn.softmax"):
        return None
    if permutation_of(moved) != tuple(swap):
        return None
    if int(weights.attrs.axis) % len(swap) != len(swap) - 1 or len(shapes[0] or ()) != len(swap):
        return None
    values = rewrite.emit(relax.op.permute_dims(expr.args[0], swap))
    product = rewrite.emit(relax.op.matmul(moved.args[0], values))
    return relax.op.permute_dims(product, swap)


def _swap(matrices: Expr) -> list[int]:
    *batch, row, column = range(len(static_shape(matrices) or ()))
    return [*batch, column, row]


WEIGHTS_FIRST: Final = LocalRule(
    "weights-first",
    Kind.REORDERING,
    "Values times transposed weights of attention are the weights times transposed values.",
    operators=("relax.matmul",),
    apply=_weights_first,
)
