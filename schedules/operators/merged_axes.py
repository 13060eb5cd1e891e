"""Adjacent axes merged into one, for kernels that access all tensors along them in order.

A row of 56 elements is not a whole number of vectors, and the next row begins within a vector; a
map of 56 by 56 is a whole number. Fusing the loops would not suffice: after a split, TVM does not
see that the pieces of their quotients and remainders are consecutive.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import Schedule
from tvm.tirx import IndexMap

from neocpu.schedules.operators.block_accesses import Stage


def merge_axes(sch: Schedule, stage: Stage, lanes: int) -> None:
    """Merge a stage's last axes in every tensor that has them, if they then fill vectors.

    TVM's ``ScheduleError`` is passed on.
    """
    start = _first_merged(stage, lanes)
    if start is None:
        return
    block = sch.get_sblock(stage.name)
    node = sch.get(block)
    merged = [var for var in stage.variables[start:] if var is not None]
    places, dtype = _places(node, merged[0]), str(merged[0].ty.dtype)
    for kind, regions in (("read", node.reads), ("write", node.writes)):
        for number, region in enumerate(regions):
            if (place := places.get(region.source)) is not None:
                shape = tuple(map(int, region.source.shape))
                sch.transform_layout(block, (kind, number), _flattened(shape, place, dtype))
    extents = tuple(int(each.dom.extent) for each in node.iter_vars)
    first = next(i for i, each in enumerate(node.iter_vars) if each.var.same_as(merged[0]))
    sch.transform_block_layout(block, _flattened(extents, first, dtype))


def _first_merged(stage: Stage, lanes: int) -> int | None:
    """Return the first loop to merge; None if merging is not worthwhile."""
    last = max((i for i, extent in enumerate(stage.extents) if extent > 1), default=None)
    if last is None or stage.is_reduction or stage.extents[last] % lanes == 0:
        return None
    for start in range(last - 1, -1, -1):
        if not stage.contiguous_from(start):
            return None
        if stage.extents[start] > 1 and math.prod(stage.extents[start:]) % lanes == 0:
            return start
    return None


def _places(node: Any, first: Any) -> dict[Any, int]:
    """Return the dimension that ``first`` indexes, for each buffer that it indexes."""
    places = {}

    def visit(access: Any) -> None:
        for place, index in enumerate(access.indices):
            if index.same_as(first):
                places[access.source] = place

    tvm_ffi.structural_walk(node.body.value, (TensorLoad, visit))
    for place, index in enumerate(node.body.indices):
        if index.same_as(first):
            places[node.body.buffer] = place
    return places


def _flattened(shape: tuple[int, ...], first: int, dtype: str) -> IndexMap:
    """Return the index map that merges all dimensions from ``first`` on."""

    def flattened(*indices: Any) -> list[Any]:
        flat: Any = 0
        for index, extent in zip(indices[first:], shape[first:], strict=True):
            flat = flat * extent + index
        return [*indices[:first], flat]

    return IndexMap.from_func(flattened, ndim=len(shape), index_dtype=dtype)
