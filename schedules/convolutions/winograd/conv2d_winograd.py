"""Winograd convolution in NCHW[x]c: F(4x4, 3x3) has 4 times fewer products, F(6, 7) 3.5.

It computes kernels of 1, 3 or 5 taps a side with stride 1 or 2, kernels of 7 taps with stride 1,
and dilated kernels with stride 1; kernels along the depth of volumes are computed as along rows. A
strip of tiles is transformed, multiplied with the transformed weights (one matrix product for each
point of a tile, register-tiled like the direct convolution) and transformed back, all within one
core's L2 cache. The price is larger weights: one for each point. Large weights come from memory in
every call, so a task then takes a share of the output channels and not of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.convolutions.winograd import filters as winograd
from neocpu.schedules.convolutions.winograd import scaled_integers
from neocpu.schedules.convolutions.winograd.domain import domain_of, proof
from neocpu.schedules.convolutions.winograd.exact_filter import packed_taps, packed_weights
from neocpu.schedules.convolutions.winograd.winograd_costs import estimated_seconds
from neocpu.schedules.convolutions.winograd.winograd_input import frames_as_rows
from neocpu.schedules.convolutions.winograd.winograd_kernel import Emitter
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.estimates.register_tile import LOAD_INTERFERENCE, unrolled_limit
from neocpu.schedules.operators.epilogue import convolution_arguments
from neocpu.schedules.tir.builder import build_convolution
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.frame_reads import turned
from neocpu.schedules.vocabulary.layout import WinogradLayout, ceil_div, channel_blocks
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate, fold
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# In the records, by the median of a Zen 3 and a Zen 4, the best scheme takes 6 % longer with other
# layouts, and the best of those that were tried with them 10 %.
FOLD_PENALTY = 1.06

MAX_VECTORS = 4
# The most that a scheme may keep before DRAM takes part: of a strip's transformed input and sums,
# in L2 caches; and of transformed input that all threads share, in bytes.
MAX_STRIP_L2, MAX_SHARED_BYTES = 4.0, 12 << 20
# Products of integers are too fast for shared data to come from beyond L2: with 1.8 MB and more,
# tasks that share channels took 1.1 to 2 times as long as strips on a Zen 4.
MAX_SHARED_L2_OF_INTEGERS = 1.0
# Candidates whose estimates are slower than the best by this factor are not worth measuring.
WORTH = 1.2

# The threads that candidates are chosen for; with more, transfers of weights matter more.
NOMINAL_THREADS = 2


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether the template computes ``workload``: dense, with vectors of channels, of
    float32, of bfloat16 if the CPU multiplies 16-bit integers, or of bytes proven exact.
    """
    given, workload = workload, turned(workload)
    domain, unit = domain_of(workload), _unit(workload, target)
    bound = proof(workload)
    return (
        unit is not None
        and (workload.numerics.reads_float32 or domain.is_of_integers)
        and (bound is None or bound.holds)
        and not (domain.is_scaled and given.frames)
        and bool(domain.tiles(workload.kernel, workload.stride))
        and (workload.dilation == (1, 1) or workload.stride == (1, 1))
        and workload.groups == 1
        and not workload.prologue
        and min(workload.image_channels, workload.out_channels) >= unit.lanes
    )


def _unit(workload: Conv2dWorkload, target: CpuTarget) -> DotUnit | None:
    return target.find_dot_unit(domain_of(workload).numerics)


def _unit_of(workload: Conv2dWorkload, target: CpuTarget) -> DotUnit:
    return target.dot_unit(domain_of(workload).numerics)


def error_factor(scheme: WinogradScheme, workload: Conv2dWorkload) -> float:
    """Return the largest norm-wise error as a multiple of direct float32 summation's, which comes
    closer with many channels, because it has more terms.
    """
    workload = turned(workload)
    domain = domain_of(workload)
    if domain.is_of_integers:
        return scaled_integers.ERROR_FACTOR if domain.is_scaled else 1.0
    return winograd.error_factor(scheme.tile, workload.kernel, workload.stride)


def space(
    workload: Conv2dWorkload, target: CpuTarget, threads: int = NOMINAL_THREADS
) -> tuple[WinogradScheme, ...]:
    """Return schemes for every pair of input and output blocks, best estimate first.

    The speed of a scheme hardly depends on its layouts. The smallest blocks therefore get the best
    scheme of each tile size and kind of task, equal blocks the best of each tile size, and other
    pairs the best one; all within a factor of `WORTH`.
    """
    return _enumerated(workload, target, threads, on_the_fly=False)


def sparing(workload: Conv2dWorkload, target: CpuTarget) -> tuple[WinogradScheme, ...]:
    """Return schemes like those of `space` that store untransformed weights."""
    if not domain_of(workload).is_exact:
        return ()
    return _enumerated(workload, target, NOMINAL_THREADS, on_the_fly=True)


def _enumerated(
    workload: Conv2dWorkload, target: CpuTarget, threads: int, *, on_the_fly: bool
) -> tuple[WinogradScheme, ...]:
    workload, lanes = turned(workload), _unit_of(workload, target).lanes
    ranked = _ranked(workload, target, threads, on_the_fly=on_the_fly)
    found: list[WinogradScheme] = []
    for ic_bn in channel_blocks(workload.image_channels, lanes):
        for oc_bn in channel_blocks(workload.out_channels, lanes):
            best: dict[tuple[int | bool, ...], WinogradScheme] = {}
            for seconds, scheme in ranked:
                kind: tuple[int | bool, ...] = (scheme.tile,) if ic_bn == oc_bn else ()
                if ic_bn == oc_bn == lanes:
                    kind = (scheme.tile, scheme.oc_split, scheme.edge_tiles)
                if kind not in best and seconds <= WORTH * ranked[0][0]:
                    best[kind] = replace(scheme, ic_bn=ic_bn, oc_bn=oc_bn)
            found += best.values()
    return tuple(sorted(found, key=lambda scheme: estimate(workload, scheme, target)))


def _ranked(
    workload: Conv2dWorkload, target: CpuTarget, threads: int, *, on_the_fly: bool
) -> list[tuple[float, WinogradScheme]]:
    """Return estimated seconds and schemes, best first; channel blocks are one vector each."""
    found = []
    for scheme in _tiled(workload, target, on_the_fly=on_the_fly):
        for reg_n in _tile_counts(workload, scheme, target):
            for candidate in _strips(workload, replace(scheme, reg_n=reg_n), target):
                found.append((estimate(workload, candidate, target, threads), candidate))
    return sorted(found, key=lambda pair: pair[0])


def _tiled(
    workload: Conv2dWorkload, target: CpuTarget, *, on_the_fly: bool
) -> Iterator[WinogradScheme]:
    """Yield schemes with different tiles, treatments of image ends, and channels of a tile."""
    lanes, domain = _unit_of(workload, target).lanes, domain_of(workload)
    for tile in domain.tiles(workload.kernel, workload.stride):
        has_edges = domain.edge_tiles(tile, workload) is not None
        for edge_tiles in (False, True) if has_edges else (False,):
            for vectors in range(1, MAX_VECTORS + 1):
                yield WinogradScheme(
                    ic_bn=lanes * domain.group,
                    oc_bn=lanes,
                    reg_n=1,
                    tile=tile,
                    reg_oc=vectors * lanes,
                    strip=1,
                    oc_split=edge_tiles or on_the_fly,
                    edge_tiles=edge_tiles,
                    on_the_fly=on_the_fly,
                )


def _tile_counts(
    workload: Conv2dWorkload, scheme: WinogradScheme, target: CpuTarget
) -> tuple[int, ...]:
    """Return the two ``reg_n`` that fit the registers and overhang the tiles least."""
    unit = _unit_of(workload, target)
    limit = unrolled_limit(scheme.reg_oc // unit.lanes, unit)
    one = Tiling(workload, scheme, unit.lanes)

    def waste(reg_n: int) -> float:
        # Wider register tiles load less for each product.
        return sum(
            points * count * each * (1 + LOAD_INTERFERENCE * limit / each)
            for points, count, each in one.register_tiles(reg_n)
        )

    different = {tuple(one.register_tiles(n)): n for n in range(min(limit, one.tiles), 0, -1)}
    return tuple(sorted(sorted(different.values()), key=waste)[:2])


def _strips(
    workload: Conv2dWorkload, scheme: WinogradScheme, target: CpuTarget
) -> Iterator[WinogradScheme]:
    """Yield schemes with different strips; with smaller tiles at the ends, the whole image."""
    lanes = _unit_of(workload, target).lanes
    blocks = Tiling(workload, scheme, lanes).blocks
    of_integers = domain_of(workload).is_of_integers
    shared = MAX_SHARED_L2_OF_INTEGERS * target.l2 if of_integers else MAX_SHARED_BYTES
    strips = [size for size in (1, 2, 4, 8, 16, 32) if size < blocks and not scheme.edge_tiles]
    for strip in (*strips, blocks):
        for oc_split in (True,) if scheme.oc_split else (False, True):
            candidate = replace(scheme, strip=strip, oc_split=oc_split)
            tiling = Tiling(workload, candidate, lanes)
            held = tiling.sum_bytes if oc_split else tiling.strip_bytes + tiling.sum_bytes
            too_much = oc_split and tiling.input_bytes > shared
            too_much |= tiling.on_the_fly and tiling.made_bytes > target.l2
            if not too_much and (strip == 1 or held <= MAX_STRIP_L2 * target.l2):
                yield candidate


def argument_shapes(workload: Conv2dWorkload, scheme: WinogradScheme) -> Arguments:
    """Return physical ``(shape, dtype)`` of data, packed weights, epilogue operands and output.

    The weights are ``(points, O / reg_oc, I, reg_oc)``, with O and I padded to whole blocks.
    Weights of integers are ``(points, O / reg_oc, I / 2, 2 reg_oc)``, with pairs of input channels
    side by side; if they stand for floats, one more row has their scales. Weights transformed on
    the fly are ``(O / reg_oc, I / 2, 9, 2 reg_oc)`` bytes.
    """
    tiling = Tiling(turned(workload), scheme, lanes=1)
    group = tiling.domain.group
    padded = ceil_div(tiling.workload.in_channels, scheme.ic_bn) * scheme.ic_bn
    if tiling.on_the_fly:
        taps = math.prod(workload.kernel)
        packed = (tiling.oc_blocks, padded // group, taps, scheme.reg_oc * group)
        return convolution_arguments(workload, scheme, packed)
    rows = padded // group + tiling.domain.is_scaled
    weights = (tiling.points, tiling.oc_blocks, rows, scheme.reg_oc * group)
    return convolution_arguments(workload, scheme, weights, tiling.domain.numerics.weights)


def weight_layout(workload: Conv2dWorkload, scheme: WinogradScheme) -> WinogradLayout | None:
    if domain_of(workload).is_of_integers:
        return None
    return WinogradLayout(scheme.tile, workload.stride, scheme.ic_bn, scheme.reg_oc)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: WinogradScheme
) -> NDArray[np.generic]:
    domain = domain_of(workload)
    if domain.is_of_integers:
        shape, dtype = argument_shapes(workload, scheme)[1]
        if dtype == workload.numerics.weights == "int8":
            return packed_taps(weights, shape)
        if domain.is_exact:
            return packed_weights(weights, shape)
        return scaled_integers.packed_weights(weights, shape, scheme.tile, workload.kernel)
    along = turned(workload)
    if along is not workload:
        weights = weights.reshape(len(weights), along.kernel[0], -1, 1).swapaxes(1, 2)
    matrix = winograd.weight_matrix(scheme.tile, along.kernel, along.stride)
    shape, _ = argument_shapes(workload, scheme)[1]
    return winograd.packed_weights(weights, shape, matrix)


def lower(
    workload: Conv2dWorkload, scheme: WinogradScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest goes over strips of the row of all images' tiles::

        for strip in parallel:
            for ic_chunk, tile:    V[tile, ic_chunk, p] = B^T d B           # in L2
            for group:                                                      # of channels
                for p, oc_block, block:                                     # reg_oc and reg_n
                    acc[reg_n, reg_oc] = 0                                  # registers
                    for ic: acc += broadcast(V[block, ic, p]) * U[p, oc_block, ic]
                    M[p, oc_block, block] = acc                             # in L2
                for tile:          output[…] = epilogue(A^T M A)

    With ``oc_split`` a separate parallel loop transforms the input, and a task is one strip of one
    group: every thread reads its own part of the weights once. The same holds with ``edge_tiles``,
    where there is only one strip. Weights ``on_the_fly`` are transformed for one block of output
    channels and a part of the input channels at a time, before all points.
    """
    along, lanes = turned(workload), _unit_of(workload, target).lanes
    tiling = Tiling(along, scheme, lanes, threads)
    if tiling.edges:
        emit = _emit_edged
    else:
        emit = _emit_split if scheme.oc_split else _emit_strips

    def body(data: Any, weights: Any, *rest: Any) -> None:
        if along is not workload:
            data, rest = frames_as_rows(data), tuple(map(frames_as_rows, rest))
        is_turned = along is not workload
        emitter = Emitter(tiling, target, data, weights, rest, rows_are_frames=is_turned)
        with emitter.arithmetic():
            emit(emitter)

    return build_convolution(argument_shapes(workload, scheme), body)


def _emit_strips(emitter: Emitter) -> None:
    tiling = emitter.tiling
    with T.parallel(tiling.strips) as strip:
        first = T.Bind(tiling.strip_start(strip))
        count = T.Bind(tiling.strip_start(strip + 1) - first)
        transformed, sums = emitter.inputs.transformed(tiling.strip_blocks), emitter.sums()
        extents = emitter.inputs.extents(tiling.strip_blocks)
        if extents is not None:
            emitter.inputs.measure(first, count, extents, 0)
        with T.serial(tiling.chunks) as chunk:
            emitter.inputs.transform(chunk, first, count, transformed, 0, extents)
        with T.serial(tiling.groups) as group:
            emitter.products(group, count, transformed, 0, sums)
            emitter.output(group, first, count, sums, extents, 0)


def _emit_split(emitter: Emitter) -> None:
    tiling = emitter.tiling
    transformed, extents = (
        emitter.inputs.transformed(tiling.blocks),
        emitter.inputs.extents(tiling.blocks),
    )
    if extents is not None:
        with T.parallel(tiling.blocks) as block:
            emitter.inputs.measure(block, 1, extents, block)
    with T.parallel(tiling.chunks * tiling.blocks) as task:
        chunk, block = tirx.floordiv(task, tiling.blocks), tirx.floormod(task, tiling.blocks)
        emitter.inputs.transform(chunk, block, 1, transformed, block, extents)
    with T.parallel(tiling.tasks) as task:
        group, strip = tirx.floordiv(task, tiling.strips), tirx.floormod(task, tiling.strips)
        first = T.Bind(tiling.strip_start(strip))
        count = T.Bind(tiling.strip_start(strip + 1) - first)
        sums = emitter.sums()
        emitter.products(group, count, transformed, first, sums)
        emitter.output(group, first, count, sums, extents, first)


def _emit_edged(emitter: Emitter) -> None:
    tiling = emitter.tiling
    transformed = emitter.inputs.transformed(tiling.blocks)
    with T.parallel(tiling.chunks * tiling.tiles) as task:
        chunk, tile = tirx.floordiv(task, tiling.tiles), tirx.floormod(task, tiling.tiles)
        emitter.inputs.transform_edged(chunk, tile, transformed)
    with T.parallel(tiling.groups) as group:
        sums = emitter.sums()
        emitter.edged_products(group, transformed, sums)
        emitter.edged_output(group, sums)


def estimate(
    workload: Conv2dWorkload, scheme: WinogradScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: products and transforms of the busiest thread, and memory."""
    lanes = _unit_of(workload, target).lanes
    return estimated_seconds(Tiling(turned(workload), scheme, lanes, threads), target)


TEMPLATE = ConvTemplate(
    scheme=WinogradScheme,
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
    wider_space=space,
    sparing=sparing,
    error_factor=error_factor,
    proof=proof,
    keeps_weights=True,
)
