"""Direct convolution in NCHW[x]c: the paper's Algorithm 1 with a two-dimensional register tile.

The kernel keeps ``reg_oh * reg_n * oc_bn`` sums in vector registers, and for each input channel
and kernel tap loads ``oc_bn`` weights once and multiplies them with ``reg_oh * reg_n`` broadcast
pixels. Beyond the paper: several output rows and several vectors per tile, block factors and tile
widths that need not divide, groups, and padding that costs no pass over memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.s_tir import Schedule

from neocpu.schedules.builder import prefetch_to_l2
from neocpu.schedules.epilogue import apply_epilogue, epilogue_operands
from neocpu.schedules.layout import DataLayout, ceil_div, channel_blocks
from neocpu.schedules.memory import conflicts_in_l2, fork_seconds, with_memory
from neocpu.schedules.register_tile import (
    EPILOGUE_CYCLES,
    TILE_CYCLES,
    step_cycles,
    unrolled_limit,
)
from neocpu.schedules.scheme import DirectScheme
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.vector_math import vectorize_calls
from neocpu.schedules.workload import Conv2dWorkload

NAME = DirectScheme.template
VERSION = 1

# Unrolling a window of more taps overflows the instruction cache (7x7 halves the speed).
MAX_UNROLLED_TAPS = 9
# Beginning a task, and storing a vector of its sums.
TASK_CYCLES, STORE_CYCLES = 300, 1
# Leaving the loop over a block's channels, which LLVM unrolls as a whole if they are so few.
LOOP_CYCLES, UNROLLED_CHANNELS = 6.0, 8
# Copying a vector of pixels to a padded strip, or to a padded image, which L2 does not hold.
STRIP_CYCLES, IMAGE_CYCLES = 3.0, 12.0
# Part of that which a pixel of few channels still takes.
NARROW_COPY = 0.25
# Waiting for a piece of a row that L2 did not keep; the rest of it is prefetched.
CONFLICT_CYCLES = 4.0
# Weights, in L2 caches, up to which a thread takes rows and not channels.
ROWS_FIRST_L2_SHARE = 1.25
# Copies of the image from which on padding it once, in a pass of its own, is cheaper.
MAX_COPIES = 8.0
# Weights of a chunk that are worth prefetching, and tiles over which that is spread: where a chunk
# is used longer than this, waiting for it once does not matter.
PREFETCH_BYTES, PREFETCH_TILES = 64 << 10, 32
# Tiles tried for a pair of blocks, best estimate first, and for the pairs of the first input block.
TILES_PER_BLOCK, MORE_TILES = 2, 4


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Whether the template computes ``workload``: float32, and groups that blocks can follow."""
    return workload.dtype == "float32" and bool(_block_pairs(workload, target))


def space(workload: Conv2dWorkload, target: CpuTarget) -> tuple[DirectScheme, ...]:
    """Enumerate the candidate list of paper §3.3.1, pruned to tiles that fit the registers.

    Every pair of input and output block appears, each with its `TILES_PER_BLOCK` best tiles, so
    that the global search finds a scheme for every pair of layouts.
    """
    schemes: list[DirectScheme] = []
    pairs = _block_pairs(workload, target)
    taps = workload.kernel[0] * workload.kernel[1]
    for ic_bn, oc_bn in pairs:
        tiles = [
            DirectScheme(ic_bn, oc_bn, reg_n, False, reg_oh)
            for reg_oh, reg_n in _tiles(workload, oc_bn, target)
        ]
        tiles.sort(key=lambda scheme: estimate(workload, scheme, target))
        # How good a tile is hardly depends on the input's block: look wider for one of them.
        first = ic_bn == pairs[0][0]
        schemes += tiles[: MORE_TILES if first else TILES_PER_BLOCK]
        if first and 1 < taps <= MAX_UNROLLED_TAPS:
            schemes.append(replace(tiles[0], unroll_ker=True))
    return tuple(sorted(schemes, key=lambda scheme: estimate(workload, scheme, target)))


@lru_cache(maxsize=1024)
def _block_pairs(workload: Conv2dWorkload, target: CpuTarget) -> tuple[tuple[int, int], ...]:
    """Return the legal ``(ic_bn, oc_bn)``; with groups a block must not straddle two of them."""
    lanes = target.lanes(workload.dtype)
    group_in = workload.in_channels // workload.groups
    group_out = workload.out_channels // workload.groups
    outs = channel_blocks(workload.out_channels, lanes)
    if workload.in_channels < lanes:
        ins = [1, *channel_blocks(workload.in_channels, lanes)]
    else:
        ins = channel_blocks(workload.in_channels, lanes)
    if workload.groups > 1:
        half = [b for b in (lanes, lanes // 2, lanes // 4) if b > 0]
        ins = [b for b in sorted({*ins, *half}) if group_in % b == 0]
        outs = [b for b in sorted({*outs, *half}) if group_out % b == 0]
    # One output channel leaves no lanes to fill: the NCHW template computes along the row instead.
    return tuple((i, o) for i in sorted(set(ins)) for o in outs if o > 1)


def _tiles(workload: Conv2dWorkload, oc_bn: int, target: CpuTarget) -> list[tuple[int, int]]:
    """Return the ``(reg_oh, reg_n)`` whose accumulators, weights and pixel fit the registers."""
    vectors = ceil_div(oc_bn, target.lanes(workload.dtype))
    limit = unrolled_limit(vectors, target)
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
    """Return the scheme that stores this one's register tile in another block; None if none does.

    Every vector must fall into one chunk, and the tiles must write every chunk to its end. Loads do
    not fold: on record, of the tiles that are best for one input block a tenth take at least 16 %
    longer with another (1x1: twice as long).
    """
    oc_bn, out_bn = scheme.oc_bn, out_layout.block
    vector = min(target.lanes(workload.dtype), oc_bn)
    written, needed = (ceil_div(workload.out_channels, b) * b for b in (oc_bn, out_bn))
    if in_layout != scheme.in_layout or oc_bn % vector or out_bn % vector or written != needed:
        return None
    return replace(scheme, out_bn=0 if out_bn == oc_bn else out_bn)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: DirectScheme
) -> NDArray[np.generic]:
    """Pack ``(O, I/groups, KH, KW)`` weights to ``OIHW[ic_bn]i[oc_bn]o``."""
    return scheme.kernel_layout.pack(weights)


def argument_shapes(
    workload: Conv2dWorkload, scheme: DirectScheme
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Physical ``(shape, dtype)`` of data, packed weights, epilogue operands and output."""
    dtype = workload.dtype
    return (
        (scheme.in_layout.shape(workload.input_shape), dtype),
        (scheme.kernel_layout.shape(workload.kernel_shape), dtype),
        *epilogue_operands(workload, scheme.out_layout),
        (scheme.out_layout.shape(workload.output_shape), dtype),
    )


def compute(workload: Conv2dWorkload, scheme: DirectScheme) -> list[te.Tensor]:
    """Return the TE tensors: data, weights, epilogue operands, output.

    The stage ``conv`` covers whole register tiles, so it may overhang the output; ``pad`` supplies
    the zeros around the image and under the overhang, and is left out where neither exists.
    """
    ic_bn, oc_bn = scheme.ic_bn, scheme.oc_bn
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    (data_shape, dtype), (kernel_shape, _), *_ = argument_shapes(workload, scheme)
    data = te.placeholder(data_shape, dtype, name="data")
    kernel = te.placeholder(kernel_shape, dtype, name="kernel")
    rows = ceil_div(workload.out_height, scheme.reg_oh) * scheme.reg_oh
    columns = ceil_div(workload.out_width, scheme.reg_n) * scheme.reg_n
    source = _pad(data, workload, rows, columns)
    chunks_out, chunks_in = kernel_shape[0], kernel_shape[1]
    chunks_out_group = chunks_out // workload.groups if workload.groups > 1 else chunks_out
    ic_chunk = te.reduce_axis((0, chunks_in), "ic_chunk")
    ic = te.reduce_axis((0, ic_bn), "ic")
    kh = te.reduce_axis((0, workload.kernel[0]), "kh")
    kw = te.reduce_axis((0, workload.kernel[1]), "kw")

    def product(n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, o: tirx.Var) -> tirx.Expr:
        chunk = ic_chunk if workload.groups == 1 else c // chunks_out_group * chunks_in + ic_chunk
        at = (n, chunk, h * stride_h + kh * dil_h, w * stride_w + kw * dil_w)
        pixel = source(*at) if len(data_shape) == 4 else source(*at, ic)
        return te.sum(pixel * kernel(c, ic_chunk, kh, kw, ic, o), axis=[ic_chunk, kh, kw, ic])

    conv = te.compute((workload.batch, chunks_out, rows, columns, oc_bn), product, name="conv")
    output, operands = apply_epilogue(conv, workload, DataLayout(oc_bn))
    return [data, kernel, *operands, output]


def _pad(data: te.Tensor, workload: Conv2dWorkload, rows: int, columns: int) -> te.Tensor:
    """Return ``data`` with every pixel ``rows`` by ``columns`` of output read, zeros outside."""
    top, left, _, _ = workload.padding
    height, width = workload.height, workload.width
    reach = [
        (count - 1) * stride + (kernel - 1) * dilation + 1
        for count, stride, kernel, dilation in zip(
            (rows, columns), workload.stride, workload.kernel, workload.dilation, strict=True
        )
    ]
    if (top, left) == (0, 0) and reach[0] <= height and reach[1] <= width:
        return data
    n, chunks, _, _, *block = (int(extent) for extent in data.shape)
    zero = tirx.const(0, data.dtype)

    def element(b: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, *i: tirx.Var) -> tirx.Expr:
        inside = tirx.all(h >= top, h < height + top, w >= left, w < width + left)
        return tirx.if_then_else(inside, data(b, c, h - top, w - left, *i), zero)

    return te.compute((n, chunks, reach[0], reach[1], *block), element, name="pad")


def lower(
    workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """Return the scheduled kernel; its arguments are those of `argument_shapes`.

    The loop nest, with one task per output row tile and channel chunk (`_rows_first` swaps them)::

        for n, oc_chunk, oh in parallel(batch, O/oc_bn, OH/reg_oh):
            pad[…] = the input rows this task reads            # only if padded; stays in L2
            for ow in range(OW/reg_n):
                acc[reg_oh, reg_n, oc_bn] = 0                   # registers
                for ic_chunk, kh, kw, ic:                       # kh, kw unrolled by unroll_ker
                    for r, j, v in unrolled(reg_oh, reg_n, oc_bn/lanes):
                        acc[r, j, v] += broadcast(pixel) * kernel[…, v : v + lanes]
                output[…] = epilogue(acc)
    """
    sch = Schedule(te.create_prim_func(compute(workload, scheme)))
    stages = {sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))}
    conv, epilogue = sch.get_sblock("conv"), sch.get_sblock("epilogue")
    n, chunk, h, w, oc, ic_chunk, kh, kw, ic = sch.get_loops(conv)
    lanes = min(target.lanes(workload.dtype), scheme.oc_bn)
    h_outer, h_inner = sch.split(h, [None, scheme.reg_oh])
    w_outer, w_inner = sch.split(w, [None, scheme.reg_n])
    vector_outer, vector = sch.split(oc, [None, lanes])
    unrolled = [h_inner, w_inner, vector_outer]
    order = (h_outer, chunk) if _rows_first(workload, scheme, target) else (chunk, h_outer)
    sch.reorder(n, *order, w_outer, ic_chunk, kh, kw, ic, *unrolled, vector)
    task = sch.fuse(n, *order)
    sch.parallel(task)
    sch.reverse_compute_at(epilogue, w_outer)
    *stores, oc = sch.get_loops(epilogue)[2:]
    store_outer, store_vector = sch.split(oc, [None, lanes])
    sch.vectorize(store_vector)
    sch.vectorize(vector)
    for loop in (*unrolled, *stores, store_outer, *((kh, kw) if scheme.unroll_ker else ())):
        sch.unroll(loop)
    sch.set_scope(conv, 0, "local")
    if "pad" in stages:
        _schedule_pad(sch, task, workload, scheme)
    sch.decompose_reduction(conv, ic_chunk)
    if scheme.out_bn:
        _fold_stores(sch, epilogue, scheme)
    loops = [sch.get(loop).loop_var for loop in (task, w_outer, ic_chunk, kh, kw, ic)]
    func = sch.mod["main"]
    if not _rows_first(workload, scheme, target):
        func = _prefetch_weights(func, workload, scheme, loops)
    return vectorize_calls(func).with_attr("tirx.is_scheduled", True)


def _fold_stores(sch: Schedule, epilogue: object, scheme: DirectScheme) -> None:
    """Give what the epilogue reads and writes blocks of ``out_bn`` channels.

    A register tile's vectors are stored one by one, so each may go to a chunk of its own: where a
    vector never straddles two of them, only the stores' addresses change.
    """
    block, other = scheme.oc_bn, scheme.out_bn

    def place(*index: tirx.Var) -> list[tirx.Expr]:
        n, chunk, h, w, lane = index
        channel = chunk * block + lane
        return [n, channel // other, h, w, channel % other]

    sch.transform_layout(epilogue, ("write", 0), place)
    for number, read in enumerate(sch.get(epilogue).reads):
        if read.source.scope() != "local":  # not the sums
            sch.transform_layout(epilogue, ("read", number), place)


def _rows_first(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> bool:
    """Whether tasks run through a row's chunks before the next row.

    Then each thread owns a band of rows: what it reads is mostly what it wrote one layer before
    and still has in its own L2. That pays while the weights about fit there too; larger ones are
    read chunk by chunk, each for all rows. ResNet-50 as a whole gains 2 to 3 %.
    """
    size = 4 * math.prod(scheme.kernel_layout.shape(workload.kernel_shape))
    return size <= ROWS_FIRST_L2_SHARE * target.l2


def _prefetch_weights(
    func: tirx.PrimFunc, workload: Conv2dWorkload, scheme: DirectScheme, loops: list[tirx.Var]
) -> tirx.PrimFunc:
    """Ask for the next channel chunk's weights while this one's are computed with.

    The tiles of a chunk read its weights from L2, all but the first, which waits for memory. One
    prefetch a step, spread evenly over the chunk's tiles, hides that traffic behind the
    multiply-adds. Behind the last chunk it reaches the next layer's weights: they follow in the
    artifact. On images of 7x7 pixels this is worth 3 to 5 %.
    """
    chunks, chunks_in, kernel_h, kernel_w, ic_bn, oc_bn = scheme.kernel_layout.shape(
        workload.kernel_shape
    )
    steps = chunks_in * kernel_h * kernel_w * ic_bn
    rows = ceil_div(workload.out_height, scheme.reg_oh)
    tiles = rows * ceil_div(workload.out_width, scheme.reg_n)
    if steps * oc_bn * 4 < PREFETCH_BYTES or tiles > PREFETCH_TILES:
        return func
    task, column, ic_chunk, kh, kw, ic = loops
    tile = task % rows * (tiles // rows) + column
    step = ((ic_chunk * kernel_h + kh) * kernel_w + kw) * ic_bn + ic
    ahead = (tile * steps + step) * oc_bn // tiles
    place = [task // rows % chunks + 1, 0, 0, 0, 0, ahead]
    fetch = tirx.Evaluate(prefetch_to_l2(func.params[1], place))

    def prepend(loop: tirx.For) -> tirx.For:
        if not loop.loop_var.same_as(ic):
            return loop
        body = tirx.SeqStmt([fetch, loop.body])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, prepend)))


def _schedule_pad(
    sch: Schedule, task: object, workload: Conv2dWorkload, scheme: DirectScheme
) -> None:
    """Pad each task's own rows, or the image once; the columns of zeros are peeled off the copy."""
    pad = sch.get_sblock("pad")
    if _pads_image_once(workload, scheme):
        sch.parallel(sch.fuse(*sch.get_loops(pad)[:3]))
    else:
        sch.compute_at(pad, task)
    column = sch.get_loops(pad)[-1]
    if scheme.ic_bn > 1:
        sch.vectorize(column)
        column = sch.get_loops(pad)[-2]
    sch.annotate(column, "pragma_loop_partition_hint", 1)


def _pads_image_once(workload: Conv2dWorkload, scheme: DirectScheme) -> bool:
    """Whether the tasks' strips together would copy the image more than `MAX_COPIES` times."""
    return _strip_copies(workload, scheme) > MAX_COPIES


def _strip_copies(workload: Conv2dWorkload, scheme: DirectScheme) -> float:
    """How often a row is copied when every task pads the rows it reads."""
    row_tiles = ceil_div(workload.out_height, scheme.reg_oh)
    overlap = row_tiles * _strip_rows(workload, scheme) / workload.height
    return overlap * ceil_div(workload.out_channels // workload.groups, scheme.oc_bn)


def _strip_rows(workload: Conv2dWorkload, scheme: DirectScheme) -> int:
    """Input rows one register tile reads."""
    taps = (workload.kernel[0] - 1) * workload.dilation[0] + 1
    return (scheme.reg_oh - 1) * workload.stride[0] + taps


def estimate(
    workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: the busiest thread's register tiles, and its weights' way to it.

    Each of a tile's ``I * KH * KW`` steps takes as long as `step_cycles` says.
    """
    vectors = ceil_div(scheme.oc_bn, target.lanes(workload.dtype))
    chunks_in = ceil_div(workload.in_channels // workload.groups, scheme.ic_bn)
    steps = chunks_in * scheme.ic_bn * workload.kernel[0] * workload.kernel[1]
    block_bytes = steps * scheme.oc_bn * 4
    pixels = scheme.reg_oh * scheme.reg_n
    cycles = step_cycles(vectors, pixels, target, block_bytes)
    if scheme.ic_bn > UNROLLED_CHANNELS:
        cycles += LOOP_CYCLES / scheme.ic_bn
    sums = vectors * pixels
    each_sum = STORE_CYCLES + EPILOGUE_CYCLES * len(workload.epilogue)
    tile = steps * cycles + sums * each_sum + TILE_CYCLES
    tile += _conflict_cycles(workload, scheme, target)
    chunks = ceil_div(workload.out_channels, scheme.oc_bn)
    rows = ceil_div(workload.out_height, scheme.reg_oh)
    columns = ceil_div(workload.out_width, scheme.reg_n)
    tasks = workload.batch * chunks * rows
    each = ceil_div(tasks, threads)
    busy = each * (columns * tile + TASK_CYCLES)
    busy += _pad_cycles(workload, scheme, target, threads, each / tasks)
    # Consecutive tasks: of each chunk's one row, or of one chunk all rows.
    read = min(each, chunks) if _rows_first(workload, scheme, target) else ceil_div(each, rows)
    weights = (read * block_bytes, chunks * block_bytes)
    return with_memory(busy / target.frequency, *weights)


def _conflict_cycles(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> float:
    """Cycles a register tile waits for pixels that evict each other from L2.

    It reads a piece of each row of each chunk. Tiles beside it read the next ones, often of the
    same lines, and other chunks' tasks the same again: L2 keeps them unless chunks and rows lie
    powers of two apart. Measured on images of 16 to 128 pixels: 2 to 10 cycles a piece.
    """
    if _copies_rows(workload, scheme):
        return 0.0
    chunks = ceil_div(workload.in_channels // workload.groups, scheme.ic_bn)
    apart = workload.stride[0] if workload.kernel[0] == 1 else 1
    rows = ceil_div(_strip_rows(workload, scheme), apart)
    row_bytes = workload.width * scheme.ic_bn * 4
    axes = (chunks, workload.height * row_bytes), (rows, apart * row_bytes)
    return CONFLICT_CYCLES * chunks * rows if conflicts_in_l2(target, *axes) else 0.0


def _copies_rows(workload: Conv2dWorkload, scheme: DirectScheme) -> bool:
    """Whether tiles read a padded copy, for the image's border or for those that overhang it."""
    overhang = workload.out_width % scheme.reg_n or workload.out_height % scheme.reg_oh
    return any(workload.padding) or bool(overhang)


def _pad_cycles(
    workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget, threads: int, share: float
) -> float:
    """Cycles the busiest thread spends copying padded rows: those of its ``share`` of the tasks."""
    if not _copies_rows(workload, scheme):
        return 0.0
    chunks = ceil_div(workload.in_channels, scheme.ic_bn)
    vectors = chunks * max(scheme.ic_bn / target.lanes(workload.dtype), NARROW_COPY)
    image = workload.batch * workload.height * workload.width * vectors
    if _pads_image_once(workload, scheme):
        return image * IMAGE_CYCLES / threads + fork_seconds(threads) * target.frequency
    return share * image * _strip_copies(workload, scheme) * STRIP_CYCLES
