"""Direct convolution in NCHW[x]c by instructions that multiply several pixels at once.

AMX multiplies 16 pixels by 16 channels, from tile registers (`tile_kernel`); AArch64's FEAT_I8MM
and FEAT_BF16 multiply two by two, in vectors (`pair_kernel`). The strips, the border and what is
made of the sums are those of `dot_products`; so are the weights, but for how many input channels
of an output channel lie side by side.

AMX's estimates are of a Granite Rapids' rates in programs in C; no kernel of these was ever timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.dot_products import conv2d_dot
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.convolutions.matrix_products.pair_kernel import PAIR, PairNest
from neocpu.schedules.convolutions.matrix_products.tile_kernel import TileNest
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.estimates.memory_traffic import cold_weights, with_memory
from neocpu.schedules.estimates.register_tile import TILE_CYCLES, step_cycles, steps_cycles
from neocpu.schedules.isa.amx import ROW_BYTES
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.vocabulary.dot_unit import TILES, DotUnit
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div, channel_blocks
from neocpu.schedules.vocabulary.scheme import MatrixScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import ConvTemplate
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# Rows and columns of a register tile, in the unit's blocks, at most.
MOST_BLOCKS = 8
# Sums of a register tile, in those, that make small ones not worth trying.
ENOUGH_BLOCKS = 4
# Padded output channels that a scheme may compute in vain, relative.
MAX_OVERHANG = 0.25
# Register tiles tried for a pair of blocks, best estimate first.
TILES_PER_BLOCK = 4
# Unrolling a window of more taps overflows the instruction cache.
MAX_UNROLLED_TAPS = 9
# Cycles of loading a tile from L1 and from L2, and of beginning and storing a register tile.
L1_LOAD, L2_LOAD, BLOCK_CYCLES, STORE_TILE = 8.4, 21.0, 77.0, 18.0
# Copying a block of a pixel's channels into a padded strip, and storing a vector of sums.
# What a load takes although it is hidden: by which 1x1 tiles take 17.3 cycles, and 2x2 16.
LOAD_INTERFERENCE = 0.7
# Issue slots of a load beside products of pairs.
PAIR_LOAD = 0.2
COPY_CYCLES, STORE_CYCLES = 2.0, 2.0
LOOP_CYCLES = 1.0


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Whether the CPU has such an instruction, and rows of the output blocks for it."""
    unit = target.find_matrix_unit(workload.numerics)
    if unit is None or workload.prologue or workload.groups > 1:
        return False
    return _columns(workload) >= PAIR and bool(_input_blocks(workload, unit))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[MatrixScheme, ...]:
    """Enumerate the best register tiles for every pair of input and output blocks."""
    unit = _unit(workload, target)
    found: list[MatrixScheme] = []
    outs = [max(b, unit.lanes) for b in channel_blocks(workload.out_channels, unit.lanes)]
    if not unit.instruction.in_tiles:
        outs = [*(b for b in (unit.group,) if b not in outs), *outs]
    for ic_bn, oc_bn in product(_input_blocks(workload, unit), outs):
        tiles = sorted(
            (replace(tile, ic_bn=ic_bn, oc_bn=oc_bn) for tile in _tiles(workload, unit, ic_bn)),
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


def _columns(workload: Conv2dWorkload) -> int:
    """Pixels of a row, or of an image that counts as one."""
    w = workload
    is_flat = w.kernel == (1, 1) and w.stride == (1, 1) and not any(w.padding) and not w.frames
    return w.out_height * w.out_width if is_flat else w.out_width


def _tiles(workload: Conv2dWorkload, unit: DotUnit, ic_bn: int) -> list[MatrixScheme]:
    """Return the register tiles that the registers hold: larger ones, where there are some.

    Of fewer blocks each operand is loaded for few products, which takes longer than these do as
    soon as it does not come from L1.
    """
    rows, columns = unit.instruction.rows, unit.instruction.columns
    found = list(_all_tiles(workload, unit, ic_bn))
    blocks = [ceil_div(each.reg_n, rows) * each.reg_oc // columns for each in found]
    least = min(ENOUGH_BLOCKS, max(blocks, default=0))
    return [each for each, count in zip(found, blocks, strict=True) if count >= least]


def _all_tiles(workload: Conv2dWorkload, unit: DotUnit, ic_bn: int) -> Iterator[MatrixScheme]:
    made, columns = unit.instruction, _columns(workload)
    needed = ceil_div(workload.out_channels, unit.lanes) * unit.lanes
    for across in range(1, MOST_BLOCKS + 1):
        reg_oc = across * made.columns
        if reg_oc % unit.lanes:
            continue
        if across * made.columns > unit.lanes:
            if ceil_div(needed, reg_oc) * reg_oc > (1 + MAX_OVERHANG) * needed:
                continue
        for down in range(1, MOST_BLOCKS + 1):
            if not _fits(down, across, unit):
                continue
            for reg_n in _pixels(down, columns, unit):
                yield MatrixScheme(ic_bn, unit.lanes, reg_n, False, reg_oc, made.group)


def _pixels(down: int, columns: int, unit: DotUnit) -> Iterator[int]:
    """Yield how many pixels so many blocks may have: whole blocks, or a part of a short row."""
    rows = unit.instruction.rows
    whole = down * rows
    if whole <= columns:
        yield whole
    if not unit.instruction.in_tiles:
        return
    # Of short rows, all pixels in as few blocks; of others, what leaves least to be done twice.
    tiles = ceil_div(columns, whole)
    each = ceil_div(ceil_div(columns, tiles), down)
    if each < rows and each * down <= columns and ceil_div(each * down, rows) == down:
        yield each * down


def _fits(down: int, across: int, unit: DotUnit) -> bool:
    """Whether sums and operands of a step have registers."""
    if unit.instruction.in_tiles:
        return down * across + down + 1 <= TILES
    return down * across + down + 2 <= unit.registers


def _input_blocks(workload: Conv2dWorkload, unit: DotUnit) -> list[int]:
    """Return blocks of input channels: of tiles lines of the caches where there are as many."""
    channels, group = workload.image_channels, unit.group
    if unit.instruction.in_tiles:
        line = ROW_BYTES // bytes_of(workload.numerics.data)
        found = [b for b in channel_blocks(channels, unit.lanes) if b <= line or b % line == 0]
        return [b for b in found if b % group == 0 and 2 * b >= line]
    blocks = [max(b, group) for b in channel_blocks(channels, unit.lanes)]
    return list(dict.fromkeys([group, *(b for b in blocks if b % group == 0)]))


def fold(
    workload: Conv2dWorkload,
    scheme: MatrixScheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> MatrixScheme | None:
    """Return the scheme with this one's register tiles between other layouts; None if none does."""
    unit = _unit(workload, target)
    if in_layout.block not in _input_blocks(workload, unit) or out_layout.block % unit.lanes:
        return None
    return replace(scheme, ic_bn=in_layout.block, oc_bn=out_layout.block)


def argument_shapes(
    workload: Conv2dWorkload, scheme: MatrixScheme
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Physical ``(shape, dtype)`` of data, packed weights, epilogue operands and output.

    The weights are ``(O / reg_oc, I / ic_bn, KH, KW, ic_bn / dot, reg_oc * dot)``.
    """
    return convolution_arguments(workload, scheme, _weight_shape(workload, scheme))


def _weight_shape(workload: Conv2dWorkload, scheme: MatrixScheme) -> tuple[int, ...]:
    ins = ceil_div(workload.kernel_shape[1], scheme.ic_bn)
    outs = output_blocks(workload, scheme)
    groups = scheme.ic_bn // scheme.dot
    return (outs, ins, *workload.kernel, groups, scheme.reg_oc * scheme.dot)


def weight_layout(workload: Conv2dWorkload, scheme: MatrixScheme) -> KernelLayout:
    """``OIHW[ic_bn / dot]i[reg_oc]o[dot]i``."""
    return KernelLayout(scheme.ic_bn, scheme.reg_oc, scheme.dot)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: MatrixScheme
) -> NDArray[np.generic]:
    """Pack ``(O, I, KH, KW)`` weights as `argument_shapes` says, zeros where padded."""
    shape = _weight_shape(workload, scheme)
    return conv2d_dot.packed(weights, shape, scheme.reg_oc, scheme.dot)


def lower(
    workload: Conv2dWorkload, scheme: MatrixScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """Return the scheduled kernel; its arguments are those of `argument_shapes`."""
    unit = _unit(workload, target)
    tiling = MatrixTiling(workload, scheme, unit, target.l2, threads)
    nest = TileNest if unit.instruction.in_tiles else PairNest
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda data, weights, *rest: nest(tiling, data, weights, rest).emit(),
    )


def estimate(
    workload: Conv2dWorkload, scheme: MatrixScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's products and padding, and the weights' way."""
    unit = _unit(workload, target)
    t = MatrixTiling(workload, scheme, unit, target.l2, threads)
    in_tiles = unit.instruction.in_tiles
    taps = workload.kernel[0] * workload.kernel[1]
    steps = t.chunks * taps * (t.steps if in_tiles else t.chunk_groups)
    tile = steps * (_tile_step(t, target) if in_tiles else _pair_step(t, target))
    tile += t.vectors * scheme.reg_n * (STORE_CYCLES + steps_cycles(workload.epilogue))
    if in_tiles:
        tile += BLOCK_CYCLES + STORE_TILE * t.block_rows * t.block_columns
    else:
        tile += TILE_CYCLES
    across = 1 if t.is_flat else t.column_tiles
    work = t.strip_tiles * across * ceil_div(t.oc_blocks, t.groups) * tile
    if t.copies:
        lines = 1 if in_tiles else scheme.ic_bn // unit.group
        work += t.image_chunks * t.strip_rows * t.strip_columns * COPY_CYCLES * lines
    busy = ceil_div(t.tasks, threads) * work / target.frequency
    weights = t.oc_blocks * t.block_bytes
    cold = cold_weights(weights, target, t.groups, workload.batch)
    return with_memory(busy, weights / t.groups, cold, target)


def _tile_step(t: MatrixTiling, target: CpuTarget) -> float:
    """Cycles of one product of each pair of tiles: theirs, or of what brings the operands."""
    products = t.block_rows * t.block_columns / t.unit.per_cycle
    data = L1_LOAD if t.data_bytes < target.l1d // 2 else L2_LOAD
    weights = L1_LOAD if t.data_bytes + t.block_bytes < target.l1d else L2_LOAD
    loads = t.block_rows * data + t.block_columns * weights
    return max(products, loads) + LOAD_INTERFERENCE * (t.block_rows + t.block_columns)


def _pair_step(t: MatrixTiling, target: CpuTarget) -> float:
    """Cycles of one group of channels of all pairs of pixels."""
    together = t.copies or (t.workload.stride[1] == 1 and t.scheme.ic_bn == t.unit.group)
    loads = t.block_rows * (1 if together else 2)
    cycles = step_cycles(
        t.block_columns, t.block_rows, t.unit, target, t.block_bytes, broadcast_loads=loads
    )
    return cycles + LOOP_CYCLES / 2 + PAIR_LOAD * (loads + t.block_columns)


TEMPLATE = ConvTemplate(
    scheme=MatrixScheme,
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
