"""Take means before a 1x1 convolution or after it, whichever is less work.

The two commute: both are linear, one along pixels, the other along channels. DenseNet's transitions
convolve four times as many pixels as they keep. Inception's branches take means of six times as
many channels as they keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from tvm.ir import Call

from neocpu.graph.convolution import biased_convolution, convolution_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import four_of, pair_of, reduced_axes
from neocpu.ir.constants import Array
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite

_MEANS = ("relax.nn.avg_pool2d", "relax.mean", "relax.nn.adaptive_avg_pool2d")


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of a mean and a 1x1 convolution.

    `products` counts multiply-adds and additions of the mean, `moved` the elements that are read
    and written.
    """

    products: int
    moved: int

    def is_less_than(self, other: _Work) -> bool:
        return self.products < other.products and self.moved <= other.moved


def _work(pool: Call, filters: Array, *, pooled_first: bool) -> _Work:
    outputs, inputs = (int(extent) for extent in filters.shape[:2])
    many, few = (_pixels(static_shape(value)) for value in (pool.args[0], pool))
    channels, pixels = (inputs, few) if pooled_first else (outputs, many)
    products = inputs * outputs * pixels + channels * few * _window(pool)
    return _Work(products, inputs * many + 2 * channels * pixels + outputs * few)


def _pixels(shape: tuple[int, ...] | None) -> int:
    assert shape is not None
    return shape[0] * shape[2] * shape[3]


def _is_mean(pool: Expr | None) -> bool:
    """Whether a value is a mean of pixels, by channel."""
    if pool is None or not is_op(pool, *_MEANS):
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
    return _pixels(static_shape(pool.args[0])) // _pixels(static_shape(pool))


def _pads(pool: Call) -> bool:
    return is_op(pool, "relax.nn.avg_pool2d") and any(four_of(pool.attrs.padding))


def _pool_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Take the mean first: ``mean(conv2d(x, w) + b)  ->  conv2d(mean(x), w) + b``."""
    made = biased_convolution(expr.args[0], rewrite) if _is_mean(expr) else None
    if made is None or not made.convolution.mixes_pixels or (made.bias is not None and _pads(expr)):
        return None
    filters = made.convolution.weights
    now, then = (_work(expr, filters, pooled_first=first) for first in (False, True))
    if not then.is_less_than(now):
        return None
    args = [made.convolution.data, *expr.args[1:]]
    pooled = rewrite.emit(Call(expr.op, args, expr.attrs, expr.ty_args))
    return replace(made, convolution=replace(made.convolution, data=pooled)).emit(rewrite)


def _pool_last(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Take the mean last: ``conv2d(mean(x), w)  ->  mean(conv2d(x, w))``."""
    found = convolution_of(expr)
    pool = None if found is None else rewrite.sole_definition(found.data)
    if found is None or pool is None or not _is_mean(pool) or not found.mixes_pixels:
        return None
    now, then = (_work(pool, found.weights, pooled_first=first) for first in (True, False))
    if not then.is_less_than(now):
        return None
    mixed = rewrite.emit(replace(found, data=pool.args[0]).call())
    return Call(pool.op, [mixed, *pool.args[1:]], pool.attrs, pool.ty_args)


POOL_FIRST: Final = LocalRule(
    "pool-first",
    Kind.REORDERING,
    "Means are taken before a 1x1 convolution, where they leave it fewer pixels.",
    operators=_MEANS,
    apply=_pool_first,
)
POOL_LAST: Final = LocalRule(
    "pool-last",
    Kind.REORDERING,
    "Means are taken after a 1x1 convolution, where that leaves them fewer channels.",
    operators=("relax.nn.conv2d",),
    apply=_pool_last,
)
