"""Schedules of a stage: of a reduction, along contiguous memory or across vectors of independent
sums, and of a stage whose last axes become one axis.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import Schedule
from tvm.tirx import IndexMap

from neocpu.schedules.operators.block_accesses import Stage, nodes_of
from neocpu.schedules.tir.builder import PARALLEL_ELEMENTS
from neocpu.schedules.vocabulary.layout import ceil_div

# The number of independent sums: four vectors hide the latency of an addition.
VECTORS = 4
LEAST_LANES = 4


def vector_factor(extent: int, lanes: int) -> int:
    """Return the iterations to compute as one (wide) vector; 1 if none divides ``extent`` well."""
    factors = [d for d in range(2, VECTORS * lanes + 1) if extent % d == 0]
    full = [d for d in factors if d >= 0.75 * lanes * ceil_div(d, lanes) or d == extent]
    return max(full, default=1)


def partial_lanes(extent: int, lanes: int) -> int:
    """Return the partial results of a contiguous reduction: a vector, several if long, or 1."""
    wide = VECTORS * lanes
    if extent >= 16 * wide and extent % wide == 0:
        return wide
    divisors = [d for d in range(1, lanes + 1) if extent % d == 0]
    # Vectors of 14 are loaded in three pieces.
    powers = [d for d in divisors if d & (d - 1) == 0]
    return max(powers) if max(powers) >= LEAST_LANES else max(divisors)


def split_contiguous(sch: Schedule, stage: Stage, lanes: int) -> None:
    """Split a reduction along contiguous memory into a vector of partial results::

    for row: for k: sum[row] += x[row, k]

    for row:
        for ko: for ki in lanes: part[row, ki] += x[row, ko * lanes + ki]
        for ki: sum[row] += part[row, ki]
    """
    first = stage.reduced.index(True)
    if not all(stage.reduced[first:]) or not _reduces_contiguously(stage):
        return
    # Only the innermost loop is split: indices into a fused one would not be consecutive.
    factor = partial_lanes(stage.extents[-1], lanes)
    if factor < LEAST_LANES:
        return
    block = sch.get_sblock(stage.name)
    _, lane = sch.split(sch.get_loops(block)[-1], [None, factor])
    sch.rfactor(lane, len(sch.get(block).body.indices))


def _reduces_contiguously(stage: Stage) -> bool:
    """Return whether the innermost loop reads consecutive elements."""
    var = stage.variables[-1]
    if var is None or stage.irregular or stage.conditions:
        return False
    strides = [access.stride(var) for access in stage.accesses[1:]]
    return 1 in strides and all(stride in (0, 1) for stride in strides)


def schedule_reduction(sch: Schedule, stage: Stage, lanes: int, parallel: bool) -> None:
    """Schedule the loops of a reduction::

    for outer in parallel:
        for vectors of the innermost spatial loop:
            sum[lanes] = 0
            for k: sum[lanes] += ...        # the vector innermost, where memory allows
    """
    block = sch.get_sblock(stage.name)
    loops = list(sch.get_loops(block))[stage.shared_loops :]
    axis = stage.vector_axis()
    spatial = [loop for i, loop in enumerate(loops) if not stage.reduced[i] and i != axis]
    reduced = [loop for loop, is_reduced in zip(loops, stage.reduced, strict=True) if is_reduced]
    inner: list[Any] = []
    if axis is not None:
        factor = vector_factor(stage.extents[axis], lanes)
        if factor > 1:
            rest, vector = sch.split(loops[axis], [None, factor])
            sch.vectorize(vector)
            spatial.append(rest)
            inner = [vector]
        else:
            # No vector length divides the loop: LLVM vectorises it, innermost, and its remainder.
            inner = [loops[axis]]
    order = [*spatial, *reduced, *inner]
    if len(order) > 1:
        sch.reorder(*order)
    if parallel and spatial and stage.volume >= PARALLEL_ELEMENTS:
        sch.parallel(sch.fuse(*spatial))
    sch.decompose_reduction(block, reduced[0])


def merge_axes(sch: Schedule, stage: Stage, lanes: int) -> None:
    """Merge a stage's last axes in all tensors, if they fill vectors; may raise ScheduleError."""
    start = _first_merged(stage, lanes)
    if start is None:
        return
    block = sch.get_sblock(stage.name)
    node = sch.get(block)
    if not all(isinstance(each.dom.extent, tirx.IntImm) for each in node.iter_vars):
        return  # no index map into an axis of any length can be inverted
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
    loads = nodes_of(node.body.value, TensorLoad)
    accesses = [(load.source, load.indices) for load in loads]
    return {
        buffer: place
        for buffer, indices in (*accesses, (node.body.buffer, node.body.indices))
        for place, index in enumerate(indices)
        if index.same_as(first)
    }


def _flattened(shape: tuple[int, ...], first: int, dtype: str) -> IndexMap:
    def flattened(*indices: Any) -> list[Any]:
        flat: Any = 0
        for index, extent in zip(indices[first:], shape[first:], strict=True):
            flat = flat * extent + index
        return [*indices[:first], flat]

    return IndexMap.from_func(flattened, ndim=len(shape), index_dtype=dtype)
