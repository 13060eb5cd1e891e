"""Schedules of one reduction: along contiguous memory, or across vectors of independent sums."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import Schedule

from neocpu.schedules.operators.block_accesses import Stage
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
    """Return the partial results of a reduction over ``extent`` contiguous elements; 1 for none.

    There is one vector, or several if the reduction is long enough to pay for adding them up.
    """
    wide = VECTORS * lanes
    if extent >= 16 * wide and extent % wide == 0:
        return wide
    divisors = [d for d in range(1, lanes + 1) if extent % d == 0]
    # Vectors of 14 are loaded in three pieces.
    powers = [d for d in divisors if d & (d - 1) == 0]
    return max(powers) if max(powers) >= LEAST_LANES else max(divisors)


def split_contiguous(sch: Schedule, stage: Stage, lanes: int) -> None:
    """Split a reduction along contiguous memory into a vector of partial results.

    ::

        for row: for k: sum[row] += x[row, k]

        for row:
            for ko: for ki in lanes: part[row, ki] += x[row, ko * lanes + ki]
            for ki: sum[row] += part[row, ki]
    """
    first = stage.reduced.index(True)
    if not all(stage.reduced[first:]) or not _reduces_contiguously(stage):
        return
    # Only the innermost loop is split: indices into a fused loop that is split again are not
    # consecutive.
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


def schedule_stage(sch: Schedule, stage: Stage, lanes: int, parallel: bool) -> None:
    """Schedule the loops of a reduction.

    ::

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
            # No vector length divides the loop; as the innermost loop, LLVM vectorises it and its
            # remainder.
            inner = [loops[axis]]
    order = [*spatial, *reduced, *inner]
    if len(order) > 1:
        sch.reorder(*order)
    if parallel and spatial and stage.volume >= PARALLEL_ELEMENTS:
        sch.parallel(sch.fuse(*spatial))
    sch.decompose_reduction(block, reduced[0])
