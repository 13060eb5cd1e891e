"""Write convolutions of parts of the channels, whose results are concatenated, as one in groups.

TensorFlow had no grouped convolutions for long, and its converters wrote a ResNeXt's as split,
convolve and concatenate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from tvm import relax

from neocpu.graph.convolution import Biased, biased_convolution
from neocpu.graph.redundancy.axis_parts import part_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, static_shape
from neocpu.ir.rewriting import Rewrite


def _group(expr: Expr, rewrite: Rewrite) -> Expr | None:
    parts = rewrite.sole_definition(expr.args[0]) or rewrite.definition(expr.args[0])
    fields = list(parts.fields) if isinstance(parts, relax.Tuple) else []
    if len(fields) < 2 or int(expr.attrs.axis or 0) % len(static_shape(expr) or (1,)) != 1:
        return None
    found = [biased_convolution(field, rewrite) for field in fields]
    branches = [branch for branch in found if branch is not None]
    if len(branches) < len(fields) or len({_form(branch) for branch in branches}) > 1:
        return None
    data = _whole([branch.convolution.data for branch in branches], rewrite)
    if data is None:
        return None
    first = branches[0].convolution
    together = replace(
        first,
        data=data,
        weights=np.concatenate([branch.convolution.weights for branch in branches]),
        groups=first.groups * len(branches),
    )
    biases = [branch.bias for branch in branches if branch.bias is not None]
    return Biased(together, np.concatenate(biases) if biases else None).emit(rewrite)


def _form(branch: Biased) -> tuple[object, ...]:
    """Return all that branches of one convolution share."""
    made = branch.convolution
    shape = made.weights.shape
    return shape, made.strides, made.padding, made.dilation, made.groups, branch.bias is None


def _whole(values: list[Expr], rewrite: Rewrite) -> Expr | None:
    """Return the map whose channels ``values`` are, split evenly and in order; else None."""
    parts = [part_of(rewrite.definition(value), rewrite.definition) for value in values]
    first = parts[0]
    if first is None or any(part is None or part.axis != 1 for part in parts):
        return None
    shape = static_shape(first.source)
    if shape is None or len(shape) != 4 or shape[1] % len(values):
        return None
    width = shape[1] // len(values)
    fits = (
        part.source.same_as(first.source) and (part.first, part.end) == (start, start + width)
        for part, start in zip(parts, range(0, shape[1], width), strict=True)
        if part is not None
    )
    return first.source if all(fits) else None


GROUP_CONVOLUTIONS: Final = LocalRule(
    "group-convolutions",
    Kind.REPLACEMENT,
    "Equal convolutions of consecutive channels, concatenated, become one in groups.",
    operators=("relax.concat",),
    apply=_group,
)
