"""Compute two convolutions with nothing but a bias between them as one, where that is less work.

``W2 (W1 x + b1) = (W2 W1) x + W2 b1``, where one of the two mixes the channels of a pixel alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from neocpu.passes.rules.convolution import (
    Biased,
    Convolution,
    biased_convolution,
    convolution_of,
)
from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.relax_utils import Expr, Rewrite


def _compose(expr: Expr, rewrite: Rewrite) -> Expr | None:
    second = convolution_of(expr)
    inner = None if second is None else biased_convolution(second.data, rewrite)
    if second is None or inner is None:
        return None
    first, bias = inner.convolution, inner.bias
    if bias is not None and any(second.padding):
        return None  # what is padded is no image of a padded pixel
    composed = _of_both(first, second)
    if composed is None or composed.products >= first.products + second.products:
        return None
    if bias is not None:
        bias = second.weights.sum(axis=(2, 3), dtype=np.float64) @ bias.astype(np.float64)
    return Biased(composed, bias).emit(rewrite)


def _of_both(first: Convolution, second: Convolution) -> Convolution | None:
    if first.groups > 1 or second.groups > 1:
        return None
    if second.is_pointwise:
        weights = np.tensordot(
            second.weights[:, :, 0, 0].astype(np.float64), first.weights.astype(np.float64), 1
        )
        down, across = (a * b for a, b in zip(first.strides, second.strides, strict=True))
        return replace(first, weights=weights, strides=(down, across))
    if first.is_pointwise and first.strides == (1, 1):
        mixed = np.tensordot(
            second.weights.astype(np.float64), first.weights[:, :, 0, 0].astype(np.float64), (1, 0)
        )
        return replace(second, data=first.data, weights=np.moveaxis(mixed, 3, 1))
    return None


COMPOSE_CONVOLUTIONS: Final = LocalRule(
    "compose-convolutions",
    Kind.REPLACEMENT,
    "Two convolutions in a row, one of them 1x1, become one, where that multiplies less.",
    operators=("relax.nn.conv2d",),
    apply=_compose,
)
