"""Move constant multiplies and adds from a concatenation of convolutions into their weights.

::

    concat([conv2d(x, v), conv2d(x, w)]) * s + t
        ->  concat([conv2d(x, v * s[:c]) + t[:c], conv2d(x, w * s[c:]) + t[c:]])

A mixed convolution (Tan and Le, BMVC 2019) is several convolutions with different kernels, side by
side, and one batch normalisation of all their channels.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.folding.fold_scale import data_and_constant, per_channel
from neocpu.graph.folding.scale_through_views import weighted_before
from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import make_const, with_rank
from neocpu.ir.expressions import Expr
from neocpu.ir.rewriting import Rewrite


def _before_concat(call: Expr, rewrite: Rewrite) -> Expr | None:
    operands = data_and_constant(call)
    concat = None if operands is None else rewrite.sole_definition(operands[0])
    found = None if concat is None else inputs_of(concat, rewrite.definition)
    if operands is None or found is None:
        return None
    (axis, inputs), constant = found, operands[1]
    padded = with_rank(constant, len(call.ty.shape.values))
    ends = list(accumulate(extent_of(each, axis) for each in inputs))[:-1]
    same = padded.shape[axis] == 1
    parts = [padded] * len(inputs) if same else np.split(padded, ends, axis)
    for each, part in zip(inputs, parts, strict=True):
        weighted = weighted_before(each, rewrite)
        if weighted is None or per_channel(weighted, part) is None:
            return None
    fields = [
        rewrite.emit(Call(call.op, [each, make_const(part)]))
        for each, part in zip(inputs, parts, strict=True)
    ]
    return relax.op.concat(fields, axis)


SCALE_THROUGH_CONCAT: Final = LocalRule(
    "scale-through-concat",
    Kind.FOLDING,
    "A multiply or add after a concatenation of convolutions moves into the weights of each.",
    operators=("relax.multiply", "relax.add"),
    apply=_before_concat,
)
