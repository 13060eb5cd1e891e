"""Depthwise convolution in NCHW[x]c: one vector lane per channel, so nothing is broadcast.

Each input row of a register tile is loaded once, a pixel at a time. Each pixel serves all columns
of the tile whose windows contain it, while ``KW`` vectors of weights stay in registers. A tile of
several columns therefore takes fewer loads than multiply-adds, which set its speed. Nothing is
padded: a row's first and last tiles leave out columns outside the image, and a loop over the
window's rows leaves out those above and below it.

Bytes are converted to float32 a row at a time, once for all output rows that read it, and
multiplied by integer weights in float32, where the sums are exact. Instructions for bytes add up
channels, which must stay separate here. bfloat16 is converted in the same way.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from tvm import tirx

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.in_groups.framed_kernel import FramedEmitter, frames_rows
from neocpu.schedules.convolutions.in_groups.group_kernel import Emitter
from neocpu.schedules.convolutions.packing import packing
from neocpu.schedules.estimates.memory_traffic import LINE, with_memory
from neocpu.schedules.estimates.register_tile import steps_cycles
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.tir.live_taps import mean_taps
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div
from neocpu.schedules.vocabulary.scheme import DepthwiseScheme, GroupScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate
from neocpu.schedules.vocabulary.traced_sizes import typical_of
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# Of both kernels: a Zen 3 takes 2 % longer with blocks of 16 than 8; estimates cover wider ones.
FOLD_PENALTY = 1.03

# The most taps of a window that are unrolled: more overflow the instruction cache.
MAX_UNROLLED_TAPS = 25
# The most pixels of a row that a tile reads on NEON, beside its sums and nine weights.
MAX_REACH = 16
# The number of register tiles tried for a block.
TILES_PER_BLOCK = 3
# The rows per thread from which on a thread gets a band of all channels instead of some channels.
ROWS_FIRST = 7
# The number of tasks per thread that shares the channels evenly.
TASKS_PER_THREAD = 4
# The cycles of beginning a register tile, of continuing with the next row of taps in a loop, of
# storing a sum and of each step of its epilogue. Measured on a Zen 3.
TILE_CYCLES, LOOP_CYCLES, STORE_CYCLES, STEP_CYCLES = 6.0, 0.5, 0.3, 0.3
# A core's loads per cycle, and the slowdown if neighbouring pixels' are over a cache line apart.
LOADS_PER_CYCLE, WIDE_FACTOR = 2, 1.25
# The slowdown of an unrolled window whose sums, weights and pixel fill the registers: LLVM loads
# the next row's weights ahead, and spills. On a Zen 5, 128 channels of 56x56 px take 45 us in tiles
# of 28 columns, and 35 in a loop.
FULL_FACTOR = 1.2
# The instructions that widen a vector of bytes, and those that spread and store words of bytes.
WIDEN_CYCLES = 1.5

_Kind = TypeVar("_Kind", bound=GroupScheme)


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether each input channel makes one output channel, in float32, no prologue."""
    in_float32 = workload.numerics.computes_in_float32
    return workload.is_depthwise and in_float32 and not workload.prologue


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[DepthwiseScheme, ...]:
    """Return blocks of one, two and four vectors, or a narrower one, with the best tile widths."""
    return schemes_of(DepthwiseScheme, workload, target)


def schemes_of(kind: type[_Kind], workload: Conv2dWorkload, target: CpuTarget) -> tuple[_Kind, ...]:
    """Return the schemes of `space` in a class that differs only in its template."""
    lanes = _narrowest(workload, target)
    taps = math.prod(workload.kernel_shape[1:])
    blocks = [lanes]
    for block in (2 * lanes, 4 * lanes):
        stored = _stored_channels(workload, block)
        if stored is not None and stored <= 1.15 * workload.image_channels:
            blocks.append(block)
    limit = min(_tile_limit(workload, target), workload.out_width)
    schemes: list[_Kind] = []
    for block in blocks:
        tiles = [kind(block, n, taps <= MAX_UNROLLED_TAPS) for n in range(1, limit + 1)]
        tiles.sort(key=lambda scheme: estimate(workload, scheme, target))
        schemes += tiles[:TILES_PER_BLOCK]
        if tiles[0].unroll_ker:
            looped = (replace(tile, unroll_ker=False) for tile in tiles)
            schemes.append(min(looped, key=lambda scheme: estimate(workload, scheme, target)))
    return tuple(sorted(schemes, key=lambda scheme: estimate(workload, scheme, target)))


def _narrowest(workload: Conv2dWorkload, target: CpuTarget) -> int:
    """Return the smallest block: one vector, or less if there are fewer channels."""
    return min(
        target.dot_unit(workload.numerics).lanes, 1 << (workload.image_channels - 1).bit_length()
    )


def _stored_channels(workload: Conv2dWorkload, block: int) -> int | None:
    """Return the channels including padding; None if the last block ends within a group, all of
    whose inputs a vector of outputs reads.
    """
    stored = ceil_div(workload.image_channels, block) * block
    return None if stored % (workload.image_channels // workload.groups) else stored


def _tile_limit(workload: Conv2dWorkload, target: CpuTarget) -> int:
    """Return the columns whose sums fit registers beside a pixel and, if narrow, a window's row."""
    registers, taps = target.vector_registers, workload.kernel[1]
    unit = target.dot_unit(workload.numerics)
    if unit.by_lane:
        before = (taps - 1) * workload.dilation[1]
        limit = (MAX_REACH - 1 - before) // workload.stride[1] + 1
        if workload.image_channels // workload.groups >= unit.lanes:
            # Pixels stay in registers while their lanes are used.
            free = registers - taps - 1 - before + workload.stride[1]
            limit = min(limit, free // (1 + workload.stride[1]))
        return max(1, limit)
    # Bytes may be widened in a register, and the zero point stays in one.
    others = (not workload.numerics.reads_float32) + workload.pads_with_zero_point
    return max(registers // 2, registers - 1 - workload.kernel[1] - others)


def fold(
    workload: Conv2dWorkload,
    scheme: GroupScheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> GroupScheme | None:
    """Return the scheme with the same tiles for other layouts; None if there is none."""
    lanes = _narrowest(workload, target)
    ic_bn, oc_bn = in_layout.block, out_layout.block
    if ic_bn % lanes or oc_bn % lanes:
        return None
    stored = _stored_channels(workload, ic_bn)
    if stored is None or stored != _stored_channels(workload, oc_bn):
        return None
    return replace(scheme, oc_bn=ic_bn, out_bn=0 if oc_bn == ic_bn else oc_bn)


def weight_layout(workload: Conv2dWorkload, scheme: GroupScheme) -> KernelLayout:
    group = workload.numerics.group
    return KernelLayout(group, scheme.oc_bn, group)


def argument_shapes(workload: Conv2dWorkload, scheme: GroupScheme) -> Arguments:
    """The weights are ``(ceil(C/x), I / group, KH, KW, x * group)``."""
    chunks, group = ceil_div(workload.image_channels, scheme.oc_bn), workload.numerics.group
    _, width, *kernel = workload.kernel_shape
    weights = (chunks, width // group, *kernel, scheme.oc_bn * group)
    return convolution_arguments(workload, scheme, weights)


pack_weights = packing(weight_layout, argument_shapes)


def _bands(workload: Conv2dWorkload, scheme: GroupScheme, threads: int) -> tuple[int, bool]:
    """Return the bands of rows of a feature map, and whether all channels of a band come first.

    A thread wrote the rows of its band in the previous layer. Small images and many threads leave
    too few rows for bands: two threads read the rows between them, and one row more or less is a
    large part of a thread's work.
    """
    height = workload.out_height
    maps = workload.batch * ceil_div(workload.image_channels, scheme.oc_bn)
    if threads == 1 or (workload.batch == 1 and height >= ROWS_FIRST * threads):
        return threads, True
    return min(height, ceil_div(TASKS_PER_THREAD * threads, maps)), False


def lower(
    workload: Conv2dWorkload, scheme: GroupScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest has one task per chunk of channels and band of rows::

    for n, band, chunk in parallel:
        for h in band:
            for ow in range(OW/reg_n):       # a row's first and last tiles separately
                for v in range(x/lanes):
                    acc[reg_n] = 0                                      # registers
                    for kh:                  # inside the image; unrolled by unroll_ker
                        for pixel in row of reg_n + KW - 1:             # at stride 1
                            for j, kw under it: acc[j] += pixel * kernel[kh, kw, v]
                    output[…] = epilogue(acc)
    """
    bands, rows_first = _bands(typical_of(workload), scheme, threads)
    emitter = FramedEmitter if frames_rows(workload, scheme, target) else Emitter
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda *buffers: emitter(workload, scheme, target, buffers).emit(
            bands, rows_first=rows_first
        ),
    )


def estimate(
    workload: Conv2dWorkload, scheme: GroupScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: multiply-adds or loads of each tile's rows, and the image. A narrow
    block's vector costs a whole one, and a tap outside the image nothing.
    """
    unit = target.dot_unit(workload.numerics)
    # Instructions for bytes work on whole vectors; those for float32 may be narrower.
    assert unit.group == 1 or scheme.oc_bn % unit.lanes == 0, scheme
    vectors = ceil_div(scheme.oc_bn, unit.lanes)
    group, kernel_w = workload.kernel_shape[1] // unit.group, workload.kernel[1]
    down, across = (mean_taps(workload, axis) for axis in (0, 1))
    # This holds if it takes as long as a multiply-add.
    each_step = 1 / unit.per_cycle if unit.by_lane else STEP_CYCLES

    def tile(width: int) -> float:
        reach = min(width * workload.stride[1] + kernel_w - 1, width * kernel_w, workload.width)
        loads = (reach + kernel_w) / (unit.per_cycle if unit.by_lane else LOADS_PER_CYCLE)
        taps = max(width * across / unit.per_cycle, loads)
        if group > 1:  # too many instructions for the next tile's to begin meanwhile
            taps = max(taps, kernel_w * unit.latency)
        taps += 0 if scheme.unroll_ker else LOOP_CYCLES
        each_sum = STORE_CYCLES + steps_cycles(workload.epilogue, each_step)
        return down * group * taps + width * each_sum + TILE_CYCLES

    whole, rest = divmod(workload.out_width, scheme.reg_n)
    row = whole * tile(scheme.reg_n) + (tile(rest) if rest else 0.0)
    bands, _ = _bands(workload, scheme, threads)
    maps = workload.batch * ceil_div(workload.image_channels, scheme.oc_bn)
    if not workload.numerics.reads_float32:
        row += WIDEN_CYCLES * (group if unit.group > 1 else 1) * workload.stride[0] * workload.width
    rows = ceil_div(maps * bands, threads) * ceil_div(workload.out_height, bands)
    seconds = rows * vectors * row / target.frequency
    if bytes_of(workload.numerics.output) * max(scheme.oc_bn, scheme.out_bn) > LINE:
        seconds *= WIDE_FACTOR
    if scheme.unroll_ker and scheme.reg_n + kernel_w + 1 >= target.vector_registers:
        seconds *= FULL_FACTOR
    pixels = maps * workload.height * workload.width * scheme.oc_bn
    image = float(pixels * bytes_of(workload.numerics.data))
    fetched = image / threads if image > target.l2 * threads else 0.0
    return with_memory(seconds, fetched, 0.0, target)


TEMPLATE = ConvTemplate(
    scheme=DepthwiseScheme,
    version=2,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
    weight_layout=weight_layout,
    fold=fold,
    fold_penalty=FOLD_PENALTY,
)
