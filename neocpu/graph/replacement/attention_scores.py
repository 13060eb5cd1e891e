"""Masks and scales of attention's scores, in the forms that its kernel takes.

Of a mask, ``where(mask, scores, -inf)``, that is a bias which is zero or -inf. A scale of each
head, as attention by cosines has, goes to the queries, of which there are fewer elements.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import constant_value, make_const, with_rank
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite
from neocpu.planning.operators.products import MOST_STEPS

_FILL: Final = -1e30
"""Scores are lost in the rounding of what is no more than that: their sum with it is it alone."""


def _as_sum(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Write ``where(mask, scores, fill)`` as ``scores + where(mask, 0, fill)``."""
    if dtype_of(expr) != "float32" or not _is_read_by_softmax(rewrite):
        return None
    mask, *branches = expr.args
    for place in (0, 1):
        scores, fill = branches[place], constant_value(branches[1 - place])
        if fill is None or not (fill <= _FILL).all() or not _are_scores(scores, rewrite):
            continue
        if static_shape(scores) != static_shape(expr):
            continue
        filled: list[Any] = [make_const(np.zeros((), np.float32)), branches[1 - place]]
        then, other = filled if place == 0 else reversed(filled)
        known, nothing = constant_value(mask), np.zeros((), np.float32)
        if known is None:
            return relax.op.add(scores, rewrite.emit(relax.op.where(mask, then, other)))
        bias = np.where(known, nothing, fill) if place == 0 else np.where(known, fill, nothing)
        return relax.op.add(scores, make_const(bias))
    return None


def _is_read_by_softmax(rewrite: Rewrite) -> bool:
    """Whether only a softmax over the last axis reads what is rewritten, perhaps reshaped."""
    readers = rewrite.readers(rewrite.current)
    if len(readers) == 1 and is_op(readers[0][1], "relax.reshape"):
        readers = rewrite.readers(readers[0][0])
    if len(readers) != 1 or not is_op(readers[0][1], "relax.nn.softmax"):
        return False
    softmax = readers[0][1]
    rank = len(static_shape(softmax) or ())
    return int(softmax.attrs.axis) % rank == rank - 1


def _are_scores(tensor: Expr, rewrite: Rewrite, steps: int = MOST_STEPS) -> bool:
    """Whether a tensor is a product of two activations, with scales and biases."""
    value: Any = rewrite.sole_definition(tensor) if steps else None
    if is_op(value, "relax.matmul"):
        return all(constant_value(arg) is None for arg in value.args)
    if is_op(value, "relax.add"):
        return any(_are_scores(arg, rewrite, steps - 1) for arg in value.args)
    is_scaled = is_op(value, "relax.multiply", "relax.reshape")
    return is_scaled and _are_scores(value.args[0], rewrite, steps - 1)


def _of_queries(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Write ``(q k) * c`` as ``(q * c) k``, with c the same along all keys."""
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


MASK_BY_SUM: Final = LocalRule(
    "mask-by-sum",
    Kind.REPLACEMENT,
    "Scores of attention that Where replaces by -inf get it as a bias.",
    operators=("relax.where",),
    apply=_as_sum,
)
SCALE_QUERIES: Final = LocalRule(
    "scale-queries",
    Kind.REORDERING,
    "What scales the scores of each head of an attention scales its queries.",
    operators=("relax.multiply",),
    apply=_of_queries,
)
