"""Convolution in plain NCHW, vectorised along the output row, with any number of groups.

A register tile holds ``reg_oc`` output channels by ``reg_n`` columns. Each step loads the columns'
pixels as vectors and broadcasts one weight per channel. Rows whose pixels are not contiguous and
complete in memory (because of padding, a stride, or a width that is no multiple of the vector) are
first copied into a padded image with one plane per phase of the stride.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.s_tir import Schedule

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.packing import packing
from neocpu.schedules.estimates.memory_traffic import with_memory
from neocpu.schedules.estimates.register_tile import (
    TILE_CYCLES,
    step_cycles,
    steps_cycles,
    unrolled_limit,
)
from neocpu.schedules.operators.epilogue import apply_epilogue, convolution_arguments
from neocpu.schedules.tir.builder import PARALLEL_ELEMENTS
from neocpu.schedules.tir.input_pixels import padded_pixels, stored_pixels
from neocpu.schedules.tir.output_tiles import OutputTiles, Placed
from neocpu.schedules.tir.reshaped_arguments import with_shapes
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import NCHW, KernelLayout, ceil_div
from neocpu.schedules.vocabulary.scheme import NchwScheme
from neocpu.schedules.vocabulary.steps import TENSOR
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate
from neocpu.schedules.vocabulary.traced_sizes import typical_of, varies
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# TVM keeps smaller temporaries on the stack, where LLVM finds registers for them.
STACK_BYTES = 1024
MAX_UNROLLED_KW = 7
# The columns of a register tile, in vectors, and the number of tiles tried, best estimate first.
MAX_VECTORS, MAX_SCHEMES = 6, 4
# The number of tasks per thread that keeps all threads busy; larger numbers are not tried.
TASKS, MOST_ROWS = 2, 32
# The cycles of storing a vector of sums, and of padding one, or with a stride one element.
STORE_CYCLES, PAD_CYCLES, PHASE_CYCLES = 3, 3, 1


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    return workload.numerics.reads_float32 and not workload.prologue


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[NchwScheme, ...]:
    """Return schemes, best first: tiles of 1 to 6 vectors by as many channels as fit, or half."""
    vector, unit = _vector(workload, target), target.dot_unit(workload.numerics)
    group_out = workload.out_channels // workload.groups
    width = ceil_div(_flat(workload).out_width, vector)
    schemes: set[NchwScheme] = set()
    for vectors in range(1, min(MAX_VECTORS, width) + 1):
        limit = unrolled_limit(vectors, unit)
        for reg_oc in sorted({limit, limit - limit % 4, limit // 2} - {0}):
            reg_oc = min(reg_oc, group_out)
            while workload.groups > 1 and group_out % reg_oc:
                reg_oc -= 1
            if reg_oc > 0:
                schemes.add(NchwScheme(reg_oc, vectors * vector))
    ranked = sorted(schemes, key=lambda s: (estimate(workload, s, target), s.reg_oc, s.reg_n))
    return tuple(ranked[:MAX_SCHEMES])


def _flat(workload: Conv2dWorkload) -> Conv2dWorkload:
    """Return the same bytes as one long row, for kernels in which pixels have no neighbours."""
    if not (workload.kernel == (1, 1) and workload.stride == (1, 1) and not any(workload.padding)):
        return workload
    return replace(workload, height=1, width=workload.height * workload.width)


def _rows(workload: Conv2dWorkload, scheme: NchwScheme, threads: int) -> Conv2dWorkload:
    """Return `_flat` in the fewest equal rows, whole tiles if it is, that make enough tasks."""
    flat = _flat(workload)
    if flat is workload or threads == 1 or varies(flat.width):
        return flat
    each = workload.batch * ceil_div(workload.out_channels, scheme.reg_oc)
    for rows in range(1, ceil_div(MOST_ROWS * threads, each) + 1):
        width, rest = divmod(flat.width, rows)
        whole = width % scheme.reg_n == 0 or flat.width % scheme.reg_n
        if rest == 0 and whole and rows * each >= TASKS * threads:
            return replace(flat, height=rows, width=width)
    return flat


def _vector(workload: Conv2dWorkload, target: CpuTarget) -> int:
    """Return the lanes per vector: fewer than the machine has if a row is shorter."""
    width = typical_of(_flat(workload).out_width)
    return min(target.dot_unit(workload.numerics).lanes, 1 << (width - 1).bit_length())


def weight_layout(workload: Conv2dWorkload, scheme: NchwScheme) -> KernelLayout:
    return KernelLayout(1, scheme.reg_oc)


def argument_shapes(workload: Conv2dWorkload, scheme: NchwScheme) -> Arguments:
    o, i, kh, kw = workload.kernel_shape
    weights = (ceil_div(o, scheme.reg_oc), i, kh, kw, scheme.reg_oc)
    return convolution_arguments(workload, scheme, weights)


pack_weights = packing(weight_layout, argument_shapes)


def _tiles(workload: Conv2dWorkload, scheme: NchwScheme) -> OutputTiles:
    """Return the register tiles of the output's rows."""
    return OutputTiles.of({3: scheme.reg_n}, {3: workload.out_width})


def compute(
    workload: Conv2dWorkload,
    scheme: NchwScheme,
    tiles: OutputTiles,
    number: int,
    placed: Placed | None,
) -> list[te.Tensor]:
    """Return the TE tensors: data, weights, operands, output.

    ``conv`` has rows of so many whole ``tiles``, and may overhang the output. If tiles move, they
    are an axis of it, and it is ``placed``.
    """
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    (data_shape, read), (kernel_shape, stored), *_ = argument_shapes(workload, scheme)
    oc_tiles, group_in, _, _, reg_oc = kernel_shape
    data = te.placeholder(data_shape, read, name="data")
    kernel = te.placeholder(kernel_shape, stored, name="kernel")
    source = _phases(data, workload, number * scheme.reg_n, tiles)
    group_out = workload.out_channels // workload.groups
    ic = te.reduce_axis((0, group_in), "ic")
    kh = te.reduce_axis((0, workload.kernel[0]), "kh")
    kw = te.reduce_axis((0, workload.kernel[1]), "kw")

    def product(n: Any, o: Any, h: Any, w: Any) -> Any:
        channel = ic if workload.groups == 1 else o // group_out * group_in + ic
        row, column = h * stride_h + kh * dil_h, kw * dil_w
        if stride_w == 1:
            pixel = source(n, channel, row, w + column)
        else:
            pixel = source(n, channel, row, column % stride_w, w + column // stride_w)
        weight = kernel(o // reg_oc, ic, kh, kw, o % reg_oc)
        return te.sum(pixel * weight, axis=[ic, kh, kw])

    def moved(n: Any, o: Any, h: Any, tile: Any, w: Any) -> Any:
        return product(n, o, h, tiles.start(3, tile) + w)

    shape = (workload.batch, oc_tiles * reg_oc, workload.out_height)
    if tiles.moves:
        conv = te.compute((*shape, number, scheme.reg_n), moved, name="conv")
    else:
        conv = te.compute((*shape, number * scheme.reg_n), product, name="conv")
    output, operands = apply_epilogue(conv, workload, NCHW, placed)
    return [data, kernel, *operands, output]


def _placed(workload: Conv2dWorkload, tiles: OutputTiles, number: int) -> Placed | None:
    """Return the stage that stores so many tiles of each row; None if they overhang."""
    if not tiles.moves:
        return None
    shape = (*workload.output_shape[:3], number, tiles.tile[3])
    return Placed(shape=shape, place=lambda n, c, h, t, w: [n, c, h, tiles.start(3, t) + w])


def _phases(data: te.Tensor, workload: Conv2dWorkload, columns: int, tiles: OutputTiles) -> Any:
    """Return ``data`` padded for ``columns`` of output: ``(N, C, rows[, phase], columns)``.

    Column ``x`` of the padded image lies at ``[x % stride, x // stride]``, so that one tap reads
    adjacent pixels for adjacent outputs. If ``data`` already have this form, they are returned.
    """
    stride_w = workload.stride[1]
    rows, phases, per_phase = _padded_extents(workload, columns)
    each = workload.image_channels // workload.groups
    fits = rows <= workload.height and (tiles.moves or per_phase <= workload.width)
    fits = fits and stride_w == 1 and workload.padding[:2] == (0, 0)
    if fits and not reads_outside(workload):
        return stored_pixels(data, workload, each)
    padded = padded_pixels(data, workload, each)

    def element(b: Any, ch: Any, h: Any, *column: Any) -> Any:
        return padded(b, ch, h, column[0] if stride_w == 1 else column[1] * stride_w + column[0])

    row = (per_phase,) if stride_w == 1 else (phases, per_phase)
    shape = (workload.batch, workload.in_channels, rows, *row)
    return te.compute(shape, element, name="pad")


def _padded_extents(workload: Conv2dWorkload, columns: int) -> tuple[int, int, int]:
    """Return the rows of the padded image, and the phases and columns of each."""
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    rows = (workload.out_height - 1) * stride_h + (workload.kernel[0] - 1) * dil_h + 1
    across = (workload.kernel[1] - 1) * dil_w
    return rows, min(stride_w, across + 1), columns + across // stride_w


def lower(
    workload: Conv2dWorkload, scheme: NchwScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """The loop nest has one task for each output row of ``reg_oc`` channels::

        for n, c, h in parallel: pad[...] = row           # only where needed
        for n, oc, oh in parallel(batch, O/reg_oc, OH):
            for ow in range(OW/reg_n):
                acc[reg_oc, reg_n] = 0                     # registers
                for ic, kh, kw:                            # kw unrolled
                    for o, v in unrolled(reg_oc, reg_n/lanes):
                        acc[o, v] += pad[..., v : v + lanes] * broadcast(kernel[..., o])
                output[...] = epilogue(acc)

    A pointwise convolution treats the image as one long row; with few channels, as several rows,
    or as a row of several strips if it has any length.
    """
    flat = _rows(workload, scheme, threads)
    vector_lanes = _vector(workload, target)
    tiles, strips = _tiles(flat, scheme), _strips(flat, scheme, threads)
    number = ceil_div(ceil_div(flat.out_width, scheme.reg_n), strips) * strips
    placed = _placed(flat, tiles, number)
    sch = Schedule(te.create_prim_func(compute(flat, scheme, tiles, number, placed)))
    if flat is not workload and not varies(flat.width):
        _unflatten(sch, workload, flat.width)
    stages = {sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))}
    conv, epilogue = sch.get_sblock("conv"), sch.get_sblock("epilogue")
    n, oc, h, *w, ic, kh, kw = sch.get_loops(conv)
    oc_outer, oc_inner = sch.split(oc, [None, scheme.reg_oc])
    w_outer, w_inner = w if tiles.moves else sch.split(w[0], [None, scheme.reg_n])
    vector_outer, vector = sch.split(w_inner, [None, vector_lanes])
    task = [n, oc_outer, h]
    if strips > 1:
        strip, w_outer = sch.split(w_outer, [strips, None])
        task.append(strip)
    sch.reorder(*task, w_outer, ic, kh, kw, oc_inner, vector_outer, vector)
    sch.parallel(sch.fuse(*task))
    sch.reverse_compute_at(epilogue, w_outer)
    sch.vectorize(vector)
    if tiles.moves or (flat.out_width % scheme.reg_n == 0 and not varies(flat.out_width)):
        sch.vectorize(sch.split(sch.get_loops(epilogue)[-1], [None, vector_lanes])[1])
    for loop in (oc_inner, vector_outer, *((kw,) if workload.kernel[1] <= MAX_UNROLLED_KW else ())):
        sch.unroll(loop)
    if scheme.reg_oc * scheme.reg_n * bytes_of(workload.numerics.sum) >= STACK_BYTES:
        sch.set_scope(conv, 0, "local")
    if not tiles.moves:
        tiles.keep_sums(sch, conv)
    if placed is not None:
        placed.store(sch, epilogue)
    if "pad" in stages:
        _schedule_pad(sch, varies(workload.batch, workload.height, workload.width))
    sch.decompose_reduction(conv, ic)
    func = sch.mod["main"]
    if varies(flat.width):
        func = with_shapes(func, [shape for shape, _ in argument_shapes(workload, scheme)])
    return vectorize_calls(func).with_attr("tirx.is_scheduled", True)


def _strips(flat: Conv2dWorkload, scheme: NchwScheme, threads: int) -> int:
    """Return the strips of a long row of any length that make enough tasks; 1 for other rows."""
    if threads == 1 or flat.height > 1 or not varies(flat.width):
        return 1
    each = typical_of(flat.batch) * ceil_div(flat.out_channels, scheme.reg_oc)
    return min(ceil_div(TASKS * threads, each), MOST_ROWS)


def _unflatten(sch: Schedule, workload: Conv2dWorkload, row: int) -> None:
    """Restore the arguments' four dimensions: rows of ``row`` pixels become height by width."""
    width = workload.width

    def split_row(n: Any, c: Any, h: Any, w: Any) -> tuple[Any, ...]:
        p = h * row + w
        return (n, c, p // width, p % width)

    first = sch.get_child_blocks(sch.get_sblock("root"))[0]
    epilogue = sch.get_sblock("epilogue")
    sch.transform_layout(first, ("read", 0), split_row)
    tensors = [op.operand == TENSOR for op in workload.epilogue if op.operand != "none"]
    for number, is_tensor in enumerate(tensors):
        if is_tensor:
            sch.transform_layout(epilogue, ("read", number + 1), split_row)
    sch.transform_layout(epilogue, ("write", 0), split_row)


def _schedule_pad(sch: Schedule, of_any_size: bool) -> None:
    pad = sch.get_sblock("pad")
    n, c, h, *row = sch.get_loops(pad)
    sch.annotate(row[-1], "pragma_loop_partition_hint", 1)
    if (
        of_any_size
        or np.prod([int(sch.get(loop).extent) for loop in (n, c, h, *row)]) >= PARALLEL_ELEMENTS
    ):
        sch.parallel(sch.fuse(n, c, h))


def estimate(
    workload: Conv2dWorkload, scheme: NchwScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the tile's steps, the padded copy, and transfers of weights.

    Each ``reg_oc`` channels read the image again: all columns of a window at once, rows of a
    dilated one apart, from memory if the last-level cache does not hold it.
    """
    flat = _rows(workload, scheme, threads)
    lanes = _vector(workload, target)
    vectors = ceil_div(scheme.reg_n, lanes)
    image = workload.in_channels * workload.height * workload.width
    unit, numerics = target.dot_unit(workload.numerics), workload.numerics
    size = image * bytes_of(numerics.data) // workload.kernel[1]
    cycles = step_cycles(vectors, scheme.reg_oc, unit, target, size)
    sums = scheme.reg_oc * vectors
    steps = workload.kernel_shape[1] * workload.kernel[0] * workload.kernel[1]
    each_sum = STORE_CYCLES + steps_cycles(workload.epilogue)
    tile = steps * cycles + sums * each_sum + TILE_CYCLES
    chunks = ceil_div(workload.out_channels, scheme.reg_oc)
    tasks = ceil_div(workload.batch * flat.out_height * chunks, threads)
    padded = any(workload.padding) or workload.stride[1] > 1 or flat.out_width % scheme.reg_n
    padded = padded or reads_outside(workload)
    each = PHASE_CYCLES if workload.stride[1] > 1 else PAD_CYCLES / lanes
    columns = ceil_div(flat.out_width, scheme.reg_n)
    rows, *row = _padded_extents(flat, columns * scheme.reg_n)
    line = workload.batch * workload.in_channels * math.prod(row)
    busy = tasks * columns * tile + (line * rows * each / threads if padded else 0.0)
    weights = cold = steps * chunks * scheme.reg_oc * bytes_of(numerics.weights)
    if padded and 0 < target.l3 * threads < line * rows * bytes_of(numerics.data):
        read = flat.out_height * flat.kernel[0] if flat.dilation[0] > 1 else rows
        cold += (rows + chunks * read) * line * bytes_of(numerics.data)
    return with_memory(busy / target.frequency, weights / min(threads, chunks), cold, target)


TEMPLATE = ConvTemplate(
    scheme=NchwScheme,
    version=1,
    applies=applies,
    space=space,
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
    pack_weights=pack_weights,
    weight_layout=weight_layout,
)
