"""Direct convolution in NCHW[x]c: the paper's Algorithm 1 with a two-dimensional register tile.

The kernel keeps ``reg_oh * reg_n * oc_bn`` sums in vector registers. For each input channel and
kernel tap it loads ``oc_bn`` weights once and multiplies them with ``reg_oh * reg_n`` broadcast
pixels. It goes beyond the paper with several output rows and several vectors per tile, block
factors and tile widths that need not divide, groups, and padding without a pass over memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from tvm import tirx

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.direct_kernel import (
    build,
    pads_image_once,
    reads_rows_by_lane,
    rows_first,
    strip_copies,
    strip_rows,
)
from neocpu.schedules.convolutions.packing import packing
from neocpu.schedules.estimates.memory_traffic import (
    cold_weights,
    conflicts_in_l2,
    fork_seconds,
    with_memory,
)
from neocpu.schedules.estimates.register_tile import (
    TILE_CYCLES,
    step_cycles,
    steps_cycles,
    unrolled_limit,
)
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.live_taps import TapAxis, tap_axes
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div, channel_blocks
from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The slowdown with other layouts, of ResNet-50, DenseNet-121, VGG on a Zen 3: 0.1 %, 3 % at most.
FOLD_PENALTY = 1.02

# The most taps of a window that are unrolled: more overflow the code's cache (7x7: half as fast).
MAX_UNROLLED_TAPS = 9
# The cycles of beginning a task, and of storing a vector of its sums.
TASK_CYCLES, STORE_CYCLES = 300, 1
# The cycles of leaving the loop over a block's channels, which LLVM unrolls completely for so few.
LOOP_CYCLES, UNROLLED_CHANNELS = 6.0, 8
# The cycles of copying a vector of pixels to a padded strip, or to an image larger than L2.
STRIP_CYCLES, IMAGE_CYCLES = 3.0, 12.0
# The share of these cycles that a pixel of few channels still takes.
NARROW_COPY = 0.1
# The cycles of waiting for a piece of a row that L2 did not keep; the rest of it is prefetched.
CONFLICT_CYCLES = 4.0
# The number of products in a part of a sum: sums over 512 channels of 3x3 then err a fifth as much.
# Shorter parts gain little more. LLVM would unroll a loop over fewer parts, and then lacks
# registers for the accumulators.
PART, MIN_PARTS = 256, 8
# The tiles tried for a pair of blocks, best estimate first, and for pairs of the first input block.
TILES_PER_BLOCK, MORE_TILES = 2, 4


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether it computes ``workload``: float32, no prologue, groups of whole blocks."""
    if not workload.numerics.reads_float32 or workload.prologue:
        return False
    return bool(_block_pairs(workload, target))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[DirectScheme, ...]:
    """Enumerate paper §3.3.1's candidates whose tiles fit the registers: for every pair of blocks,
    and so of layouts, the `TILES_PER_BLOCK` best.
    """
    schemes: list[DirectScheme] = []
    pairs = _block_pairs(workload, target)
    taps = workload.kernel[0] * workload.kernel[1]
    for ic_bn, oc_bn in pairs:
        tiles = [
            DirectScheme(ic_bn, oc_bn, reg_n=reg_n, unroll_ker=False, reg_oh=reg_oh)
            for reg_oh, reg_n in _tiles(workload, oc_bn, target)
        ]
        tiles.sort(key=lambda scheme: estimate(workload, scheme, target))
        # The quality of a tile hardly depends on the input's block: one of them has more tried.
        first = ic_bn == pairs[0][0]
        schemes += tiles[: MORE_TILES if first else TILES_PER_BLOCK]
        if first and 1 < taps <= MAX_UNROLLED_TAPS:
            schemes.append(replace(tiles[0], unroll_ker=True))
    return tuple(sorted(schemes, key=lambda scheme: estimate(workload, scheme, target)))


@lru_cache(maxsize=1024)
def _block_pairs(workload: Conv2dWorkload, target: CpuTarget) -> tuple[tuple[int, int], ...]:
    """Return the legal ``(ic_bn, oc_bn)``; with groups, a block must lie within one group."""
    lanes = target.dot_unit(workload.numerics).lanes
    group_in = workload.image_channels // workload.groups
    group_out = workload.out_channels // workload.groups
    outs = channel_blocks(workload.out_channels, lanes)
    ins = channel_blocks(workload.image_channels, lanes)
    if workload.image_channels < lanes:
        ins = [1, *ins]
    if workload.groups > 1:
        half = [b for b in (lanes, lanes // 2, lanes // 4) if b > 0]
        ins = [b for b in sorted({*ins, *half}) if group_in % b == 0]
        outs = [b for b in sorted({*outs, *half}) if group_out % b == 0]
    # One output channel cannot fill the lanes: the NCHW template computes along the row instead.
    return tuple((i, o) for i in sorted(set(ins)) for o in outs if o > 1)


def _tiles(workload: Conv2dWorkload, oc_bn: int, target: CpuTarget) -> list[tuple[int, int]]:
    """Return the ``(reg_oh, reg_n)`` whose accumulators, weights and pixel fit the registers."""
    unit = target.dot_unit(workload.numerics)
    vectors = ceil_div(oc_bn, unit.lanes)
    limit = unrolled_limit(vectors, unit)
    tiles = []
    for reg_oh in range(1, min(8, workload.out_height) + 1):
        for reg_n in range(1, min(limit // reg_oh, workload.out_width, 28) + 1):
            tiles.append((reg_oh, reg_n))
    return tiles


def fold(
    workload: Conv2dWorkload,
    scheme: DirectScheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> DirectScheme | None:
    """Return the scheme that stores the same register tile in another block, or None.

    Every vector must fall into one chunk, and the tiles must write every chunk to its end. Loads do
    not fold: on record, a tenth of the tiles that are best for one input block take at least 16 %
    longer with another (1x1: twice as long).
    """
    oc_bn, out_bn = scheme.oc_bn, out_layout.block
    vector = min(target.dot_unit(workload.numerics).lanes, oc_bn)
    written, needed = (ceil_div(workload.out_channels, b) * b for b in (oc_bn, out_bn))
    if in_layout != scheme.in_layout or oc_bn % vector or out_bn % vector or written != needed:
        return None
    return replace(scheme, out_bn=0 if out_bn == oc_bn else out_bn)


def split_sums(workload: Conv2dWorkload, scheme: DirectScheme) -> DirectScheme:
    """Return the same scheme with its sums split into parts, if there are enough products.

    The rounding error of a sum grows with the root of its length, and that of its parts with the
    root of theirs (blocked summation: Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
    A register tile's parts are added once per `PART` steps, which takes 0 to 3 % of the time.
    """
    _, chunks, kernel_h, kernel_w, ic_bn, _ = scheme.kernel_layout.shape(workload.kernel_shape)
    legal = [n for n in range(1, chunks // MIN_PARTS + 1) if chunks % n == 0]
    fitting = [n for n in legal if n * kernel_h * kernel_w * ic_bn <= PART] or legal[:1]
    return replace(scheme, sum_chunks=fitting[-1]) if fitting else scheme


def weight_layout(workload: Conv2dWorkload, scheme: DirectScheme) -> KernelLayout:
    return scheme.kernel_layout


def argument_shapes(workload: Conv2dWorkload, scheme: DirectScheme) -> Arguments:
    weights = scheme.kernel_layout.shape(workload.kernel_shape)
    return convolution_arguments(workload, scheme, weights)


pack_weights = packing(weight_layout, argument_shapes)


def lower(
    workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest has one task per output row tile and channel chunk (swapped by `rows_first`)::

        for n, oc_chunk, oh in parallel(batch, O/oc_bn, OH/reg_oh):
            pad[…] = the input rows this task reads            # only if padded; stays in L2
            for ow in range(OW/reg_n):
                acc[reg_oh, reg_n, oc_bn] = 0                   # registers
                for ic_chunk, kh, kw, ic:                       # kh, kw unrolled by unroll_ker
                    for r, j, v in unrolled(reg_oh, reg_n, oc_bn/lanes):
                        acc[r, j, v] += broadcast(pixel) * kernel[…, v : v + lanes]
                output[…] = epilogue(acc)

    With ``sum_chunks`` a loop over parts of that many input chunks goes around these loops. Each
    part's partial sums are then added to the tile's sums.
    """
    return build(workload, scheme, target)


def estimate(
    workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's tiles, and transfers of weights and pixels."""
    unit = target.dot_unit(workload.numerics)
    vectors = ceil_div(scheme.oc_bn, unit.lanes)
    chunks_in = ceil_div(workload.in_channels // workload.groups, scheme.ic_bn)
    steps = chunks_in * scheme.ic_bn * workload.kernel[0] * workload.kernel[1]
    block_bytes = steps * scheme.oc_bn * bytes_of(workload.numerics.weights)
    pixels = scheme.reg_oh * scheme.reg_n
    loads = _pixel_loads(workload, scheme, target)
    cycles = step_cycles(vectors, pixels, unit, target, block_bytes, loads)
    if scheme.ic_bn > UNROLLED_CHANNELS:
        cycles += LOOP_CYCLES / scheme.ic_bn
    sums = vectors * pixels
    each_sum = STORE_CYCLES + steps_cycles(workload.epilogue)
    down, across = tap_axes(workload, scheme)
    live = down.live * across.live / (down.tiles * down.taps * across.tiles * across.taps)
    tile = live * steps * cycles + sums * each_sum + TILE_CYCLES
    tile += _conflict_cycles(workload, scheme, target)
    chunks = ceil_div(workload.out_channels, scheme.oc_bn)
    tasks = workload.batch * chunks * down.tiles
    each = ceil_div(tasks, threads)
    busy = each * (across.tiles * tile + TASK_CYCLES)
    busy += _pad_cycles(workload, scheme, target, threads, each / tasks)
    # Consecutive tasks are one row of each chunk, or all rows of one chunk.
    by_rows = rows_first(workload, scheme, target)
    read = min(each, chunks) if by_rows else ceil_div(each, down.tiles)
    times = workload.batch * (down.tiles if by_rows else 1)
    # Each chunk reads the image again, and L2 has lost the part that it cannot hold.
    image = _image_bytes(workload, down)
    beyond = chunks * image if image > target.l2 * threads else 0
    fetched = read * block_bytes + beyond / threads
    cold = cold_weights(chunks * block_bytes, target, chunks, times)
    if 0 < target.l3 * threads < image:
        cold += beyond
    return with_memory(busy / target.frequency, fetched, cold, target)


def _image_bytes(workload: Conv2dWorkload, down: TapAxis) -> int:
    """Return the bytes of the image that tiles read, for each row of dilated taps again."""
    element = bytes_of(workload.numerics.data)
    image = element * math.prod(workload.input_shape)
    if workload.dilation[0] == 1 or workload.kernel[0] == 1:
        return image
    row = image // workload.height * (workload.width + workload.padding[1] + workload.padding[3])
    return row // workload.width * down.live * down.tile * down.stride


def _pixel_loads(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> float:
    """Return the loads of a step's pixels, one each or a vector of lanes for several steps, and of
    each row's address, which costs as much.
    """
    pixels, unit = scheme.reg_oh * scheme.reg_n, target.dot_unit(workload.numerics)
    if not unit.by_lane:
        return pixels
    if scheme.ic_bn % unit.lanes == 0:
        return (pixels + scheme.reg_oh) / unit.lanes
    if reads_rows_by_lane(workload, scheme, target):
        row = (scheme.reg_n - 1) * workload.stride[1] + workload.kernel[1]
        return scheme.reg_oh * (row / unit.lanes + 1) / workload.kernel[1]
    return pixels


def _conflict_cycles(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> float:
    """Return the cycles that a register tile waits for pixels that evict each other from L2.

    Neighbouring tiles, and tasks of other chunks, read pieces of the same cache lines. L2 keeps
    them unless chunks and rows are powers of two apart: on images of 16 to 128 pixels this costs 2
    to 10 cycles a piece (measured).
    """
    if _copies_rows(workload, scheme):
        return 0.0
    chunks = ceil_div(workload.in_channels // workload.groups, scheme.ic_bn)
    apart = workload.stride[0] if workload.kernel[0] == 1 else 1
    rows = ceil_div(strip_rows(workload, scheme), apart)
    row_bytes = workload.width * scheme.ic_bn * bytes_of(workload.numerics.data)
    axes = (chunks, workload.height * row_bytes), (rows, apart * row_bytes)
    return CONFLICT_CYCLES * chunks * rows if conflicts_in_l2(target, *axes) else 0.0


def _copies_rows(workload: Conv2dWorkload, scheme: DirectScheme) -> bool:
    """Return whether tiles read a padded copy, because of the border or because they overhang."""
    overhang = workload.out_width % scheme.reg_n or workload.out_height % scheme.reg_oh
    return any(workload.padding) or bool(overhang) or reads_outside(workload)


def _pad_cycles(
    workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget, threads: int, share: float
) -> float:
    """Return the cycles for copying padded rows on a thread with ``share`` of the tasks."""
    if not _copies_rows(workload, scheme):
        return 0.0
    chunks = ceil_div(workload.in_channels, scheme.ic_bn)
    vectors = chunks * max(scheme.ic_bn / target.dot_unit(workload.numerics).lanes, NARROW_COPY)
    image = workload.batch * workload.height * workload.width * vectors
    if pads_image_once(workload, scheme):
        return image * IMAGE_CYCLES / threads + fork_seconds(threads, target) * target.frequency
    return share * image * strip_copies(workload, scheme) * STRIP_CYCLES


TEMPLATE = ConvTemplate(
    scheme=DirectScheme,
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
    split_sums=split_sums,
)
