"""Move constant multiplies and adds from shuffles, reshapes and slices to the weights before.

::

    reshape(transpose(reshape(conv2d(x, w)))) * s
        ->  reshape(transpose(reshape(conv2d(x, w * s'))))

A transposed convolution (LinkNet's decoder) is computed as a convolution and a shuffle of pixels,
some upsampling is one by definition, and dense layers are reshaped to images. A batch normalisation
after any of these belongs in the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from tvm.ir import Call

from neocpu.graph.folding.fold_scale import WEIGHTED, data_and_constant, per_channel
from neocpu.graph.redundancy.axis_parts import ranges_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.attributes import permutation_of
from neocpu.ir.constants import Array, make_const, with_rank
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite

_VIEWS: Final = ("relax.reshape", "relax.permute_dims", "relax.strided_slice")


def _before_views(call: Expr, rewrite: Rewrite) -> Expr | None:
    operands = data_and_constant(call)
    if operands is None:
        return None
    source, constant = operands
    views: list[Call] = []
    while is_op(view := rewrite.sole_definition(source), *_VIEWS):
        assert view is not None
        moved = _before(view, constant)
        if moved is None:
            return None
        views.append(view)
        source, constant = view.args[0], moved
    weighted = weighted_before(source, rewrite) if views else None
    if weighted is None:
        return None
    channels = per_channel(weighted, constant)
    if channels is None:
        return None
    moved_call = Call(call.op, [source, make_const(constant)])
    for view in reversed(views):
        moved_call = Call(
            view.op, [rewrite.emit(moved_call), *view.args[1:]], view.attrs, view.ty_args
        )
    return moved_call


def weighted_before(source: Expr, rewrite: Rewrite) -> Call | None:
    """Return the operator whose weights and bias can take changes to ``source``, if any."""
    value = rewrite.sole_definition(source)
    while (operands := data_and_constant(value)) is not None:
        value = rewrite.sole_definition(operands[0])
    return value if is_op(value, *WEIGHTED) else None


def _before(view: Call, constant: Array) -> Array | None:
    """Return ``constant``, which broadcasts over a view, in the order of the view's data."""
    after, before = static_shape(view), static_shape(view.args[0])
    if after is None or before is None:
        return None
    padded = with_rank(constant, len(after))
    if is_op(view, "relax.reshape"):
        return _before_reshape(padded, before, after)
    if is_op(view, "relax.permute_dims"):
        return padded.transpose(np.argsort(permutation_of(view)))
    if ranges_of(view) is None:
        return None  # a slice that runs backwards may keep the extent
    cut = [axis for axis, extent in enumerate(before) if extent != after[axis]]
    return padded if all(padded.shape[axis] == 1 for axis in cut) else None


def _before_reshape(constant: Array, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    """Return ``constant`` reshaped, with one element along axes on which it does not depend."""
    full, shape = list(constant.shape), list(before)
    for inner, outer in _groups(before, after):
        if all(extent == 1 for extent in full[outer]):
            shape[inner] = [1] * len(shape[inner])
        else:
            full[outer] = after[outer]
    return np.broadcast_to(constant, full).reshape(shape)


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Yield the smallest groups of axes that become groups of other axes."""
    i = j = 0
    while i < len(before) and j < len(after):
        first, start = i, j
        inner, outer = before[i], after[j]
        i, j = i + 1, j + 1
        while inner != outer:
            if inner < outer:
                inner, i = inner * before[i], i + 1
            else:
                outer, j = outer * after[j], j + 1
        yield slice(first, i), slice(start, j)
    yield slice(i, len(before)), slice(j, len(after))  # axes with one element


SCALE_THROUGH_VIEWS: Final = LocalRule(
    "scale-through-views",
    Kind.FOLDING,
    "A multiply or add after a shuffle of pixels or a reshape moves into the weights before it.",
    operators=("relax.multiply", "relax.add"),
    apply=_before_views,
)
