"""Sum the filters of parallel convolutions instead of their results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
from tvm.ir import Var

from neocpu.graph.convolution import Convolution, channel_vector, convolution_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite, summed

_MAX_TERMS: Final = 8  # the most branches of a block; a longer sum is split into pieces


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """One term of a sum: a convolution of `data`, `data` scaled by channel, or anything else."""

    value: Expr
    convolution: Convolution | None
    data: Expr
    scale: Array | None


@local_rule(Kind.REPLACEMENT, "relax.add")
def sum_convolutions(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Parallel convolutions of one map, and the map itself, become one with summed filters.

    ::

        conv2d(x, v) + conv2d(x, w)  ->  conv2d(x, v + pad(w))
        conv2d(x, w) + x * s         ->  conv2d(x, w + diag(s))

    RepVGG (Ding et al., CVPR 2021) trains ``3x3(x) + 1x1(x) + batch_norm(x)``: all three are linear
    and read the same pixels, so one 3x3 convolution computes their sum. MobileOne, FastViT, RepViT
    and others have such branches too, and exporters keep them.
    """
    shape = static_shape(expr)
    if shape is None or len(shape) != 4:
        return None
    values = _terms(expr, shape, rewrite)
    terms = [_term(value, shape[1], rewrite) for value in values if constant_value(value) is None]
    for first, second in combinations(terms, 2):
        merged = _merged(first, second)
        if merged is not None and merged.shape == shape:
            rest = [v for v in values if v is not first.value and v is not second.value]
            ordered = sorted(rest, key=lambda value: constant_value(value) is None)
            return summed([rewrite.emit(merged.call()), *ordered], rewrite)
    return None


def _terms(expr: Expr, shape: tuple[int, ...], rewrite: Rewrite) -> list[Expr]:
    found: list[Expr] = []
    pending = [*expr.args]
    while pending:
        value = pending.pop()
        inner = rewrite.sole_definition(value)
        opened = len(found) + len(pending) < _MAX_TERMS
        if opened and is_op(inner, "relax.add") and static_shape(inner) == shape:
            pending.extend(inner.args)
        else:
            found.append(value)
    return found[::-1]


def _term(value: Expr, channels: int, rewrite: Rewrite) -> _Term:
    made = rewrite.sole_definition(value)
    if (convolution := convolution_of(made)) is not None:
        return _Term(value, convolution, convolution.data, None)
    if is_op(made, "relax.multiply"):
        constant = constant_value(made.args[1])
        scale = None if constant is None else channel_vector(constant, channels)
        if scale is not None:
            return _Term(value, None, made.args[0], scale)
    return _Term(value, None, value, np.ones(channels))


def _merged(first: _Term, second: _Term) -> Convolution | None:
    if not isinstance(first.data, Var) or not first.data.same_as(second.data):
        return None
    if first.convolution is None:
        first, second = second, first
    if first.convolution is None:
        return None
    other = second.convolution or _as_convolution(second, first.convolution)
    return None if other is None else _of_both(first.convolution, other)


def _as_convolution(term: _Term, like: Convolution) -> Convolution | None:
    """Return a map scaled by channel as a convolution by one pixel, in as many groups."""
    if static_shape(term.data) != like.shape or term.scale is None:
        return None
    width = like.weights.shape[1]
    weights = np.zeros((len(term.scale), width, 1, 1))
    channels = np.arange(len(term.scale))
    weights[channels, channels % width, 0, 0] = term.scale
    return Convolution(data=term.data, weights=weights, groups=like.groups)


def _of_both(first: Convolution, second: Convolution) -> Convolution | None:
    same = (first.strides, first.groups) == (second.strides, second.groups)
    dilations = {each.dilation for each in (first, second) if each.kernel != (1, 1)} or {(1, 1)}
    if not same or len(dilations) > 1 or first.shape != second.shape:
        return None
    (dilation,) = dilations
    padding, kernel, offsets = list(first.padding), [0, 0], ([0, 0], [0, 0])
    for axis, spread in enumerate(dilation):
        padding[axis] = max(first.padding[axis], second.padding[axis])
        for place, each in zip(offsets, (first, second), strict=True):
            place[axis], between = divmod(padding[axis] - each.padding[axis], spread)
            if between:
                return None
            kernel[axis] = max(kernel[axis], place[axis] + each.kernel[axis])
        extent = (static_shape(first.data) or ())[2 + axis]
        last = (first.shape[2 + axis] - 1) * first.strides[axis] + (kernel[axis] - 1) * spread + 1
        padding[2 + axis] = max(last - extent - padding[axis], 0)
    weights = np.zeros((*first.weights.shape[:2], *kernel))
    for (row, column), each in zip(offsets, (first, second), strict=True):
        height, width = each.kernel
        weights[:, :, row : row + height, column : column + width] += each.weights
    top, left, bottom, right = padding
    merged = replace(first, weights=weights, padding=(top, left, bottom, right), dilation=dilation)
    own = 0 if second.weights.dtype == np.float64 else second.products  # a scaled map has none
    return merged if merged.products <= first.products + own else None
