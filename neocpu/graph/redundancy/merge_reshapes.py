"""Merge operators that only give the same elements, in the same order, another shape.

::

    reshape(reshape(x, a), b)            ->  reshape(x, b)
    reshape(x, x.shape)                  ->  x
    flatten(x), squeeze(x), unsqueeze(x) ->  reshape(x, shape)
"""

from __future__ import annotations

from typing import Final

from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _reshaped_once(call: Expr, rewrite: Rewrite) -> Expr | None:
    data, shape = call.args[0], static_shape(call)
    if shape is None:
        return None
    if static_shape(data) == shape:
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.reshape"):
        return relax.op.reshape(inner.args[0], shape)
    return None if is_op(call, "relax.reshape") else relax.op.reshape(data, shape)


MERGE_RESHAPES: Final = LocalRule(
    "merge-reshapes",
    Kind.REDUNDANCY,
    "Reshape, Flatten, Squeeze and Unsqueeze in a row become one, or none.",
    operators=("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims"),
    apply=_reshaped_once,
)
