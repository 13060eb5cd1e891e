"""Operators that move rows: reshapes, slices, concatenations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import helper

from neocpu.frontend.rows.fold_rows import masked
from neocpu.frontend.rows.keep_rows import independent
from neocpu.frontend.rows.row_graph import (
    ALONG,
    FIXED,
    MERGED,
    PARAMETERS,
    TWO_AXES,
    RowGraph,
    Rule,
    Step,
    refuse_if,
)
from neocpu.frontend.rows.row_value import Extent, RowError, Value, product

_ALL = 1 << 31  # a number beyond the end of every axis: a slice that ends there takes the rest


def squeeze(step: Step) -> Sequence[Value]:
    refuse_if(step.optional(1) is None, "without axes it also drops a single row's axis")
    return independent(step)


def reshape(step: Step) -> Sequence[Value]:
    """Reshape, if the valid elements stay before the invalid ones."""
    data = step.operand(0)
    wanted = step.contents(1, "its shape is not a constant")
    extents = _resolved(data, wanted, bool(step.attribute("allowzero", 0)))
    return [_reshaped(step, data, extents)]


def flatten(step: Step) -> Sequence[Value]:
    """Flatten into two axes."""
    data = step.operand(0)
    at = int(step.attribute("axis", 1))
    at += data.rank if at < 0 else 0
    parts = [product(part) for part in (data.extents[:at], data.extents[at:])]
    assert None not in parts
    return [_reshaped(step, data, [part for part in parts if part is not None])]


def _resolved(data: Value, wanted: Sequence[Extent], allow_zero: bool) -> list[Extent]:
    """Return the requested shape with -1 and 0 replaced."""
    zero, rest = Extent(0), Extent(-1)
    extents = list(wanted)
    if not allow_zero:
        if any(each == zero and axis >= data.rank for axis, each in enumerate(extents)):
            raise RowError("its shape does not fit its data")
        extents = [data.extents[i] if each == zero else each for i, each in enumerate(extents)]
    if rest in extents:
        others = product([each for each in extents if each != rest])
        total = product(data.extents)
        assert total is not None
        missing = None if others is None else _share(total, others)
        if missing is None:
            raise RowError(MERGED)
        extents[extents.index(rest)] = missing
    return extents


def _share(total: Extent, others: Extent) -> Extent | None:
    if others.known:
        return total.divided(others.constant)
    times = total.ratio(others)
    return None if times is None else Extent(times)


def _reshaped(step: Step, data: Value, extents: Sequence[Extent]) -> Value:
    """Write a Reshape to bounds of these extents; one of them may be a number of rows."""
    graph = step.graph
    open_axes = [axis for axis, extent in enumerate(extents) if not extent.known]
    shape = [extent.constant for extent in extents]
    if data.axis is None or data.count.known:
        if open_axes or data.axis is None:
            raise RowError(MERGED)
        empty = [axis for axis, extent in enumerate(shape) if extent == 0]
        refuse_if(data.count != Extent(0) or not empty, MERGED)
        bounds = graph.integers(*(max(extent, 1) for extent in shape))
        zeros = graph.op("ConstantOfShape", bounds)
        return graph.op("Cast", zeros, to=data.kind).with_rows(empty[0], Extent(0))
    refuse_if(len(open_axes) != 1, MERGED)
    (axis,) = open_axes
    before, inner = math.prod(data.shape[: data.axis]), math.prod(shape[axis + 1 :])
    bound, odd = divmod(data.size, before * inner) if inner else (0, 1)
    # Valid elements come first in each block, and the number of blocks stays the same.
    refuse_if(odd or before != math.prod(shape[:axis]) or not bound, MERGED)
    if extents[axis].times(inner) != data.count.times(math.prod(data.shape[data.axis + 1 :])):
        raise RowError(MERGED)
    shape[axis] = bound
    made = step.last("Reshape", data, graph.integers(*shape))
    return made.with_rows(axis, extents[axis])


def expand(step: Step) -> Sequence[Value]:
    """Expand, also to a number of rows that a run decides."""
    data, wanted = step.operand(0), step.contents(1, "its shape depends on the data")
    rank = max(data.rank, len(wanted))
    one = Extent(1)
    mine = [one] * (rank - data.rank) + list(data.extents)
    theirs = [one] * (rank - len(wanted)) + list(wanted)
    bounds = [1] * (rank - data.rank) + list(data.shape)
    rows: list[tuple[int, Extent]] = []
    for axis, (have, want) in enumerate(zip(mine, theirs, strict=True)):
        if have == one and want != one:
            bounds[axis] = max(want.most, 1)
        elif want not in (one, have):
            raise RowError(FIXED)
        extent = have if want == one else want
        if not extent.known or extent == Extent(0):
            rows.append((axis, extent))
    refuse_if(len(rows) > 1, TWO_AXES)
    axis_rows = rows[0] if rows else (None, None)
    made = step.last("Expand", data, step.graph.integers(*bounds)).with_rows(*axis_rows)
    return [_spread(made, data)]


def _spread(made: Value, data: Value) -> Value:
    """Note if the elements of a tensor of indices differ along its first axis only."""
    is_spread = made.rank == data.rank > 1 and data.size == data.shape[0] == made.shape[0]
    return replace(made, spread_of=data.name) if is_spread else made


def tile(step: Step) -> Sequence[Value]:
    data, repeats = step.operand(0), step.contents(1)
    open_axes = [axis for axis, each in enumerate(repeats) if not each.known]
    if not open_axes and data.axis is not None:
        return independent(step)
    if data.axis is not None or len(open_axes) != 1 or data.shape[open_axes[0]] != 1:
        raise RowError("it repeats the rows")
    (axis,) = open_axes
    bounds = [max(each.most, 1) for each in repeats]
    made = step.same([data, step.graph.integers(*bounds)])[0]
    return [made.with_rows(axis, repeats[axis])]


def slice_rows(step: Step) -> Sequence[Value]:
    """Slice of any axes; the stride along the rows must be 1."""
    data, starts, ends = step.operand(0), step.contents(1), step.contents(2)
    axes, strides = step.array(3), step.array(4)
    number = len(starts)
    chosen = list(range(number)) if axes is None else [int(a) % data.rank for a in axes.reshape(-1)]
    steps = [1] * number if strides is None else [int(each) for each in strides.reshape(-1)]
    graph, plain = step.graph, []
    for axis, start, end, stride in zip(chosen, starts, ends, steps, strict=True):
        if axis == data.axis or not (start.known and end.known):
            refuse_if(stride != 1, "it slices the rows with a stride")
            data = _range_of(graph, data, axis, start, end)
        else:
            plain.append((axis, start.constant, end.constant, stride))
    if not plain:
        return [step.last("Identity", data).like(data)]
    columns = zip(*plain, strict=True)
    where, first, last, stride_of = (graph.integers(*column) for column in columns)
    made = step.last("Slice", data, first, last, where, stride_of)
    return [made.like(data)]


def _range_of(graph: RowGraph, data: Value, axis: int, start: Extent, end: Extent) -> Value:
    """Return a range of rows; negative bounds count from the end."""
    refuse_if(data.axis not in (None, axis), TWO_AXES)
    extent, bound = data.extents[axis], data.shape[axis]
    first, last = (_position(graph, each, extent) for each in (start, end))
    rows = graph.larger(last - first, Extent(0))
    most = min(rows.most, bound)
    if most < 1:
        return _nothing(graph, data, axis)
    if first.known:
        limits = (first.constant, min(first.constant + most, bound), axis)
        if limits[0] >= bound:
            return _nothing(graph, data, axis)
        if limits[:2] != (0, bound):
            data = graph.cut(data, *limits)
        return data.with_rows(axis, rows)
    places = graph.op("Add", graph.constant(np.arange(most)), graph.counted(first))
    return graph.op("Gather", data, places, axis=axis).with_rows(axis, rows)


def _nothing(graph: RowGraph, data: Value, axis: int) -> Value:
    return graph.cut(data, 0, 1, axis).with_rows(axis, Extent(0))


def _position(graph: RowGraph, place: Extent, extent: Extent) -> Extent:
    """Return the start or end of a slice as a position between 0 and the extent."""
    if place.known and place.constant >= _ALL:
        return extent
    if place.most < 0:
        return graph.larger(extent + place, Extent(0))
    if place.least < 0:
        # As in x[:n - 1]. If n - 3 is below zero, ONNX counts it from the end once more.
        if place == extent + place.constant and place.constant >= -2:
            return graph.larger(place, Extent(0))
        raise RowError("it slices the rows at a bound that may count from the end")
    return graph.smaller(place, extent)


def split(step: Step) -> Sequence[Value]:
    """Split; the sizes of parts of the rows may be counts."""
    data, sizes = step.operand(0), step.optional(1)
    axis = step.axis(0, data.rank)
    if axis != data.axis and (sizes is None or sizes.known is not None):
        return independent(step)
    if sizes is None or sizes.contents is None:
        raise RowError(ALONG)
    refuse_if(data.axis not in (None, axis), TWO_AXES)
    start, parts = Extent(0), []
    for size in sizes.contents:
        parts.append(_range_of(step.graph, data, axis, start, start + size))
        start += size
    return parts


def pad(step: Step) -> Sequence[Value]:
    """Pad; the padding after the rows may be a count, often up to a constant number of rows."""
    data, axes = step.operand(0), step.array(3)
    amounts = step.contents(1)
    if data.axis is None:
        raise RowError(PARAMETERS)
    chosen = range(data.rank) if axes is None else [int(a) % data.rank for a in axes.reshape(-1)]
    half = len(amounts) // 2
    pads = dict(zip(chosen, zip(amounts[:half], amounts[half:], strict=True), strict=True))
    before, after = pads.pop(data.axis, (Extent(0), Extent(0)))
    flat = [each for pair in pads.values() for each in pair]
    total = data.count + after
    if before != Extent(0) or not all(each.known for each in flat):
        raise RowError("it pads before the rows")
    if after != Extent(0):
        data = _padded_rows(step, data, total)
    begins, ends = zip(*pads.values(), strict=True) if pads else ((), ())
    if not any(each.constant for each in flat):
        return [step.last("Identity", data).like(data)]
    graph = step.graph
    widths = graph.integers(*(each.constant for each in (*begins, *ends)))
    made = step.same([data, widths, step.optional(2), graph.integers(*pads)])[0]
    return [made.like(data)]


def _padded_rows(step: Step, data: Value, total: Extent) -> Value:
    """Return ``total`` rows, in which a constant replaces invalid ones."""
    graph, fill = step.graph, step.array(2)
    axis, bound, most = data.axis, data.shape[data.axis or 0], total.most
    if step.attribute("mode", b"constant") not in (b"constant", "constant") or axis is None:
        raise RowError("it repeats the rows")
    refuse_if(total.least < 0 or most < 1, "it drops rows")
    filler = 0 if fill is None or not fill.size else fill.item()
    whole = masked(graph, data, filler)
    if bound > most:
        whole = graph.cut(whole, 0, most, axis)
    elif bound < most:
        shape = (*data.shape[:axis], most - bound, *data.shape[axis + 1 :])
        kind = helper.tensor_dtype_to_np_dtype(data.kind)
        rest = graph.constant(np.full(shape, filler, kind))
        whole = graph.op("Concat", whole, rest, axis=axis)
    return whole.with_rows(axis, total)


def concat(step: Step) -> Sequence[Value]:
    """Concat; the valid rows of all tensors come before the invalid ones."""
    parts = [value for value in step.operands if value is not None]
    rank = parts[0].rank
    axis = step.axis(0, rank)
    along = [part for part in parts if part.axis == axis]
    if len(along) != sum(part.axis is not None for part in parts):
        return independent(step)
    parts = [part for part in parts if part.extents[axis] != Extent(0)] or parts[:1]
    total = sum((part.extents[axis] for part in parts[1:]), parts[0].extents[axis])
    if len(parts) == 1:
        return [step.last("Identity", parts[0]).with_rows(axis, total)]
    if all(part.axis is None for part in parts[:-1]):
        return [step.same(parts)[0].with_rows(axis, total)]
    whole = step.graph.emit("Concat", parts, {"axis": axis})[0]
    places = _compacted(step.graph, parts, axis)
    return [step.last("Gather", whole, places, axis=axis).with_rows(axis, total)]


def _compacted(graph: RowGraph, parts: Sequence[Value], axis: int) -> Value:
    """Return the position of each row in a concatenation of bounded tensors, valid rows first."""
    bounds = tuple(part.shape[axis] for part in parts)
    counts = tuple(part.extents[axis] for part in parts)

    def make() -> Value:
        rows = graph.constant(np.arange(sum(bounds)))
        places, start = rows, Extent(0)
        for bound, count in zip(bounds[:-1], counts[:-1], strict=True):
            start += count
            gap = count.times(-1) + bound
            if gap == Extent(0):
                continue
            is_after = graph.op("GreaterOrEqual", rows, graph.counted(start))
            skipped = graph.op("Where", is_after, graph.counted(gap), graph.integers(0))
            places = graph.op("Add", places, skipped)
        return places

    return graph.remember(("compacted", bounds, counts), make)


RULES: Mapping[str, Rule] = {
    "Concat": concat,
    "Expand": expand,
    "Flatten": flatten,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slice_rows,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
}
