"""Direct convolution in NCHW[x]c by instructions that multiply several pixels at once.

AMX multiplies 16 pixels by 16 channels in tile registers (`tile_kernel`). AArch64's FEAT_I8MM and
FEAT_BF16 multiply two by two in vectors (`pair_kernel`). Strips, border and epilogue are those of
`dot_products`. So are the weights, except for the number of input channels of an output channel
that lie side by side.

AMX's estimates follow a Granite Rapids' speeds in C programs; no kernel of this module was ever
timed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from tvm import tirx

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.matrix_products import tile_space
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import MatrixTiling
from neocpu.schedules.convolutions.matrix_products.pair_kernel import PAIR, PairNest
from neocpu.schedules.convolutions.matrix_products.tile_kernel import TileNest
from neocpu.schedules.convolutions.matrix_products.tile_space import pixels_of_row, register_tiles
from neocpu.schedules.convolutions.packing import packing
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.estimates.register_tile import TILE_CYCLES, step_cycles
from neocpu.schedules.isa.catalogue import ROW_BYTES
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
    if w.prologue or w.groups > 1 or w.kernel[1] > WIDEST_WINDOW:
        return False
    return pixels_of_row(w) >= PAIR and bool(_input_blocks(w, unit))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[MatrixScheme, ...]:
    """Return the best register tiles for every pair of input and output blocks."""
    unit, columns = _unit(workload, target), pixels_of_row(workload)
    found: list[MatrixScheme] = []
    outs = [max(b, unit.lanes) for b in channel_blocks(workload.out_channels, unit.lanes)]
    if not unit.instruction.in_tiles:
        outs = [*(b for b in (unit.group,) if b not in outs), *outs]
    for ic_bn, oc_bn in product(_input_blocks(workload, unit), outs):
        tiles = sorted(
            (
                MatrixScheme(
                    ic_bn, oc_bn, reg_n=reg_n, unroll_ker=False, reg_oc=reg_oc, dot=unit.group
                )
                for reg_n, reg_oc in register_tiles(columns, workload.out_channels, unit)
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
    """Return the scheme with the same register tiles for other layouts, or None."""
    unit = _unit(workload, target)
    whole = unit.instruction.depth or unit.group
    reads = in_layout.block % whole == 0 or in_layout.block in _input_blocks(workload, unit)
    if not reads or out_layout.block % unit.lanes:
        return None
    return replace(scheme, ic_bn=in_layout.block, oc_bn=out_layout.block)


def argument_shapes(workload: Conv2dWorkload, scheme: MatrixScheme) -> Arguments:
    """The weights are ``(O / reg_oc, I / ic_bn, KH, KW, ic_bn / dot, reg_oc * dot)``."""
    ins = ceil_div(workload.kernel_shape[1], scheme.ic_bn)
    outs = output_blocks(workload, scheme)
    groups = scheme.ic_bn // scheme.dot
    weights = (outs, ins, *workload.kernel, groups, scheme.reg_oc * scheme.dot)
    return convolution_arguments(workload, scheme, weights)


def weight_layout(workload: Conv2dWorkload, scheme: MatrixScheme) -> KernelLayout:
    return KernelLayout(scheme.ic_bn, scheme.reg_oc, scheme.dot)


pack_weights = packing(weight_layout, argument_shapes)


def lower(
    workload: Conv2dWorkload, scheme: MatrixScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
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
    """Return analytic seconds: the busiest thread's products and padding, and weight transfers."""
    unit = _unit(workload, target)
    t = MatrixTiling(workload, scheme, unit, target.l2, threads)
    if unit.instruction.in_tiles:
        work, copied = tile_space.strip_cycles(t, target), 1
    else:
        tap, copied = t.chunk_groups * _pair_step(t, target), scheme.ic_bn // unit.group
        work = tile_space.register_tiles_cycles(t, tap, TILE_CYCLES)
    if t.copies:
        work += t.image_chunks * t.strip_rows * t.strip_columns * COPY_CYCLES * copied
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
