"""Direct convolution in NCHW[x]c by instructions that multiply several pixels at once.

AMX multiplies 16 pixels by 16 channels in tile registers (`tile_kernel`). AArch64's FEAT_I8MM and
FEAT_BF16 multiply two by two in vectors (`pair_kernel`). Strips, border and epilogue are those of
`dot_products`. So are the weights, except for the number of input channels of an output channel
that lie side by side.

AMX's estimates follow a Granite Rapids' speeds in C programs. Its kernels were timed on an Emerald
Rapids, those of AArch64 never.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.matrix_products import tile_space
from neocpu.schedules.convolutions.matrix_products.joined_weights import (
    in_wide_groups,
    with_joined_columns,
    with_wide_groups,
)
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import JOINED_BLOCK, MatrixTiling
from neocpu.schedules.convolutions.matrix_products.pair_kernel import PAIR, PairNest
from neocpu.schedules.convolutions.matrix_products.tile_kernel import TileNest
from neocpu.schedules.convolutions.matrix_products.tile_space import (
    joins_columns,
    register_tiles,
    rows_and_pixels,
)
from neocpu.schedules.convolutions.packing import packed
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.estimates.register_tile import TILE_CYCLES, step_cycles
from neocpu.schedules.isa.catalogue import ROW_BYTES, TILE_COLUMNS, TILE_ROWS
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div, channel_blocks
from neocpu.schedules.vocabulary.scheme import MatrixScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The number of register tiles tried for a pair of blocks, best estimate first.
TILES_PER_BLOCK = 4
# The most groups in one wide group, whose products are mostly with zeros.
MOST_JOINED = 8
# The most taps of a window that are unrolled: more overflow the instruction cache.
MAX_UNROLLED_TAPS = 9
# The columns of a window are unrolled whatever the scheme says.
WIDEST_WINDOW = 16
# The issue slots of a load beside products of pairs.
PAIR_LOAD = 0.2
# The cycles of copying a block of a pixel's channels into a padded strip.
COPY_CYCLES = 2.0
LOOP_CYCLES = 1.0


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether the CPU has such an instruction, and rows of the output fill its blocks."""
    w, unit = workload, target.find_matrix_unit(workload.numerics)
    if unit is None or target.find_dot_unit(w.numerics) is None:  # others count its lanes
        return False
    if w.prologue or w.kernel[1] > WIDEST_WINDOW:
        return False
    return rows_and_pixels(w, unit)[1] >= PAIR and bool(_input_blocks(w, unit))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[MatrixScheme, ...]:
    """Return the best register tiles for every pair of input and output blocks."""
    unit = _unit(workload, target)
    rows, columns = rows_and_pixels(workload, unit)
    found: list[MatrixScheme] = []
    outs = [max(b, unit.lanes) for b in channel_blocks(workload.out_channels, unit.lanes)]
    if not unit.instruction.in_tiles:
        outs = [*(b for b in (unit.group,) if b not in outs), *outs]
    for ic_bn, oc_bn in product(_input_blocks(workload, unit), outs):
        groups = in_wide_groups(workload, ic_bn).groups
        group = workload.out_channels // groups if groups > 1 else 0
        tiles = sorted(
            (
                MatrixScheme(
                    ic_bn,
                    oc_bn,
                    reg_n=reg_n,
                    unroll_ker=False,
                    reg_oc=reg_oc,
                    dot=unit.group,
                    reg_oh=reg_oh,
                )
                for reg_oh, reg_n, reg_oc in register_tiles(
                    columns, rows, workload.out_channels, unit, group=group
                )
            ),
            key=lambda scheme: estimate(workload, scheme, target),
        )
        found += tiles[:TILES_PER_BLOCK]
    found += [
        replace(scheme, unroll_ker=True)
        for scheme in found
        if 1 < workload.kernel[0] * workload.kernel[1] <= MAX_UNROLLED_TAPS
    ]
    return tuple(sorted(found, key=lambda scheme: estimate(workload, scheme, target)))


def _unit(workload: Conv2dWorkload, target: CpuTarget) -> DotUnit:
    unit = target.find_matrix_unit(workload.numerics)
    assert unit is not None, target
    return unit


def _input_blocks(workload: Conv2dWorkload, unit: DotUnit) -> list[int]:
    """Return the blocks of input channels to try: for tiles, half a cache line or whole ones."""
    channels, group = workload.image_channels, unit.group
    if workload.groups > 1:
        return _group_blocks(workload, unit)
    if unit.instruction.in_tiles:
        line = _line(workload)
        if joins_columns(workload, line):
            return [JOINED_BLOCK]
        blocks = [b for b in channel_blocks(channels, unit.lanes) if b <= line or b % line == 0]
        found = [b for b in blocks if b % group == 0 and 2 * b >= line]
        return [b for b in found if _has_no_empty_line(channels, b, line)]
    blocks = [max(b, group) for b in channel_blocks(channels, unit.lanes)]
    return list(dict.fromkeys([group, *(b for b in blocks if b % group == 0)]))


def _group_blocks(workload: Conv2dWorkload, unit: DotUnit) -> list[int]:
    """Return the blocks of input channels of wide groups; pairs multiply no groups."""
    w, line = workload, _line(workload)
    if not unit.instruction.in_tiles or w.frames or w.pads_with_zero_point:
        return []
    found = []
    for block in (line // 2, line, 2 * line):
        wide = in_wide_groups(w, block)
        outs = w.out_channels // wide.groups
        fits_groups = w.image_channels % (wide.groups * block) == 0
        if fits_groups and outs % TILE_COLUMNS == 0 and w.groups <= MOST_JOINED * wide.groups:
            found.append(block)
    return found


def _has_no_empty_line(channels: int, block: int, line: int) -> bool:
    """Return whether each line of channels in blocks has some channels: weights have no others."""
    return ceil_div(channels, block) * block - channels < min(block, line)


def fold(
    workload: Conv2dWorkload,
    scheme: MatrixScheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> MatrixScheme | None:
    """Return the scheme with the same register tiles for other layouts, or None."""
    unit = _unit(workload, target)
    whole = unit.instruction.depth or unit.group
    reads = in_layout.block % whole == 0 or in_layout.block in _input_blocks(workload, unit)
    if unit.instruction.in_tiles:
        joins = in_layout.block == JOINED_BLOCK
        reads &= joins or _has_no_empty_line(workload.image_channels, in_layout.block, whole)
    if not reads or out_layout.block % unit.lanes:
        return None
    if workload.groups > 1 and in_layout.block != scheme.ic_bn:  # groups might be wider
        return None
    return replace(scheme, ic_bn=in_layout.block, oc_bn=out_layout.block)


def argument_shapes(workload: Conv2dWorkload, scheme: MatrixScheme) -> Arguments:
    """The weights are OIHW in `_layout`, with outputs up to a multiple of ``reg_oc``."""
    layout, kernel = _layout(workload, scheme), workload.kernel
    ins = ceil_div(in_wide_groups(workload, scheme.ic_bn).kernel_shape[1], layout.ic_bn)
    if _joins(workload, scheme):
        kernel = (kernel[0], 1)
    outs = output_blocks(workload, scheme) * scheme.reg_oc // layout.oc_bn
    groups = layout.ic_bn // layout.dot
    weights = (outs, ins, *kernel, groups, layout.oc_bn * layout.dot)
    return convolution_arguments(workload, scheme, weights)


def weight_layout(workload: Conv2dWorkload, scheme: MatrixScheme) -> KernelLayout | None:
    has_others = workload.groups > 1 or _joins(workload, scheme)
    return None if has_others else _layout(workload, scheme)


def _layout(workload: Conv2dWorkload, scheme: MatrixScheme) -> KernelLayout:
    """Return the layout: of AMX's, each tile is a kibibyte, since rows of a tile that lie 128 bytes
    apart load in 27 to 35 cycles from L2, where adjacent ones take 20 to 25.
    """
    if _joins(workload, scheme):
        return KernelLayout(_line(workload), TILE_COLUMNS, scheme.dot)
    if scheme.dot == workload.numerics.group:  # pairs have twice as many
        return KernelLayout(min(scheme.ic_bn, TILE_ROWS * scheme.dot), TILE_COLUMNS, scheme.dot)
    return KernelLayout(scheme.ic_bn, scheme.reg_oc, scheme.dot)


def _joins(workload: Conv2dWorkload, scheme: MatrixScheme) -> bool:
    """Return whether the columns of windows of a picture lie side by side; pairs have none."""
    return scheme.ic_bn == JOINED_BLOCK and scheme.dot == workload.numerics.group


def _line(workload: Conv2dWorkload) -> int:
    return ROW_BYTES // bytes_of(workload.numerics.data)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: MatrixScheme
) -> NDArray[np.generic]:
    if _joins(workload, scheme):
        weights = with_joined_columns(weights)
    if workload.groups > 1:
        weights = with_wide_groups(weights, workload, in_wide_groups(workload, scheme.ic_bn))
    shape, _ = argument_shapes(workload, scheme)[1]
    return packed(weights, _layout(workload, scheme), shape)


def lower(
    workload: Conv2dWorkload, scheme: MatrixScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    unit = _unit(workload, target)
    wide = in_wide_groups(workload, scheme.ic_bn)
    tiling = MatrixTiling(wide, scheme, unit, target.l2, threads)
    nest = TileNest if unit.instruction.in_tiles else PairNest
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda data, weights, *rest: nest(tiling, data, weights, rest).emit(),
    )


def estimate(
    workload: Conv2dWorkload, scheme: MatrixScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's products and padding, and weight transfers."""
    unit = _unit(workload, target)
    t = MatrixTiling(in_wide_groups(workload, scheme.ic_bn), scheme, unit, target.l2, threads)
    if unit.instruction.in_tiles:
        work, copied = tile_space.strip_cycles(t, target), 1
    else:
        tap, copied = t.chunk_groups * _pair_step(t, target), scheme.ic_bn // unit.group
        work = tile_space.register_tiles_cycles(t, tap, TILE_CYCLES)
    if t.copies:
        work += t.image_chunks * t.copied_pixels * COPY_CYCLES * copied
    return t.seconds(work, target)


def _pair_step(t: MatrixTiling, target: CpuTarget) -> float:
    """Return the cycles of one group of channels for all pairs of pixels."""
    together = t.copies or (t.workload.stride[1] == 1 and t.scheme.ic_bn == t.unit.group)
    loads = t.block_rows * (1 if together else 2)
    cycles = step_cycles(
        t.block_columns, t.block_rows, t.unit, target, t.block_bytes, broadcast_loads=loads
    )
    return cycles + LOOP_CYCLES / 2 + PAIR_LOAD * (loads + t.block_columns)


TEMPLATE = ConvTemplate(
    scheme=MatrixScheme,
    version=2,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
    weight_layout=weight_layout,
    fold=fold,
)
