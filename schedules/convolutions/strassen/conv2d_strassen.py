"""1x1 convolution by Strassen's algorithm in NCHW[x]c: seven products instead of eight.

A block consists of two tiles of pixels, two halves of the input channels and two tiles of output
channels; an eighth of its multiply-adds is saved. The overhead is small: sums of weights are made
when weights are packed, sums of pixels once for all output channels, and sums of products in
registers. The price is larger weights, 7 / 4 of the given ones, and larger rounding errors.

The algorithm is applied only once and not within itself: a product has half of the input channels,
and a quarter would leave too little work between beginning and storing a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from neocpu.schedules.convolutions.pointwise_tiling import PIXEL_SUMS, PRODUCTS, StrassenTiling
from neocpu.schedules.convolutions.scheme_space import scheme_space
from neocpu.schedules.convolutions.strassen.strassen_kernel import KEPT, Emitter
from neocpu.schedules.convolutions.winograd.filters import flushed
from neocpu.schedules.estimates.memory_traffic import cold_weights, with_memory
from neocpu.schedules.estimates.register_tile import (
    TILE_CYCLES,
    broadcast_limit,
    step_cycles,
    steps_cycles,
    unrolled_limit,
)
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.vocabulary.layout import StrassenLayout, ceil_div
from neocpu.schedules.vocabulary.scheme import StrassenScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate, fold
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The same as for 1x1 convolutions, which have the same loads and stores.
FOLD_PENALTY: Final = 1.03
# The largest norm-wise error as a multiple of direct summation's.
ERROR_FACTOR: Final = 4.0
# Vectors of input channels in a half: with fewer, beginning and storing tiles costs the gain.
LEAST_HALF: Final = 2
# The largest exponent of the powers of two that make channels alike.
MOST_BITS: Final = 60
MAX_VECTORS: Final = 2
# The largest share of padded output channels that a scheme may compute.
MAX_OVERHANG: Final = 0.05
# The number of schemes tried, best estimate first, and the most pixels of a register tile.
SCHEMES, MOST_PIXELS = 8, 14
# The number of threads for which candidates are chosen, which hardly changes the best one.
NOMINAL_THREADS: Final = 2
# The share of L2 for the pixels of a strip and their sums, beside weights.
STRIP_L2: Final = 0.8
# The cycles of storing a vector of sums, of keeping one in L1, and of adding and packing pixels'.
STORE_CYCLES, KEEP_CYCLES, ADD_CYCLES, PACK_CYCLES = 1.0, 4.0, 4.0, 1.5


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether the template computes ``workload``: float32 1x1, no strides or padding."""
    return (
        workload.numerics.reads_float32
        and workload.kernel == workload.stride == workload.dilation == (1, 1)
        and not any(workload.padding)
        and workload.frames is None
        and workload.groups == 1
        and workload.in_channels >= 2 * LEAST_HALF * target.dot_unit(workload.numerics).lanes
        and workload.height * workload.width > 1
        and bool(_widths(workload, target))
    )


def error_factor(scheme: StrassenScheme, workload: Conv2dWorkload) -> float:
    return ERROR_FACTOR


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[StrassenScheme, ...]:
    """Return schemes for every pair of blocks; see `scheme_space`."""
    variants = _variants(workload, target)
    return scheme_space(workload, target, variants, estimate, NOMINAL_THREADS)


def _variants(workload: Conv2dWorkload, target: CpuTarget) -> Iterator[StrassenScheme]:
    """Yield schemes that differ in everything but the layouts, which have blocks of one vector."""
    lanes = target.dot_unit(workload.numerics).lanes
    half = workload.in_channels // (2 * lanes) * lanes
    found = []
    for vectors in _widths(workload, target):
        for reg_n in range(1, _pixel_limit(workload, vectors, target) + 1):
            for oc_split in (False, True):
                tile = StrassenScheme(
                    lanes,
                    lanes,
                    reg_n=reg_n,
                    reg_oc=vectors * lanes,
                    ic_half=half,
                    strip=1 << 20,
                    oc_split=oc_split,
                )
                found.append(replace(tile, strip=_strip(workload, tile, target)))
    found.sort(key=lambda scheme: estimate(workload, scheme, target, NOMINAL_THREADS))
    yield from found[:SCHEMES]


def _widths(workload: Conv2dWorkload, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of output channels of a tile; two waste little computation."""
    existing = ceil_div(workload.out_channels, target.dot_unit(workload.numerics).lanes)
    return [
        vectors
        for vectors in range(1, MAX_VECTORS + 1)
        if ceil_div(existing, 2 * vectors) * 2 * vectors <= (1 + MAX_OVERHANG) * existing
    ]


def _pixel_limit(workload: Conv2dWorkload, vectors: int, target: CpuTarget) -> int:
    """Return the most pixels of a register tile that fit the registers and half of the image."""
    limit = unrolled_limit if vectors == 1 else broadcast_limit
    pixels = workload.out_height * workload.out_width
    return min(limit(vectors, target.dot_unit(workload.numerics)), pixels // 2, MOST_PIXELS)


def _strip(workload: Conv2dWorkload, scheme: StrassenScheme, target: CpuTarget) -> int:
    """Return the most blocks whose pixels and their sums stay in L2."""
    whole = StrassenTiling(workload, scheme, target.dot_unit(workload.numerics).lanes)
    blocks = whole.tiles.strip_blocks
    return max(1, min(int(STRIP_L2 * target.l2) * blocks // whole.panel_bytes, blocks))


def argument_shapes(workload: Conv2dWorkload, scheme: StrassenScheme) -> Arguments:
    """The weights are ``(blocks, rows, reg_oc)``: for two register tiles of output channels, the
    rows of all products in the order of multiplication, for each tile those of the remaining
    channels, and the factors of pixels and of sums.
    """
    tiling = StrassenTiling(workload, scheme, lanes=1)
    shape = (tiling.tiles.oc_blocks, tiling.last_row + 1, scheme.reg_oc)
    return convolution_arguments(workload, scheme, shape)


def weight_layout(workload: Conv2dWorkload, scheme: StrassenScheme) -> StrassenLayout:
    return StrassenLayout(scheme.ic_half, scheme.reg_oc)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: StrassenScheme
) -> NDArray[np.generic]:
    """Pack ``(O, I, 1, 1)`` weights in the layout of `argument_shapes`, bit for bit as
    `weight_kernels`: sums are in float64, and subnormal weights become zero.
    """
    (blocks, _, reg_oc), dtype = argument_shapes(workload, scheme)[1]
    outs, half = len(weights), scheme.ic_half
    padded = np.pad(flushed(weights[:, :, 0, 0]), ((0, blocks * 2 * reg_oc - outs), (0, 0)))
    tiles = padded.astype(np.float64).reshape(blocks, 2, reg_oc, -1)
    sums = _power_of_two(tiles[:, 0], tiles[:, 1], axis=2)  # (blocks, reg_oc)
    tiles[:, 1] *= sums[:, :, None]
    first, second, rest = np.split(tiles, (half, 2 * half), axis=3)
    pixels = _power_of_two(second, first, axis=(0, 1, 2))  # (half,)
    first, second = (part.transpose(1, 0, 3, 2) for part in (first, second))
    p, q, (r, s) = *first, second / pixels[:, None]
    far = s - q
    fourth = (r - far - p) * pixels[:, None]
    factors = np.zeros((blocks, -(-half // reg_oc) * reg_oc))
    factors[:, :half] = pixels
    parts = (p, second[0], far + p, far, fourth, q - p, s, *rest.transpose(1, 0, 3, 2))
    packed = [*parts, factors.reshape(blocks, -1, reg_oc), 1 / sums[:, None]]
    return np.ascontiguousarray(np.concatenate(packed, axis=1).astype(dtype))


def _power_of_two(
    large: NDArray[np.float64], small: NDArray[np.float64], axis: int | tuple[int, ...]
) -> NDArray[np.float64]:
    """Return a power of two that makes ``small`` about as large as ``large``; 1 if either is 0."""
    norms = [np.sqrt((part**2).sum(axis=axis)) for part in (large, small)]
    known = (norms[0] > 0) & (norms[1] > 0)
    exponent = np.log2(np.where(known, norms[0], 1.0)) - np.log2(np.where(known, norms[1], 1.0))
    factors: NDArray[np.float64] = np.exp2(np.clip(np.round(exponent), -MOST_BITS, MOST_BITS))
    return factors


def lower(
    workload: Conv2dWorkload, scheme: StrassenScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest goes over strips of the row of all pixels and groups of output channels::

    for group, strip, image in parallel:
        for block in strip:                              # two register tiles of pixels
            added[4, ic, reg_n] = sums of pixels                                # in L2
        for oc_block in group, block in strip:           # two register tiles each way
            for product in range(7):
                acc[reg_n, reg_oc] = 0 or kept sums                      # registers
                for ic in half: acc += broadcast(data or added) * weights
                kept = acc, or output[…] = epilogue(acc + kept)          # kept in L1
    """
    tiling = StrassenTiling(workload, scheme, target.dot_unit(workload.numerics).lanes, threads)
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda data, weights, *rest: Emitter(tiling, target, data, weights, rest).emit(),
    )


def estimate(
    workload: Conv2dWorkload, scheme: StrassenScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's sums and products, and weight transfers."""
    tiling = StrassenTiling(workload, scheme, target.dot_unit(workload.numerics).lanes, threads)
    tiles, images = tiling.tiles, workload.batch
    shares = ceil_div(images * tiles.tasks, threads) / tiles.tasks
    if images == 1:
        shares = tiles.busiest_share
    blocks = shares * tiles.blocks
    added = tiling.half * scheme.reg_n * tiles.groups * _pixel_cycles(tiling)
    busy = blocks * (tiles.oc_blocks * _block_cycles(tiling, target) + added)
    cold = cold_weights(tiling.weight_bytes, target, tiles.groups, images)
    return with_memory(busy / target.frequency, _fetched_bytes(tiling, target), cold, target)


def _pixel_cycles(tiling: StrassenTiling) -> float:
    """Return the cycles of adding up vectors of four channels, and of packing them."""
    cycles = PIXEL_SUMS * ADD_CYCLES
    if tiling.packs:
        cycles += PIXEL_SUMS * (PACK_CYCLES + steps_cycles(tiling.workload.prologue))
    return cycles


def _block_cycles(tiling: StrassenTiling, target: CpuTarget) -> float:
    workload, scheme = tiling.workload, tiling.scheme
    unit = target.dot_unit(workload.numerics)
    size = tiling.weight_bytes // tiling.tiles.oc_blocks
    step = step_cycles(tiling.vectors, scheme.reg_n, unit, target, size)
    steps = PRODUCTS * scheme.ic_half + 4 * tiling.rest
    each_sum = 4 * (STORE_CYCLES + steps_cycles(workload.epilogue)) + KEPT * KEEP_CYCLES
    return steps * step + tiling.vectors * scheme.reg_n * each_sum + PRODUCTS * TILE_CYCLES


def _fetched_bytes(tiling: StrassenTiling, target: CpuTarget) -> float:
    tiles, half = tiling.tiles, target.l2 // 2
    tasks = ceil_div(tiling.workload.batch * tiles.tasks, tiling.threads)
    group = tiling.weight_bytes / tiles.groups
    weights = group * (tasks if group > half else ceil_div(tasks, tiles.strips))
    pixels = tasks * tiling.panel_bytes
    return weights + (pixels * tiles.group_blocks if tiling.panel_bytes > target.l2 else pixels)


TEMPLATE = ConvTemplate(
    scheme=StrassenScheme,
    version=1,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
    weight_layout=weight_layout,
    fold=fold,
    fold_penalty=FOLD_PENALTY,
    prologues=True,
    error_factor=error_factor,
)
