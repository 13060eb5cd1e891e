"""Convolution of float32 by tiles of bfloat16: three products of halves for one, in NCHW[x]c.

A float32 value is the sum of two bfloat16 values, up to 2^-17 of it. The product of two values is
therefore the product of their upper parts plus each upper part times the other's lower part. All
three are exact and added up in float32. The norm-wise error is 4.4e-6, however long the sum is. AMX
multiplies bfloat16 fifteen times as fast as vectors multiply float32, so three products are five
times as fast as one.

An infinity becomes a NaN because its lower part is one, and so does a value above 3.39e38, which
rounds to infinity: Winograd's transforms do the same. Plans that must keep infinities use neither.
Values below 2^-110 lose their lower parts.

On a Granite Rapids, in C programs, whole networks were 2.3 to 2.4 times as fast as with vector
kernels (oneMKL has such modes for matrix products). On an Emerald Rapids whose neighbours slowed
tiles down, these kernels made ResNet-50 1.26 times as fast.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.bfloat16 import array_dtype, from_bits, round_to_bits
from neocpu.schedules.convolutions.matrix_products import tile_space
from neocpu.schedules.convolutions.matrix_products.joined_weights import with_joined_columns
from neocpu.schedules.convolutions.matrix_products.matrix_tiling import BLOCKS, JOINED_BLOCK
from neocpu.schedules.convolutions.matrix_products.split_kernel import SplitNest
from neocpu.schedules.convolutions.matrix_products.split_tiling import SplitTiling, holds_lines
from neocpu.schedules.convolutions.matrix_products.tile_space import (
    joins_columns,
    register_tiles,
    rows_and_pixels,
)
from neocpu.schedules.convolutions.packing import packed
from neocpu.schedules.convolutions.pointwise_tiling import output_blocks
from neocpu.schedules.estimates.register_tile import steps_cycles
from neocpu.schedules.isa.catalogue import TILE_COLUMNS
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.tir.tiles import LINE, PARTS, PRODUCTS
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import DataLayout, KernelLayout, ceil_div, channel_blocks
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.scheme import SplitScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The error as a multiple of direct summation's, in layers of a ResNet-50: 4.9e-6 to 2.9e-7.
ERROR_FACTOR = 17.0
# Fewer input channels leave most of a line empty.
LEAST_CHANNELS = 24
# The cycles of splitting a line of channels of a pixel.
SPLIT_CYCLES = 10.0
# The most rows of a window that are unrolled, as columns are: more overflow the instruction cache.
MAX_UNROLLED_ROWS = 3
WIDEST_WINDOW = 16


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether the CPU has tiles of bfloat16, and the layer has lines of channels."""
    w = workload
    if w.numerics != FLOAT32 or w.groups > 1 or reads_outside(w) or w.frames:
        return False
    if w.kernel[1] > WIDEST_WINDOW:
        return False
    if w.prologue and w.kernel != (1, 1):  # strict plans would have no template for it
        return False
    return target.bfloat16_tiles is not None and bool(_input_blocks(w))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[SplitScheme, ...]:
    """Return register tiles for every pair of input and output blocks."""
    unit = _unit(target)
    outs = channel_blocks(workload.out_channels, unit.lanes)
    rows, columns = rows_and_pixels(workload, unit, any_stride=True)
    tiles = register_tiles(columns, rows, workload.out_channels, unit, PARTS)
    unrolled = (False, True) if 1 < workload.kernel[0] <= MAX_UNROLLED_ROWS else (False,)
    found = [
        SplitScheme(
            ic_bn,
            max(oc_bn, unit.lanes),
            reg_n=reg_n,
            unroll_ker=unroll_ker,
            reg_oc=reg_oc,
            reg_oh=reg_oh,
        )
        for ic_bn, oc_bn in product(_input_blocks(workload), outs)
        for (reg_oh, reg_n, reg_oc), unroll_ker in product(tiles, unrolled)
    ]
    return tuple(sorted(found, key=lambda scheme: estimate(workload, scheme, target)))


def _unit(target: CpuTarget) -> DotUnit:
    unit = target.bfloat16_tiles
    assert unit is not None, target
    return unit


def _input_blocks(workload: Conv2dWorkload) -> list[int]:
    """Return blocks of input channels that make up whole lines."""
    w, channels = workload, workload.image_channels
    if channels <= JOINED_BLOCK:
        return [JOINED_BLOCK] if joins_columns(w, LINE) else []
    if channels < LEAST_CHANNELS:
        return []
    return [b for b in BLOCKS if ceil_div(channels, b) * b == ceil_div(channels, LINE) * LINE]


def fold(
    workload: Conv2dWorkload,
    scheme: SplitScheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> SplitScheme | None:
    """Return the scheme with the same register tiles for other layouts, or None."""
    unit = _unit(target)
    reads = in_layout.block in _input_blocks(workload) or holds_lines(workload, in_layout.block)
    if not reads or out_layout.block % unit.lanes:
        return None
    return replace(scheme, ic_bn=in_layout.block, oc_bn=out_layout.block)


def argument_shapes(workload: Conv2dWorkload, scheme: SplitScheme) -> Arguments:
    """The weights are bfloat16, ``(O / 16, I / 32, KH, KW, 2, 16, 16 * 2)``.

    Each line of channels has the upper parts, then the lower ones, with two input channels of an
    output channel side by side. For a picture KW is 1, and the line contains the columns.
    """
    return convolution_arguments(workload, scheme, _weight_shape(workload, scheme), BFLOAT16)


def _weight_shape(workload: Conv2dWorkload, scheme: SplitScheme) -> tuple[int, ...]:
    outs, (kernel_h, kernel_w) = output_blocks(workload, scheme), workload.kernel
    tiles = outs * scheme.reg_oc // TILE_COLUMNS
    lines = ceil_div(workload.kernel_shape[1], LINE)
    columns = 1 if scheme.ic_bn == JOINED_BLOCK else kernel_w
    return (tiles, lines, kernel_h, columns, PARTS, LINE // 2, LINE)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: SplitScheme
) -> NDArray[np.generic]:
    outs, lines, *kernel, _, groups, width = _weight_shape(workload, scheme)
    given = np.ascontiguousarray(weights, np.float32)
    if scheme.ic_bn == JOINED_BLOCK:
        given = with_joined_columns(given)
    upper = round_to_bits(given)
    with np.errstate(invalid="ignore"):  # infinite weights have NaN lower parts
        lower = round_to_bits(given - from_bits(upper))
    layout = KernelLayout(LINE, TILE_COLUMNS, 2)
    shape = (outs, lines, *kernel, groups, width)
    parts = [packed(part, layout, shape) for part in (upper, lower)]
    return np.stack(parts, axis=4).view(array_dtype(BFLOAT16))


def lower(
    workload: Conv2dWorkload, scheme: SplitScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    tiling = SplitTiling(workload, scheme, _unit(target), target.l2, threads)
    return build_convolution(
        argument_shapes(workload, scheme),
        lambda data, weights, *rest: SplitNest(tiling, data, weights, rest).emit(),
    )


def estimate(
    workload: Conv2dWorkload, scheme: SplitScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's products and splits, and weight transfers."""
    unit = _unit(target)
    t = SplitTiling(workload, scheme, unit, target.l2, threads)
    work = tile_space.strip_cycles(t, target, products=PRODUCTS[PARTS], loads=PARTS)
    each = SPLIT_CYCLES + LINE // unit.lanes * steps_cycles(workload.prologue)
    work += t.copied_pixels * t.chunks * each
    return t.seconds(work, target)


def error_factor(scheme: SplitScheme, workload: Conv2dWorkload) -> float:
    return ERROR_FACTOR


TEMPLATE = ConvTemplate(
    scheme=SplitScheme,
    version=2,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
    fold=fold,
    error_factor=error_factor,
    prologues=True,
)
