"""Compute two layers with nothing but a bias between them as one, where that is less work.

``W2 (W1 x + b1) = (W2 W1) x + W2 b1``: of convolutions where one of the two mixes the channels of a
pixel alone, and of dense layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from tvm import relax

from neocpu.graph.convolution import (
    Biased,
    Convolution,
    biased_convolution,
    convolution_of,
)
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import Array, constant_value, make_const, vector_along
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _compose(expr: Expr, rewrite: Rewrite) -> Expr | None:
    second = convolution_of(expr)
    inner = None if second is None else biased_convolution(second.data, rewrite)
    if second is None or inner is None:
        return None
    first, bias = inner.convolution, inner.bias
    if bias is not None and any(second.padding):
        return None  # what is padded is no image of a padded pixel
    shaped = _without_weights(first, second)
    if shaped is None or shaped.products >= first.products + second.products:
        return None
    composed = replace(shaped, weights=_weights(first, second))
    if bias is not None:
        bias = second.weights.sum(axis=(2, 3), dtype=np.float64) @ bias.astype(np.float64)
    return Biased(composed, bias).emit(rewrite)


def _without_weights(first: Convolution, second: Convolution) -> Convolution | None:
    """Return the one convolution, with weights of no memory: None if there is none."""
    if first.groups > 1 or second.groups > 1:
        return None
    channels = (second.weights.shape[0], first.weights.shape[1])
    if second.is_pointwise:
        down, across = (a * b for a, b in zip(first.strides, second.strides, strict=True))
        weights = np.broadcast_to(np.float32(0), (*channels, *first.kernel))
        return replace(first, weights=weights, strides=(down, across))
    if first.mixes_pixels:
        weights = np.broadcast_to(np.float32(0), (*channels, *second.kernel))
        return replace(second, data=first.data, weights=weights)
    return None


def _weights(first: Convolution, second: Convolution) -> Array:
    """Return the weights of the two together, in float64."""
    before, after = first.weights.astype(np.float64), second.weights.astype(np.float64)
    if second.is_pointwise:
        return np.tensordot(after[:, :, 0, 0], before, 1)
    return np.moveaxis(np.tensordot(after, before[:, :, 0, 0], (1, 0)), 3, 1)


def _compose_dense(expr: Expr, rewrite: Rewrite) -> Expr | None:
    made: Any = rewrite.sole_definition(expr.args[0])
    second, rank, bias = constant_value(expr.args[1]), len(static_shape(expr) or ()), None
    if is_op(made, "relax.add"):
        constant = constant_value(made.args[1])
        bias = None if constant is None else vector_along(constant, rank, rank - 1)
        made = None if bias is None else rewrite.sole_definition(made.args[0])
    first = constant_value(made.args[1]) if is_op(made, "relax.matmul") else None
    if first is None or second is None or dtype_of(expr) != "float32" or rank < 2:
        return None
    shapes = first.shape, second.shape
    if (first.ndim, second.ndim) != (2, 2) or static_shape(expr.args[0]) != static_shape(made):
        return None
    if shapes[0][0] * shapes[1][1] >= first.size + second.size:
        return None
    outer = second.astype(np.float64)
    weights = (first.astype(np.float64) @ outer).astype(np.float32)
    composed = relax.op.matmul(made.args[0], make_const(weights))
    if bias is None:
        return composed
    shift = np.broadcast_to(bias.astype(np.float64), shapes[0][1:]) @ outer
    return relax.op.add(rewrite.emit(composed), make_const(shift.astype(np.float32)))


COMPOSE_CONVOLUTIONS: Final = LocalRule(
    "compose-convolutions",
    Kind.REPLACEMENT,
    "Two convolutions in a row, one of them 1x1, become one, where that multiplies less.",
    operators=("relax.nn.conv2d",),
    apply=_compose,
)
COMPOSE_DENSE: Final = LocalRule(
    "compose-dense",
    Kind.REPLACEMENT,
    "Two dense layers in a row become one, where that multiplies less.",
    operators=("relax.matmul",),
    apply=_compose_dense,
)
