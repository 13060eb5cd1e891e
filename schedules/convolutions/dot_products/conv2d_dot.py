"""Direct convolution in NCHW[x]c by instructions that add several products to each lane.

Such an instruction adds four products of 8-bit integers or two of bfloat16; the text below
describes four. Where the CPU has none, a sequence does the same (`dot_instructions`).

The weights of four adjacent input channels lie side by side, and so do a pixel's channels. Where a
float32 kernel broadcasts one channel, this one broadcasts a word of four. All sums are exact. The
epilogue processes them: a bias in the integers of the sums, then scales, residuals and activations
in float32, and rounding if the output is of integers. Sums of bfloat16 products are in float32, and
are rounded once if the output is bfloat16.

On a Zen 4 (VNNI) the best schemes for ResNet-50's shapes compute 193 to 231 billion products a
second on one core, of about 230 that it can start, and 155 for its first layer, which has three
channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tvm import tirx

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.schedules.convolutions.dot_products.dot_tiling import DotTiling
from neocpu.schedules.convolutions.dot_products.strip_nest import DotNest
from neocpu.schedules.convolutions.packing import packing
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.estimates.register_tile import (
    TILE_CYCLES,
    broadcast_limit,
    step_cycles,
    steps_cycles,
)
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div, channel_blocks
from neocpu.schedules.vocabulary.scheme import DotScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The element types of products: four 8-bit integers, or two bfloat16.
DATA = ("uint8", "int8", BFLOAT16)
# The most vectors of output channels, rows and columns of a register tile.
MAX_VECTORS, MAX_ROWS, MAX_COLUMNS = 4, 4, 28
# The largest share of padded output channels that a scheme may compute.
MAX_OVERHANG = 0.1
# The most taps of a window that are unrolled: more overflow the instruction cache.
MAX_UNROLLED_TAPS = 9
# The register tiles tried for a pair of blocks, best estimate first, and for the first pair.
TILES_PER_BLOCK, MORE_TILES = 2, 6
# The cycles of counting an iteration of the innermost loop and advancing pointers.
LOOP_CYCLES = 1.0
# The share of their multiplications' peak that products of widened weights reach, compared with
# other sequences: 0.86 to 0.87 of pairs on a Zen 1.
WIDENED_SHARE = 0.87
# The cycles of copying a block of a pixel's channels to a strip, and of storing a vector of sums.
COPY_CYCLES, STORE_CYCLES = 2.0, 2.0


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether the CPU has such instructions, and blocks can follow the groups."""
    unit = target.find_dot_unit(workload.numerics)
    if unit is None or workload.numerics.data not in DATA or unit.group == 1 or workload.prologue:
        return False
    if workload.frames and workload.groups > 1:
        return False
    made = workload.out_channels // workload.groups
    whole = workload.groups == 1 or made % unit.lanes == 0
    return whole and bool(_input_blocks(workload, unit))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[DotScheme, ...]:
    """Return the best register tiles for every pair of input and output blocks."""
    unit = target.dot_unit(workload.numerics)
    ins = _input_blocks(workload, unit)
    outs = [max(b, unit.lanes) for b in channel_blocks(workload.out_channels, unit.lanes)]
    tiles = sorted(_tiles(workload, target), key=lambda scheme: estimate(workload, scheme, target))
    found = [
        replace(tile, ic_bn=ic_bn, oc_bn=oc_bn)
        for ic_bn in ins
        for oc_bn in outs
        for tile in tiles[: MORE_TILES if (ic_bn, oc_bn) == (ins[0], outs[0]) else TILES_PER_BLOCK]
        if ic_bn % (unit.group * tile.step_groups) == 0
    ]
    found += [
        replace(scheme, unroll_ker=True)
        for scheme in found[:MORE_TILES]
        if 1 < workload.kernel[0] * workload.kernel[1] <= MAX_UNROLLED_TAPS
    ]
    return tuple(sorted(found, key=lambda scheme: estimate(workload, scheme, target)))


def _tiles(workload: Conv2dWorkload, target: CpuTarget) -> Iterator[DotScheme]:
    """Yield schemes with the register tiles that fit, in layouts with the smallest blocks."""
    unit = target.dot_unit(workload.numerics)
    lanes = unit.lanes
    needed = ceil_div(workload.out_channels, lanes) * lanes
    of_group = workload.out_channels // workload.groups
    for vectors, groups in product(range(1, MAX_VECTORS + 1), _groups_in_16_bits(unit)):
        reg_oc = vectors * lanes
        if workload.groups > 1 and of_group % reg_oc:
            continue
        if vectors > 1 and ceil_div(needed, reg_oc) * reg_oc > (1 + MAX_OVERHANG) * needed:
            continue
        fitting = [b for b in _input_blocks(workload, unit) if b % (unit.group * groups) == 0]
        if not fitting:
            continue
        limit = broadcast_limit(vectors, unit.adding(groups))
        scheme = DotScheme(
            min(fitting),
            lanes,
            reg_n=1,
            unroll_ker=False,
            reg_oh=1,
            reg_oc=reg_oc,
            int16_groups=groups if groups > 1 else 0,
        )
        whole = DotTiling(workload, scheme, unit, target.l2)
        for reg_oh in range(1, min(MAX_ROWS, whole.rows) + 1):
            for reg_n in range(1, min(limit // reg_oh, whole.columns, MAX_COLUMNS) + 1):
                yield replace(scheme, reg_n=reg_n, reg_oh=reg_oh)


def _input_blocks(workload: Conv2dWorkload, unit: DotUnit) -> list[int]:
    """Return blocks of input channels; within groups, whole ones."""
    blocks = [max(b, unit.group) for b in channel_blocks(workload.image_channels, unit.lanes)]
    return [block for block in dict.fromkeys(blocks) if _holds(workload, block)]


def _holds(workload: Conv2dWorkload, ic_bn: int) -> bool:
    return workload.groups == 1 or workload.kernel_shape[1] % ic_bn == 0


def _groups_in_16_bits(unit: DotUnit) -> list[int]:
    """Return the numbers of groups of products that may be added in 16 bits first."""
    return [1, *(n for n in (2, 4) if unit.is_sequence and 2 * n <= unit.int16_sums)]


def fold(
    workload: Conv2dWorkload,
    scheme: DotScheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> DotScheme | None:
    """Return the scheme with the same register tiles for other layouts, or None."""
    unit = target.dot_unit(workload.numerics)
    if in_layout.block % (unit.group * scheme.step_groups) or out_layout.block % unit.lanes:
        return None
    if not _holds(workload, in_layout.block):
        return None
    return replace(scheme, ic_bn=in_layout.block, oc_bn=out_layout.block)


def argument_shapes(workload: Conv2dWorkload, scheme: DotScheme) -> Arguments:
    """Return ``(shape, dtype)`` of each argument. The weights are ``(O / reg_oc, I / ic_bn, KH, KW,
    ic_bn / group, reg_oc * group)``, with a group of input channels for each output channel last.
    """
    ins = ceil_div(workload.kernel_shape[1], scheme.ic_bn)
    outs = output_blocks(workload, scheme)
    group = workload.numerics.group
    weights = (outs, ins, *workload.kernel, scheme.ic_bn // group, scheme.reg_oc * group)
    return convolution_arguments(workload, scheme, weights)


def weight_layout(workload: Conv2dWorkload, scheme: DotScheme) -> KernelLayout:
    return KernelLayout(scheme.ic_bn, scheme.reg_oc, workload.numerics.group)


pack_weights = packing(weight_layout, argument_shapes)


def lower(
    workload: Conv2dWorkload, scheme: DotScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest goes over strips of rows, or of an image in one row, and groups of outputs::

    for image, group, strip in parallel:
        padded[…] = the input rows of the strip, with the border     # only if padded
        for oc_block in group, tile in strip:
            acc[reg_oh, reg_n, reg_oc] = 0                           # registers
            for ic_chunk, kh, kw, four of ic_bn:                     # kh, kw by unroll_ker
                acc += dot(broadcast(four of a pixel), weights[…])
            output[…] = epilogue(acc)
    """
    tiling = DotTiling(workload, scheme, target.dot_unit(workload.numerics), target.l2, threads)
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda data, weights, *rest: DotNest(tiling, data, weights, rest).emit(),
    )


def estimate(
    workload: Conv2dWorkload, scheme: DotScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's products and padding, and weight transfers."""
    unit = target.dot_unit(workload.numerics).adding(scheme.step_groups)
    t = DotTiling(workload, scheme, unit, target.l2, threads)
    steps = t.chunks * t.chunk_groups * workload.kernel[0] * workload.kernel[1]
    pixels = scheme.reg_oh * scheme.reg_n
    loads = pixels / t.data_lanes
    cycles = step_cycles(t.vectors, pixels, unit, target, t.block_bytes, loads)
    if unit.is_sequence and not unit.int16_sums:
        cycles /= WIDENED_SHARE
    cycles += LOOP_CYCLES / t.unrolled_groups
    if unit.offset and not t.copies:
        cycles += loads / unit.per_cycle  # otherwise this is counted when they are copied
    each_sum = STORE_CYCLES + steps_cycles(workload.epilogue)
    tile = steps * cycles + t.vectors * pixels * each_sum + TILE_CYCLES
    across = 1 if t.is_flat else t.column_tiles
    work = t.strip_tiles * across * ceil_div(t.oc_blocks, t.groups) * tile
    if t.copies:
        work += t.image_chunks * t.strip_rows * t.strip_columns * COPY_CYCLES
    return t.seconds(work, target)


TEMPLATE = ConvTemplate(
    scheme=DotScheme,
    version=1,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
    weight_layout=weight_layout,
    fold=fold,
)
