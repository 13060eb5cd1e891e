"""Reduce before applying an operand that is the same for all reduced elements.

::

    mean(x * gate)                   ->  mean(x) * gate
    max(x + y)                       ->  max(x) + y
    mean(broadcast_to(x))            ->  mean(x)
    mean(transpose(x), pixels)       ->  transpose(mean(x, pixels))

The gate of a channel whose pixels are averaged next multiplies one number instead of all pixels, as
at the end of VoVNet and HGNet. ``y`` and ``gate`` have one element along each reduced axis.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import permutation_of, reduced_axes
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
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


def _reduce_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
    made: Any = rewrite.sole_definition(expr.args[0])
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
    """Reduce the pixels of a map whose channels a transpose puts last, and transpose the rest."""
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


REDUCE_FIRST: Final = LocalRule(
    "reduce-first",
    Kind.REORDERING,
    "Sums, means and maxima are taken before an operand that all their elements share is applied.",
    operators=tuple(_REDUCTIONS),
    apply=_reduce_first,
)
