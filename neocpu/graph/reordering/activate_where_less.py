"""Activations that never fall move before or after a maximum of pixels, whichever is less work.

The maximum of what they make is what they make of the maximum, and so is the minimum. Before it
they are a step of the convolution that it follows; after anything else, there are fewer elements
after it.
"""

from __future__ import annotations

import math
from typing import Any, Final

from tvm.ir import Call

from neocpu.graph.folding.fold_scale import WEIGHTED
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import four_of, pair_of
from neocpu.ir.constants import constant_value
from neocpu.ir.elementwise import ELEMENTWISE
from neocpu.ir.expressions import Expr, is_op, op_name, static_shape
from neocpu.ir.rewriting import Rewrite

_RISING: Final = (
    *("relax.nn.relu", "relax.clip", "relax.sigmoid", "relax.tanh", "relax.exp"),
    "relax.nn.leakyrelu",
)
_POOL: Final = "relax.nn.max_pool2d"
_CHOICES: Final = ("relax.max", "relax.min")
"""Maxima and minima over whole axes."""


def _before(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Write ``act(pool(conv(x)))`` as ``pool(act(conv(x)))``."""
    pool: Any = rewrite.sole_definition(expr.args[0])
    if not _is_maximum(pool) or not _rises(expr) or not _follows_layer(pool.args[0], rewrite):
        return None
    moved = rewrite.emit(Call(expr.op, [pool.args[0], *expr.args[1:]], expr.attrs))
    return Call(pool.op, [moved], pool.attrs)


def _after(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Write ``pool(act(x))`` as ``act(pool(x))``, with x no result of arithmetic."""
    activation: Any = rewrite.sole_definition(expr.args[0])
    if not (is_op(expr, *_CHOICES) or _is_maximum(expr)) or not _rises(activation):
        return None
    source = rewrite.definition(activation.args[0])
    if is_op(source, *WEIGHTED) or op_name(source) in ELEMENTWISE:
        return None  # whose kernel takes it
    if math.prod(static_shape(expr) or ()) >= math.prod(static_shape(activation) or ()):
        return None
    pooled = rewrite.emit(Call(expr.op, [activation.args[0]], expr.attrs, expr.ty_args))
    return Call(activation.op, [pooled, *activation.args[1:]], activation.attrs)


def _rises(activation: Any) -> bool:
    """Whether a value is that of an activation which never falls."""
    if not is_op(activation, *_RISING):
        return False
    return not is_op(activation, "relax.nn.leakyrelu") or float(activation.attrs.alpha) >= 0


def _is_maximum(pool: Expr | None) -> bool:
    """Whether a value is a maximum of pixels, and of some pixel at least in each window."""
    if pool is None or not is_op(pool, _POOL) or bool(pool.attrs.ceil_mode):
        return False
    height, width = pair_of(pool.attrs.pool_size)
    top, left, bottom, right = four_of(pool.attrs.padding)
    inside = max(top, bottom) < height and max(left, right) < width
    return inside and pair_of(pool.attrs.dilation) == (1, 1)


def _follows_layer(tensor: Expr, rewrite: Rewrite) -> bool:
    """Whether a tensor is of a layer with weights, perhaps with a bias."""
    value: Any = rewrite.sole_definition(tensor)
    if is_op(value, "relax.add") and constant_value(value.args[1]) is not None:
        value = rewrite.sole_definition(value.args[0])
    return is_op(value, *WEIGHTED)


ACTIVATE_BEFORE_POOL: Final = LocalRule(
    "activate-before-pool",
    Kind.REORDERING,
    "Activations after the maxima of a convolution's pixels go to the convolution.",
    operators=_RISING,
    apply=_before,
)
POOL_BEFORE_ACTIVATION: Final = LocalRule(
    "pool-before-activation",
    Kind.REORDERING,
    "Maxima and minima are taken before activations that no kernel before them takes.",
    operators=(_POOL, *_CHOICES),
    apply=_after,
)
