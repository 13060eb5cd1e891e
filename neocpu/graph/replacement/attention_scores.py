"""Move scales of attention's scores to the queries, which have fewer elements.

::

    matmul(q, k) * c  ->  matmul(q * c, k)   # c is constant, and the same for all keys

Attention by cosines, as in Swin Transformer V2, has one scale for each head.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import constant_value, with_rank
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _of_queries(expr: Call, rewrite: Rewrite) -> Expr | None:
    scale, product = constant_value(expr.args[1]), rewrite.sole_definition(expr.args[0])
    if scale is None or scale.size == 1 or not is_op(product, "relax.matmul"):
        return None
    assert product is not None
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


SCALE_QUERIES: Final = LocalRule(
    "scale-queries",
    Kind.REORDERING,
    "A scale of each head's attention scores is applied to its queries.",
    operators=("relax.multiply",),
    apply=_of_queries,
)
