"""Transposes of tensors of any rank, in square tiles in registers, read along the input's last axis
and written along the output's: both in whole vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.builder import (
    build_kernel,
    digits,
    flat_bits,
    span,
    strides_of,
    task_loop,
    transpose,
)
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

# The number of elements of the input's last axis in one task: its output stays in L2.
TASK_ELEMENTS = 512
# The widest type in tiles: a tile of whole vectors of bytes would need as many vectors as lanes.
MAX_EDGE, LEAST_EDGE = 16, 4


def permutation_of(block: Any) -> tuple[int, ...] | None:
    """Return a block's axes in the order of its writes; None if it does more than move a tensor."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, TensorLoad):
        return None
    written, read = list(store.indices), list(store.value.indices)
    if len(written) != len(read) or store.value.source.same_as(store.buffer):
        return None
    places = [[i for i, own in enumerate(read) if own.same_as(index)] for index in written]
    if any(len(place) != 1 for place in places):
        return None
    axes = tuple(place[0] for place in places)
    extents = [_constant(store.buffer.shape[i]) for i in range(len(axes))]
    source = [_constant(store.value.source.shape[axis]) for axis in axes]
    return axes if None not in extents and extents == source else None


def _constant(extent: Any) -> int | None:
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def lower_permutation(
    shape: Sequence[int], axes: Sequence[int], dtype: str, target: CpuTarget
) -> Any | None:
    """Return the scheduled ``PrimFunc(data, output)`` of ``numpy.transpose(data, axes)``.

    None where elements are not moved from one last axis to another, or where either is too short
    for tiles::

        parallel other axes · range of the last axis read
          for tile along the last axis written: for tile of the range:
            read, transpose in registers, write           # the last tiles overlap others
    """
    data, order = _merged(shape, axes)
    if 0 in shape or not order or order[-1] == len(data) - 1:
        return None
    across, along = order[-1], len(data) - 1
    kind = f"uint{8 * bytes_of(dtype)}"
    edge = LEAST_EDGE
    while edge * 2 <= min(MAX_EDGE, target.lanes(kind), data[across], data[along]):
        edge *= 2
    if edge > min(target.lanes(kind), data[across], data[along]):
        return None
    source, result = strides_of(data), strides_of([data[axis] for axis in order])
    into = {axis: result[place] for place, axis in enumerate(order)}
    others = [axis for axis in range(len(data)) if axis not in (across, along)]
    tiles = ceil_div(data[along], edge)
    per_task = ceil_div(tiles, ceil_div(data[along], TASK_ELEMENTS))
    ranges, size = ceil_div(tiles, per_task), math.prod(data)
    outer = math.prod(data[axis] for axis in others)

    def body(given: Any, written: Any) -> None:
        values, output = flat_bits(given), flat_bits(written)
        with task_loop(outer * ranges, size) as task:
            at = digits(task // ranges, [data[axis] for axis in others])
            first = task % ranges * per_task
            start, end = (
                T.Bind(sum((i * strides[axis] for i, axis in zip(at, others, strict=True)), 0))
                for strides in (source, into)
            )
            with (
                T.serial(ceil_div(data[across], edge)) as column,
                T.serial(T.min(per_task, tiles - first)) as step,
            ):
                x = T.Bind(T.min(column * edge, data[across] - edge))
                y = T.Bind(T.min((first + step) * edge, data[along] - edge))
                here = T.Bind(start + x * source[across] + y)
                there = T.Bind(end + x + y * into[along])
                rows = [T.Bind(values[span(here + k * source[across], edge)]) for k in range(edge)]
                for k, row in enumerate(transpose(rows)):
                    T.buffer_store(output, row, [span(there + k * into[along], edge)])

    result_shape = tuple(shape[axis] for axis in axes)
    return build_kernel((("data", tuple(shape), dtype), ("output", result_shape, dtype)), body)


def _merged(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return a shape and its permutation, after merging axes that stay adjacent."""
    kept = [axis for axis in axes if shape[axis] > 1]
    groups: list[list[int]] = []
    long = sorted(kept)
    for axis in kept:
        place = long.index(axis)
        if groups and place and groups[-1][-1] == long[place - 1]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    ordered = sorted(groups)
    data = [math.prod(shape[axis] for axis in group) for group in ordered]
    return data, [ordered.index(group) for group in groups]
