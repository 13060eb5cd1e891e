"""Estimates for Winograd convolutions: products, transforms, and memory."""

from __future__ import annotations

from functools import lru_cache

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.winograd.filters import Filter
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.estimates.memory_traffic import cold_weights, fork_seconds, with_memory
from neocpu.schedules.estimates.register_tile import TILE_CYCLES, step_cycles, steps_cycles
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

# Fitted to kernels on one thread of a Zen 3: the cycles of an addition in a transform, and of
# moving one vector of its tile into place.
ADDITION_CYCLES, POINT_CYCLES = 0.95, 0.8
# The cycles per byte that another thread transformed, or that left L2 in between.
SHARE_CYCLES = 0.1
# The least cycles of a step: with just enough sums to hide an addition, one wait delays all.
STEP_CYCLES = 4.6
# For integers, the cycles of each vector of weights, which wide register tiles read again for few
# tiles. At 14 and 28 pixels, tiles of two by 7 to 10 were 1.05 to 1.2 times as fast as four by 4 or
# 5 on a Zen 4.
WEIGHT_CYCLES = 0.3
# The cycles of storing a vector of sums.
STORE_CYCLES = 1
# The cycles of transforming a vector of weights, from nine bytes each to 36 points.
MADE_CYCLES = 190


def estimated_seconds(tiling: Tiling, target: CpuTarget) -> float:
    """Return analytic seconds: products and transforms of the busiest thread, and memory."""
    scheme, threads = tiling.scheme, tiling.threads
    products, outputs, inputs = _work(tiling, target)
    if scheme.oc_split:  # there are two parallel loops, the first with equal tasks
        before = (inputs + tiling.input_bytes * SHARE_CYCLES) / threads
        before += fork_seconds(threads, target) * target.frequency
        inputs = 0.0
    else:
        before = 0.0
        if tiling.strip_bytes + tiling.group_bytes > target.l2:
            moved = tiling.input_bytes + tiling.strips * tiling.oc_blocks * tiling.sum_bytes
            inputs += moved * SHARE_CYCLES
    busy = before + tiling.busiest_share * (products + outputs + inputs)
    fetched = _fetched_bytes(tiling, target)
    parts = tiling.groups if scheme.oc_split else 1
    cold = cold_weights(tiling.weight_bytes, target, parts)
    return with_memory(busy / target.frequency, fetched, cold, target)


def _fetched_bytes(tiling: Tiling, target: CpuTarget) -> float:
    tasks = tiling.tasks_per_thread
    if not tiling.scheme.oc_split:
        return tiling.weight_bytes * (tasks if tiling.weight_bytes > target.l2 else 1)
    group = tiling.weight_bytes / tiling.groups
    weights = group * (tasks if group > target.l2 else ceil_div(tasks, tiling.strips))
    # Every group of channels reads the input again, half of which L2 has kept.
    again = tasks * tiling.strip_bytes / 2 if tiling.input_bytes > target.l2 else 0.0
    return weights + again


def _work(tiling: Tiling, target: CpuTarget) -> tuple[float, float, float]:
    """Return the cycles of all products, output transforms and input transforms on one thread."""
    scheme = tiling.scheme
    vectors = scheme.reg_oc // tiling.lanes
    steps = tiling.chunks * tiling.chunk_steps
    numerics, group = tiling.domain.numerics, tiling.domain.group
    size = steps * group * scheme.reg_oc * bytes_of(numerics.weights)
    unit = target.dot_unit(numerics)
    products = outputs = inputs = 0.0
    for points, count, reg_n in tiling.register_tiles(scheme.reg_n):
        step = step_cycles(vectors, reg_n, unit, target, size)
        step = max(step, STEP_CYCLES) + WEIGHT_CYCLES * vectors * tiling.domain.is_of_integers
        stored = STORE_CYCLES * vectors * reg_n + TILE_CYCLES
        each = steps * step + stored * (tiling.parts if tiling.on_the_fly else 1)
        products += points * tiling.oc_blocks * count * each
    if tiling.on_the_fly:
        products += tiling.strips * tiling.oc_blocks * steps * vectors * MADE_CYCLES
    for tiles in tiling.edges.regions if tiling.edges else (tiling,):
        before, after = _transform_cycles(*tiles.filters)
        down, across = tiles.filters
        epilogue = down.tile * across.tile * steps_cycles(tiling.workload.epilogue)
        outputs += tiles.tiles * tiling.oc_vectors * (after + epilogue)
        inputs += tiles.tiles * tiling.chunks * before
    return products, outputs, inputs


@lru_cache(maxsize=256)
def _transform_cycles(down: Filter, across: Filter) -> tuple[float, float]:
    points = down.span * across.span
    inputs = across.span * down.input_additions + down.span * across.input_additions
    outputs = across.span * down.output_additions + down.tile * across.output_additions
    return (
        TILE_CYCLES + ADDITION_CYCLES * inputs + POINT_CYCLES * points,
        TILE_CYCLES + ADDITION_CYCLES * outputs + POINT_CYCLES * points,
    )
