"""Depthwise convolution in NCHW[x]c: one vector lane per channel, so nothing is broadcast.

A tap costs one load and one multiply-add per vector of pixels; the weights of a chunk are
``KH * KW`` vectors that stay in L1. Several rows share a task, so that the strip of padded input
which the task copies is read by every row of the window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.s_tir import Schedule

from neocpu.schedules.epilogue import apply_epilogue, epilogue_operands
from neocpu.schedules.layout import ceil_div
from neocpu.schedules.register_tile import EPILOGUE_CYCLES, FMA_LATENCY
from neocpu.schedules.scheme import DepthwiseScheme
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.vector_math import vectorize_calls
from neocpu.schedules.workload import Conv2dWorkload

NAME = DepthwiseScheme.template
VERSION = 1

# Unrolling a window of more taps overflows the instruction cache.
MAX_UNROLLED_TAPS = 25
# TVM keeps smaller temporaries on the stack, where LLVM finds registers for them; larger ones are
# allocated by a call per tile.
STACK_BYTES = 1024
MAX_TASK_ROWS = 16
# Cycles to begin a task, to begin a register tile in it, and to go on to the next tap in a loop.
TASK_CYCLES, TILE_CYCLES, LOOP_CYCLES = 50, 15, 2
# Storing a vector of sums, and copying one of pixels to the padded strip.
STORE_CYCLES, STRIP_CYCLES = 3, 1.5
# Vectors that a core loads per cycle.
LOADS_PER_CYCLE = 2


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Whether each input channel makes exactly one output channel, in float32."""
    return workload.is_depthwise and workload.dtype == "float32"


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[DepthwiseScheme, ...]:
    """Blocks of one, two and four vectors, each with the two tile widths that waste least."""
    lanes = target.lanes(workload.dtype)
    taps = workload.kernel[0] * workload.kernel[1]
    blocks = [lanes]
    for block in (2 * lanes, 4 * lanes):
        if ceil_div(workload.in_channels, block) * block <= 1.15 * workload.in_channels:
            blocks.append(block)
    schemes: list[DepthwiseScheme] = []
    for block in blocks:
        limit = min(_tile_limit(block, target), workload.out_width)
        tiles = [DepthwiseScheme(block, n, taps <= MAX_UNROLLED_TAPS) for n in range(1, limit + 1)]
        tiles.sort(key=lambda scheme: estimate(workload, scheme, target))
        schemes += tiles[:2]
        if schemes[-1].unroll_ker:
            schemes.append(DepthwiseScheme(block, tiles[0].reg_n, False))
    return tuple(sorted(schemes, key=lambda scheme: estimate(workload, scheme, target)))


def _tile_limit(block: int, target: CpuTarget) -> int:
    """Columns whose accumulators fit the registers (two are left for operands) and the stack."""
    vectors = ceil_div(block, target.lanes())
    return max(1, min((target.vector_registers - 2) // vectors, (STACK_BYTES - 1) // (block * 4)))


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: DepthwiseScheme
) -> NDArray[np.generic]:
    """Pack ``(C, 1, KH, KW)`` weights to ``(ceil(C/x), KH, KW, x)``, padded lanes zero."""
    channels, _, kh, kw = weights.shape
    chunks = ceil_div(channels, scheme.oc_bn)
    padded = np.pad(weights[:, 0], ((0, chunks * scheme.oc_bn - channels), (0, 0), (0, 0)))
    blocked = padded.reshape(chunks, scheme.oc_bn, kh, kw).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(blocked)


def argument_shapes(
    workload: Conv2dWorkload, scheme: DepthwiseScheme
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Physical ``(shape, dtype)`` of data, packed weights, epilogue operands and output."""
    dtype, chunks = workload.dtype, ceil_div(workload.in_channels, scheme.oc_bn)
    return (
        (scheme.in_layout.shape(workload.input_shape), dtype),
        ((chunks, *workload.kernel, scheme.oc_bn), dtype),
        *epilogue_operands(workload, scheme.out_layout),
        (scheme.out_layout.shape(workload.output_shape), dtype),
    )


def compute(workload: Conv2dWorkload, scheme: DepthwiseScheme, task_rows: int) -> list[te.Tensor]:
    """Return the TE tensors: data, weights, epilogue operands, output.

    The stage ``conv`` covers whole tasks and register tiles, so it may overhang the output; ``pad``
    supplies the zeros around the image and under the overhang where there is either.
    """
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    (data_shape, dtype), (kernel_shape, _), *_ = argument_shapes(workload, scheme)
    data = te.placeholder(data_shape, dtype, name="data")
    kernel = te.placeholder(kernel_shape, dtype, name="kernel")
    rows = ceil_div(workload.out_height, task_rows) * task_rows
    columns = ceil_div(workload.out_width, scheme.reg_n) * scheme.reg_n
    source = _pad(data, workload, rows, columns)
    kh = te.reduce_axis((0, workload.kernel[0]), "kh")
    kw = te.reduce_axis((0, workload.kernel[1]), "kw")

    def product(n: Any, c: Any, h: Any, w: Any, lane: Any) -> Any:
        pixel = source(n, c, h * stride_h + kh * dil_h, w * stride_w + kw * dil_w, lane)
        return te.sum(pixel * kernel(c, kh, kw, lane), axis=[kh, kw])

    shape = (workload.batch, data_shape[1], rows, columns, scheme.oc_bn)
    conv = te.compute(shape, product, name="conv")
    output, operands = apply_epilogue(conv, workload, scheme.out_layout)
    return [data, kernel, *operands, output]


def _pad(data: te.Tensor, workload: Conv2dWorkload, rows: int, columns: int) -> te.Tensor:
    """Return ``data`` with every pixel that ``rows`` by ``columns`` of output read."""
    top, left, _, _ = workload.padding
    height, width = workload.height, workload.width
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    reach_h = (rows - 1) * stride_h + (workload.kernel[0] - 1) * dil_h + 1
    reach_w = (columns - 1) * stride_w + (workload.kernel[1] - 1) * dil_w + 1
    if (top, left) == (0, 0) and reach_h <= height and reach_w <= width:
        return data
    n, chunks, _, _, block = (int(extent) for extent in data.shape)

    def element(b: Any, c: Any, h: Any, w: Any, lane: Any) -> Any:
        inside = tirx.all(h >= top, h < height + top, w >= left, w < width + left)
        pixel = data(b, c, h - top, w - left, lane)
        return tirx.if_then_else(inside, pixel, tirx.const(0, data.dtype))

    return te.compute((n, chunks, reach_h, reach_w, block), element, name="pad")


def _task_rows(
    workload: Conv2dWorkload, scheme: DepthwiseScheme, target: CpuTarget, threads: int
) -> int:
    """Output rows of one task: many, so that strips overlap little, yet four tasks per thread.

    The strip must leave half the L2 cache to the rows it is read from.
    """
    columns = (workload.out_width + scheme.reg_n) * workload.stride[1]
    columns += (workload.kernel[1] - 1) * workload.dilation[1]
    chunks = workload.batch * ceil_div(workload.in_channels, scheme.oc_bn)
    best = 1
    for rows in range(2, min(workload.out_height, MAX_TASK_ROWS) + 1):
        strip = rows * workload.stride[0] + (workload.kernel[0] - 1) * workload.dilation[0]
        tasks = ceil_div(workload.out_height, rows)
        fits = strip * columns * scheme.oc_bn * 4 <= target.l2 // 2
        wasted = tasks * rows > 1.05 * workload.out_height
        if fits and not wasted and chunks * tasks >= 4 * threads:
            best = rows
    return best


def lower(
    workload: Conv2dWorkload, scheme: DepthwiseScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """Return the scheduled kernel; its arguments are those of `argument_shapes`.

    ::

        for n, chunk, h in parallel(batch, C/x, OH/rows):
            pad[...] = the input rows this task reads          # only if padded; stays in cache
            for r in range(rows):
                for ow in range(OW/reg_n):
                    acc[reg_n, x] = 0                          # registers
                    for kh, kw:                                # unrolled by unroll_ker
                        for j, v in unrolled(reg_n, x/lanes):
                            acc[j, v] += pad[...] * kernel[kh, kw, v]
                    output[...] = epilogue(acc)
    """
    task_rows = _task_rows(workload, scheme, target, threads)
    sch = Schedule(te.create_prim_func(compute(workload, scheme, task_rows)))
    stages = {sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))}
    conv, epilogue = sch.get_sblock("conv"), sch.get_sblock("epilogue")
    n, chunk, h, w, lane, kh, kw = sch.get_loops(conv)
    lanes = min(target.lanes(workload.dtype), scheme.oc_bn)
    h_task, h_row = sch.split(h, [None, task_rows])
    w_outer, w_inner = sch.split(w, [None, scheme.reg_n])
    vector_outer, vector = sch.split(lane, [None, lanes])
    sch.reorder(n, chunk, h_task, h_row, w_outer, kh, kw, w_inner, vector_outer, vector)
    task = sch.fuse(n, chunk, h_task)
    sch.parallel(task)
    sch.reverse_compute_at(epilogue, w_outer)
    *stores, lane = sch.get_loops(epilogue)[3:]
    store_outer, store_vector = sch.split(lane, [None, lanes])
    sch.vectorize(store_vector)
    sch.vectorize(vector)
    window = (kh, kw) if scheme.unroll_ker else ()
    for loop in (w_inner, vector_outer, *stores, store_outer, *window):
        sch.unroll(loop)
    if "pad" in stages:
        _schedule_pad(sch, task)
    sch.decompose_reduction(conv, kh)
    return vectorize_calls(sch.mod["main"]).with_attr("tirx.is_scheduled", True)


def _schedule_pad(sch: Schedule, task: Any) -> None:
    """Make each task pad its own strip; the padded columns are peeled off, the rest is a copy."""
    pad = sch.get_sblock("pad")
    sch.compute_at(pad, task)
    *_, column, lane = sch.get_loops(pad)
    sch.vectorize(lane)
    sch.annotate(column, "pragma_loop_partition_hint", 1)


def estimate(
    workload: Conv2dWorkload, scheme: DepthwiseScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: a load and a multiply-add for each tap, and the strip's copy."""
    vectors = ceil_div(scheme.oc_bn, target.lanes(workload.dtype))
    taps = workload.kernel[0] * workload.kernel[1]
    sums = vectors * scheme.reg_n
    tap = max(sums / target.fma_per_cycle, (sums + vectors) / LOADS_PER_CYCLE, FMA_LATENCY)
    if not scheme.unroll_ker:
        tap += LOOP_CYCLES
    each_sum = STORE_CYCLES + EPILOGUE_CYCLES * len(workload.epilogue)
    tile = taps * tap + sums * each_sum + TILE_CYCLES
    task_rows = _task_rows(workload, scheme, target, threads)
    columns = ceil_div(workload.out_width, scheme.reg_n)
    chunks = workload.batch * ceil_div(workload.in_channels, scheme.oc_bn)
    strip = task_rows * workload.stride[0] + (workload.kernel[0] - 1) * workload.dilation[0]
    padded = any(workload.padding) or workload.out_width % scheme.reg_n
    copy = strip * workload.width * vectors * STRIP_CYCLES if padded else 0.0
    tasks = chunks * ceil_div(workload.out_height, task_rows)
    cycles = ceil_div(tasks, threads) * (task_rows * columns * tile + copy + TASK_CYCLES)
    return cycles / target.frequency
