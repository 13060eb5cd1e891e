"""Means, sums and extrema are taken where there is less to compute."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tvm import relax
from tvm.ir import Call

from neocpu.graph.convolution import biased_convolution, convolution_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    four_of,
    is_op,
    known_shape,
    pair_of,
    permutation_of,
    reduced_axes,
    static_shape,
)
from neocpu.ir.rewriting import Rewrite

_SUMS: Final = ("relax.mean", "relax.sum")
_CHOICES: Final = ("relax.mean", "relax.max", "relax.min")
"""Reductions that return the value of equal elements."""

_REDUCTIONS: Final = {
    "relax.mean": relax.op.mean,
    "relax.sum": relax.op.sum,
    "relax.max": relax.op.max,
    "relax.min": relax.op.min,
}


@local_rule(Kind.REORDERING, *_REDUCTIONS)
def reduce_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Sums, means and maxima are taken before an operand that all their elements share is applied.

    ::

        mean(x * gate)                   ->  mean(x) * gate
        max(x + y)                       ->  max(x) + y
        mean(broadcast_to(x))            ->  mean(x)
        mean(transpose(x), pixels)       ->  transpose(mean(x, pixels))

    The gate of a channel whose pixels are averaged next multiplies one number instead of all
    pixels, as at the end of VoVNet and HGNet. ``y`` and ``gate`` have one element along each
    reduced axis.
    """
    made = rewrite.sole_definition(expr.args[0])
    shape, axes = static_shape(expr.args[0]), reduced_axes(expr)
    if made is None or shape is None or axes is None or not dtype_of(expr).startswith("float"):
        return None
    if is_op(made, "relax.permute_dims"):
        return _of_transposed(expr, made, axes, rewrite)
    if not expr.attrs.keepdims:
        return None
    if is_op(made, "relax.broadcast_to") and is_op(expr, *_CHOICES):
        return _of_repeated(expr, made, shape, rewrite)
    scaled = is_op(made, "relax.multiply") and is_op(expr, *_SUMS)
    if not scaled and not (is_op(made, "relax.add", "relax.subtract") and is_op(expr, *_CHOICES)):
        return None
    pairs = (made.args, reversed(made.args))
    for data, shared in pairs[:1] if is_op(made, "relax.subtract") else pairs:
        own = static_shape(shared)
        if own is None or static_shape(data) != shape or shared.same_as(data):
            continue
        if not scaled and constant_value(shared) is not None:
            continue  # the bias of a layer, which its kernel adds
        first = len(shape) - len(own)
        if all(own[axis - first] == 1 for axis in axes if axis >= first):
            reduced = rewrite.emit(Call(expr.op, [data], expr.attrs, expr.ty_args))
            return Call(made.op, [reduced, shared])
    return None


def _of_transposed(expr: Call, made: Call, axes: list[int], rewrite: Rewrite) -> Expr | None:
    order = permutation_of(made)
    if len(order) != 4 or sorted(order[axis] for axis in axes) != [2, 3]:
        return None
    keepdims = bool(expr.attrs.keepdims)
    reduced = _REDUCTIONS[expr.op.name](made.args[0], [2, 3], keepdims)
    kept = list(order) if keepdims else [axis for axis in order if axis < 2]
    if kept == sorted(kept):
        return reduced
    return relax.op.permute_dims(rewrite.emit(reduced), kept)


def _of_repeated(expr: Call, made: Call, shape: tuple[int, ...], rewrite: Rewrite) -> Expr | None:
    source, result = static_shape(made.args[0]), static_shape(expr)
    if source is None or result is None or len(source) != len(shape) or source == shape:
        return None
    reduced = rewrite.emit(Call(expr.op, [made.args[0]], expr.attrs, expr.ty_args))
    return relax.op.broadcast_to(reduced, result)


_MEANS = ("relax.nn.avg_pool2d", "relax.mean", "relax.nn.adaptive_avg_pool2d")


def _saves(pool: Call, filters: Array, *, pooled_first: bool) -> bool:
    """Whether there is less to multiply, and no more to move, with the mean first, or last."""
    outputs, inputs = (int(extent) for extent in filters.shape[:2])
    many, few = _pixels(pool.args[0]), _pixels(pool)

    def work(channels: int, pixels: int) -> tuple[int, int]:
        """Return multiply-adds with the mean's additions, and elements read and written."""
        products = inputs * outputs * pixels + channels * few * _window(pool)
        return products, inputs * many + 2 * channels * pixels + outputs * few

    first, last = work(inputs, few), work(outputs, many)
    products, moved = first if pooled_first else last
    other_products, other_moved = last if pooled_first else first
    return products < other_products and moved <= other_moved


def _pixels(value: Expr) -> int:
    images, _, height, width = known_shape(value)
    return images * height * width


def _is_mean(pool: Expr | None) -> bool:
    if not is_op(pool, *_MEANS):
        return False
    source, shape = static_shape(pool.args[0]), static_shape(pool)
    if source is None or shape is None or len(source) != 4 or shape[:2] != source[:2]:
        return False
    if is_op(pool, "relax.nn.avg_pool2d"):
        return str(pool.attrs.layout) == "NCHW"
    if is_op(pool, "relax.mean") and reduced_axes(pool) != [2, 3]:
        return False  # the one channel of a map may be a mean of channels
    return shape[2:] == (1, 1)


def _window(pool: Call) -> int:
    if is_op(pool, "relax.nn.avg_pool2d"):
        return math.prod(pair_of(pool.attrs.pool_size))
    return _pixels(pool.args[0]) // _pixels(pool)


def _pads(pool: Call) -> bool:
    return is_op(pool, "relax.nn.avg_pool2d") and any(four_of(pool.attrs.padding))


@local_rule(Kind.REORDERING, *_MEANS)
def pool_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Means are taken before a 1x1 convolution, where they leave it fewer pixels.

    ::

        mean(conv2d(x, w) + b)  ->  conv2d(mean(x), w) + b

    The two commute: both are linear, one along pixels, the other along channels. DenseNet's
    transitions convolve four times as many pixels as they keep.
    """
    made = biased_convolution(expr.args[0], rewrite) if _is_mean(expr) else None
    if made is None or not made.convolution.mixes_pixels or (made.bias is not None and _pads(expr)):
        return None
    if not _saves(expr, made.convolution.weights, pooled_first=True):
        return None
    args = [made.convolution.data, *expr.args[1:]]
    pooled = rewrite.emit(Call(expr.op, args, expr.attrs, expr.ty_args))
    return replace(made, convolution=replace(made.convolution, data=pooled)).emit(rewrite)


@local_rule(Kind.REORDERING, "relax.nn.conv2d")
def pool_last(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Means are taken after a 1x1 convolution, where that leaves them fewer channels.

    ::

        conv2d(mean(x), w)  ->  mean(conv2d(x, w))

    Inception's branches take means of six times as many channels as they keep.
    """
    found = convolution_of(expr)
    pool = None if found is None else rewrite.sole_definition(found.data)
    if found is None or pool is None or not _is_mean(pool) or not found.mixes_pixels:
        return None
    if not _saves(pool, found.weights, pooled_first=False):
        return None
    mixed = rewrite.emit(replace(found, data=pool.args[0]).call())
    return Call(pool.op, [mixed, *pool.args[1:]], pool.attrs, pool.ty_args)
