"""Shuffles of pixels (depth to space and back) as Relax functions write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tvm import relax
from tvm.ir import Var

from neocpu.ir.expressions import Expr, feature_map_shape, is_op
from neocpu.ir.rewriting import Rewrite
from neocpu.ir.views import look_through
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload
from neocpu.schedules.vocabulary.strided_view import StridedView

#: The most parts of a pixel, since the code of a kernel grows with them.
MAX_PARTS: Final = 64

_SPELT: Final = ("relax.reshape", "relax.strided_slice")


@dataclass(frozen=True, slots=True, eq=False)
class FoundShuffle:
    """A shuffle of pixels that a function contains."""

    source: Var
    through: tuple[Var, ...]  # the variables between it and the result
    workload: ShuffleWorkload
    by_channel: bool  # whether a channel's parts lie together (ONNX's CRD), not a part's channels


def find_shuffle(value: Expr, definitions: Mapping[Var, Expr]) -> FoundShuffle | None:
    """Return a bound value as a shuffle of pixels; None if it is none."""
    shape = feature_map_shape(value) if is_op(value, *_SPELT) else None
    if shape is None or 0 in shape:
        return None
    if is_op(value, "relax.strided_slice"):
        return _cropped(value, shape, definitions)
    found = look_through(value, definitions)
    if found is None or not found.through:
        return None
    source, before = found.source, feature_map_shape(found.source)
    if (
        not isinstance(source, Var)
        or before is None
        or found.view.size != StridedView.of(shape).size
    ):
        return None
    spreads = before[2] < shape[2] or before[3] < shape[3]
    coarse, fine = (before, shape) if spreads else (shape, before)
    rows, columns = fine[2] // coarse[2], fine[3] // coarse[3]
    if rows * columns < 2:
        return None
    frames = fine[0] // coarse[0] if spreads else 1
    workload = ShuffleWorkload(
        coarse=coarse,
        rows=rows,
        columns=columns,
        spreads=spreads,
        top=0,
        left=0,
        size=fine[2:],
        frames=frames,
    )
    if not 0 < workload.parts <= MAX_PARTS or workload.fine != fine or workload.is_cropped:
        return None
    for by_channel in (False, True):
        if found.view == _view(workload, by_channel):
            return FoundShuffle(source, found.through, workload, by_channel)
    return None


def _view(w: ShuffleWorkload, by_channel: bool) -> StridedView | None:
    parts, order = spelling(w, by_channel)
    view = StridedView.of(w.shape).reshaped(parts)
    return None if view is None else view.permuted(order).reshaped(w.output_shape)


def spelling(w: ShuffleWorkload, by_channel: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape to which the input is split, and the order of its axes in the output."""
    n, _, height, width = w.coarse
    if not w.spreads:
        order = (0, 1, 3, 5, 2, 4) if by_channel else (0, 3, 5, 1, 2, 4)
        return (n, w.channels, height, w.rows, width, w.columns), order
    if by_channel and w.frames == 1:
        return (n, w.channels, w.rows, w.columns, height, width), (0, 1, 4, 2, 5, 3)
    parts = (n, w.frames, w.rows, w.columns, w.channels, height, width)
    return parts, (0, 1, 4, 5, 2, 6, 3)


def shuffled(source: Expr, workload: ShuffleWorkload, rewrite: Rewrite) -> Expr:
    """Return the uncropped shuffle of a workload; all but its last step is bound.

    ::

        reshape(permute_dims(reshape(source)))
    """
    parts, order = spelling(workload, by_channel=False)
    split = rewrite.emit(relax.op.reshape(source, parts))
    moved = rewrite.emit(relax.op.permute_dims(split, order))
    return relax.op.reshape(moved, workload.output_shape)


def _cropped(
    value: Expr, shape: tuple[int, int, int, int], definitions: Mapping[Var, Expr]
) -> FoundShuffle | None:
    whole, cut = value.args[0], look_through(value, {})
    made = definitions.get(whole) if isinstance(whole, Var) else None
    found = None if made is None else find_shuffle(made, definitions)
    if found is None or cut is None:
        return None
    w = found.workload
    height, width = w.size
    top, left = divmod(cut.view.offset % (height * width), width)
    if not w.spreads or w.is_cropped or top + shape[2] > height or left + shape[3] > width:
        return None
    rows = StridedView.of(w.fine).sliced(2, top, shape[2])
    if rows is None or rows.sliced(3, left, shape[3]) != cut.view:
        return None
    w = replace(w, top=top, left=left, size=shape[2:])
    return FoundShuffle(found.source, (whole, *found.through), w, found.by_channel)
