"""1x1 convolution as a blocked matrix product in NCHW[x]c, with elementwise steps before it.

All pixels form one sequence, so a 7x7 image has 49 pixels and not 7 times 7: register tiles hardly
overhang. Input channels are processed in passes. The weights of one register tile of output
channels and one pass stay in L1 while all pixels of a task are multiplied with them; they are read
from memory once, and the sums wait in L2. Where pixels do not lie side by side (strides, padding,
several images), each task first packs the pixels of its strip. Packing also applies a prologue,
such as the batch normalisation and ReLU before DenseNet's convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm import tirx

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.packing import packing
from neocpu.schedules.convolutions.pointwise_kernel import Emitter
from neocpu.schedules.convolutions.pointwise_tiling import Tiling, output_blocks
from neocpu.schedules.convolutions.scheme_space import scheme_space
from neocpu.schedules.estimates.memory_traffic import cold_weights, fork_seconds, with_memory
from neocpu.schedules.estimates.register_tile import (
    TILE_CYCLES,
    broadcast_limit,
    step_cycles,
    steps_cycles,
    unrolled_limit,
)
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.vocabulary.layout import KernelLayout, ceil_div
from neocpu.schedules.vocabulary.scheme import PointwiseScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate, fold
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# Other layouts cost nothing in the median, and 4 % with the longest blocks of small images.
FOLD_PENALTY = 1.03

MAX_VECTORS = 6
# The largest share of padded output channels that a scheme may compute.
MAX_OVERHANG = 0.1
# The number of register tiles tried, best estimate first: of each width in channels, and in all.
# They have at most `MAX_PIXELS`, or `MOST_PIXELS` where multiply-adds broadcast pixels from memory.
TILES_PER_WIDTH, TILES, MAX_PIXELS, MOST_PIXELS = 3, 6, 12, 14
# The number of threads for which candidates are chosen, which hardly changes the best one.
NOMINAL_THREADS = 4
# The share of L2 for the pixels of a strip in one pass, beside weights and sums.
STRIP_L2 = 0.4
# The cycles of storing a vector of sums, of keeping it between passes, of packing one of pixels.
STORE_CYCLES, KEEP_CYCLES, PACK_CYCLES = 1.0, 2.0, 3.0


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether the template computes ``workload``: dense float32 1x1, channels in vectors."""
    return (
        workload.numerics.reads_float32
        and workload.kernel == (1, 1)
        and workload.groups == 1
        and min(workload.image_channels, workload.out_channels)
        >= target.dot_unit(workload.numerics).lanes
    )


def space(
    workload: Conv2dWorkload, target: CpuTarget, threads: int = NOMINAL_THREADS
) -> tuple[PointwiseScheme, ...]:
    """Return schemes for every pair of blocks; see `scheme_space`."""
    return scheme_space(workload, target, _variants(workload, target), estimate, threads)


def _variants(workload: Conv2dWorkload, target: CpuTarget) -> Iterator[PointwiseScheme]:
    """Yield schemes that differ in everything but the layouts, which have blocks of one vector."""
    lanes = target.dot_unit(workload.numerics).lanes
    channels = ceil_div(workload.in_channels, lanes) * lanes
    tiles = []
    for vectors in range(1, MAX_VECTORS + 1):
        if _overhang(workload, vectors * lanes, lanes) > MAX_OVERHANG:
            continue
        same_width = [
            PointwiseScheme(
                lanes,
                lanes,
                reg_n=reg_n,
                reg_oc=vectors * lanes,
                ic_block=channels,
                strip=1 << 20,
                oc_split=False,
            )
            for reg_n in range(1, _pixel_limit(workload, vectors, target) + 1)
        ]
        same_width.sort(key=lambda scheme: estimate(workload, scheme, target))
        tiles += same_width[:TILES_PER_WIDTH]
    tiles.sort(key=lambda scheme: estimate(workload, scheme, target))
    for tile in tiles[:TILES]:
        for ic_block in _ic_blocks(workload, tile, channels, target):
            for oc_split in (False, True):
                scheme = replace(tile, ic_block=ic_block, oc_split=oc_split)
                yield replace(scheme, strip=_strip(workload, scheme, target))


def _overhang(workload: Conv2dWorkload, reg_oc: int, lanes: int) -> float:
    vectors = ceil_div(workload.out_channels, lanes) * lanes
    return ceil_div(vectors, reg_oc) * reg_oc / vectors - 1.0


def _pixel_limit(workload: Conv2dWorkload, vectors: int, target: CpuTarget) -> int:
    """Return the most pixels of a register tile that fit the registers and the image."""
    limit = unrolled_limit if vectors == 1 else broadcast_limit
    pixels = workload.batch * workload.out_height * workload.out_width
    unit = target.dot_unit(workload.numerics)
    most = MOST_PIXELS if unit.broadcasts_from_memory else MAX_PIXELS
    return min(limit(vectors, unit), pixels, most)


def _ic_blocks(
    workload: Conv2dWorkload, tile: PointwiseScheme, channels: int, target: CpuTarget
) -> Iterator[int]:
    """Yield blocks of input channels: all if their weights for a register tile fit L1, else blocks
    that fill L1 or half of it, and all if a step takes as long as loading its weights from L2.
    """
    each = tile.reg_oc * bytes_of(workload.numerics.weights)
    whole = target.l1d // each // tile.ic_bn * tile.ic_bn
    if channels <= whole:
        yield channels
        return
    if tile.reg_n > MAX_PIXELS:
        yield channels
    yield from (whole, max(whole // 2 // tile.ic_bn * tile.ic_bn, tile.ic_bn))


def _strip(workload: Conv2dWorkload, scheme: PointwiseScheme, target: CpuTarget) -> int:
    """Return the most register tiles whose pixels stay in L2 while one pass computes with them."""
    whole = Tiling(workload, scheme, target.dot_unit(workload.numerics).lanes)
    fitting = int(STRIP_L2 * target.l2) // (whole.panel_bytes // whole.strip_blocks)
    return max(1, min(fitting, whole.blocks))


def argument_shapes(workload: Conv2dWorkload, scheme: PointwiseScheme) -> Arguments:
    """The weights are ``(O / reg_oc, I, reg_oc)``, with O and I padded to whole blocks."""
    ins = ceil_div(workload.in_channels, scheme.ic_bn) * scheme.ic_bn
    weights = (output_blocks(workload, scheme), ins, scheme.reg_oc)
    return convolution_arguments(workload, scheme, weights)


def weight_layout(workload: Conv2dWorkload, scheme: PointwiseScheme) -> KernelLayout:
    return KernelLayout(scheme.ic_bn, scheme.reg_oc)


pack_weights = packing(weight_layout, argument_shapes)


def lower(
    workload: Conv2dWorkload, scheme: PointwiseScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest goes over strips of the row of all pixels and groups of output channels::

        for group, strip in parallel:
            for turn in range(passes):                            # ic_block input channels each
                panel[tile, ic, reg_n] = prologue(data)           # in L2, only if pixels are packed
                for oc_block in group, tile in strip:
                    acc[reg_n, reg_oc] = 0 or sums[oc_block, tile]      # registers
                    for ic: acc += broadcast(panel[tile, ic]) * weights[oc_block, ic]   # in L1
                    sums[oc_block, tile] = acc, or at last output[…] = epilogue(acc)

    With ``oc_split`` a group's channels are a thread's share of all, and a packed panel is made by
    a parallel loop of its own.
    """
    tiling = Tiling(workload, scheme, target.dot_unit(workload.numerics).lanes, threads)
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda data, weights, *rest: Emitter(tiling, target, data, weights, rest).emit(),
    )


def estimate(
    workload: Conv2dWorkload, scheme: PointwiseScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's products and packing, and weight transfers."""
    tiling = Tiling(workload, scheme, target.dot_unit(workload.numerics).lanes, threads)
    busy = tiling.busiest_share * tiling.blocks * tiling.oc_blocks * _tile_cycles(tiling, target)
    if tiling.packs:
        each = PACK_CYCLES + steps_cycles(workload.prologue)
        packing = tiling.blocks * scheme.reg_n * tiling.chunks * each
        if tiling.shares_panel:
            busy += packing / threads + fork_seconds(threads, target) * target.frequency
        else:
            busy += packing * ceil_div(tiling.strips, threads) / tiling.strips
    fetched = _fetched_bytes(tiling, target)
    cold = cold_weights(tiling.weight_bytes, target, tiling.groups)
    return with_memory(busy / target.frequency, fetched, cold, target)


def _tile_cycles(tiling: Tiling, target: CpuTarget) -> float:
    """Return the cycles of one register tile, over all passes."""
    scheme, steps = tiling.scheme, tiling.workload.in_channels
    # Half of a pass's weights: nothing else stays in L1, so they may use all of it.
    numerics = tiling.workload.numerics
    unit, size = target.dot_unit(numerics), bytes_of(numerics.weights)
    size *= tiling.pass_chunks * tiling.lanes * scheme.reg_oc // 2
    step = step_cycles(tiling.vectors, scheme.reg_n, unit, target, size)
    each_sum = STORE_CYCLES + steps_cycles(tiling.workload.epilogue)
    each_sum += KEEP_CYCLES * (tiling.passes - 1)
    sums = tiling.vectors * scheme.reg_n
    # A tile with no more sums than multiply-adds in flight waits for their latency and not for the
    # ports; the next tile's begin meanwhile. (Measured on a Zen 3: 0 cycles, and 15 to 24 for
    # larger tiles. AVX-512 and NEON have registers for larger tiles, which are 1.2 times as fast on
    # a Zen 5.)
    few = sums <= unit.latency * unit.per_cycle and not unit.broadcasts
    between = 0 if few else TILE_CYCLES
    return steps * step + sums * each_sum + between * tiling.passes


def _fetched_bytes(tiling: Tiling, target: CpuTarget) -> float:
    tasks, half = tiling.tasks_per_thread, target.l2 // 2
    group = tiling.weight_bytes / tiling.groups
    weights = group * (tasks if group > half else ceil_div(tasks, tiling.strips))
    pixels = tiling.panel_bytes * tiling.passes
    if tiling.panel_bytes > half:  # L2 has lost them before the next channels need them
        pixels *= tiling.group_blocks
    sums = 2 * tiling.sum_bytes * (tiling.passes - 1) if tiling.sum_bytes > half else 0
    return weights + tasks * (pixels + sums)


TEMPLATE = ConvTemplate(
    scheme=PointwiseScheme,
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
    wider_space=space,
)
