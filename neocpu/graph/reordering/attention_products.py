"""Products of attention in the order and with the scales that a kernel reads."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, with_rank
from neocpu.ir.expressions import Expr, is_op, permutation_of, static_shape
from neocpu.ir.rewriting import Rewrite


@local_rule(Kind.REORDERING, "relax.multiply")
def scale_queries(expr: Call, rewrite: Rewrite) -> Expr | None:
    """A scale of each head's attention scores is applied to its queries.

    ::

        matmul(q, k) * c  ->  matmul(q * c, k)   # c is constant, and the same for all keys

    Attention by cosines, as in Swin Transformer V2, has one scale for each head.
    """
    scale, product = constant_value(expr.args[1]), rewrite.sole_definition(expr.args[0])
    if scale is None or scale.size == 1 or not is_op(product, "relax.matmul"):
        return None
    queries, keys = map(static_shape, product.args)
    shape = static_shape(product)
    if queries is None or keys is None or shape is None or shape != static_shape(expr):
        return None
    if constant_value(product.args[0]) is not None or constant_value(product.args[1]) is not None:
        return None
    own = with_rank(scale, len(shape)).shape
    if own[-1] != 1 or math.prod(queries) > math.prod(shape) or len(queries) != len(shape):
        return None
    if np.broadcast_shapes(queries, own) != queries:
        return None
    scaled = rewrite.emit(relax.op.multiply(product.args[0], expr.args[1]))
    return relax.op.matmul(scaled, product.args[1])


@local_rule(Kind.REORDERING, "relax.matmul")
def weights_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Values times transposed weights of attention are the weights times transposed values.

    ::

        matmul(v, transpose(softmax(s)))  ->  transpose(matmul(softmax(s), transpose(v)))

    Models of feature maps, such as YOLO11, keep channels before pixels and write the product on the
    left. The one on the right is computed by one kernel, which reads and writes values as they lie.
    """
    moved = rewrite.sole_definition(expr.args[1])
    shapes = [static_shape(arg) for arg in expr.args]
    if not is_op(moved, "relax.permute_dims") or None in shapes:
        return None
    swap = _swap(expr.args[1])
    weights = rewrite.sole_definition(moved.args[0])
    if not is_op(weights, "relax.nn.softmax"):
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
