"""The loop nest of a direct convolution: its TE stages and their schedule."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.estimates.memory_traffic import LINE, fetches_next
from neocpu.schedules.operators.epilogue import apply_epilogue
from neocpu.schedules.tir.builder import fraction, prefetch_to_l2
from neocpu.schedules.tir.input_pixels import padded_pixels, stored_pixels
from neocpu.schedules.tir.live_taps import skip_dead_taps, tap_axes
from neocpu.schedules.tir.output_tiles import OutputTiles, Placed
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import DataLayout, ceil_div
from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The most weights, in L2 caches, with which a thread takes rows and not channels.
ROWS_FIRST_L2_SHARE = 1.25
# The most taps of a row that are unrolled to read it by vectors: more overflow the code's cache.
MAX_ROW_TAPS = 7
# The copies of the image from which on it is cheaper to pad it once, in a pass of its own.
MAX_COPIES = 8.0
# The least weights of a chunk that are worth prefetching, and the number of tiles over which
# prefetches are spread: if a chunk is used for longer, a single wait does not matter.
PREFETCH_BYTES, PREFETCH_TILES = 64 << 10, 32


def build(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> tirx.PrimFunc:
    """Return the scheduled kernel; see `neocpu.schedules.convolutions.conv2d_direct.lower`."""
    unit = target.dot_unit(workload.numerics)
    pitch = unit.lanes if reads_rows_by_lane(workload, scheme, target) else 1
    tiles = _tiles(workload, scheme)
    placed = tiles.placed(DataLayout(scheme.oc_bn).shape(workload.output_shape))
    sch = Schedule(te.create_prim_func(_compute(workload, scheme, pitch, tiles, placed)))
    stages = {sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))}
    conv, epilogue = sch.get_sblock("conv"), sch.get_sblock("epilogue")
    n, chunk, h, w, oc, *steps = sch.get_loops(conv)
    lanes = min(unit.lanes, scheme.oc_bn)
    h_outer, h_inner = sch.split(h, [None, scheme.reg_oh])
    w_outer, w_inner = sch.split(w, [None, scheme.reg_n])
    vector_outer, vector = sch.split(oc, [None, lanes])
    unrolled = [h_inner, w_inner, vector_outer]
    order = (h_outer, chunk) if rows_first(workload, scheme, target) else (chunk, h_outer)
    sch.reorder(n, *order, w_outer, *steps, *unrolled, vector)
    task = sch.fuse(n, *order)
    sch.parallel(task)
    sch.vectorize(vector)
    for loop in unrolled:
        sch.unroll(loop)
    if scheme.sum_chunks:
        steps = _sum_in_parts(sch, steps[0], lanes)
    ic_chunk, kh, kw, ic = steps
    each = 1  # channels of a step of the innermost loop
    if unit.by_lane and scheme.ic_bn % lanes == 0:
        each = lanes
        ic, lane = sch.split(ic, [None, lanes])
        sch.unroll(lane)
    elif reads_rows_by_lane(workload, scheme, target):
        sch.unroll(kw)
    sch.reverse_compute_at(epilogue, w_outer)
    *stores, oc = sch.get_loops(epilogue)[2:]
    store_outer, store_vector = sch.split(oc, [None, lanes])
    sch.vectorize(store_vector)
    for loop in (*stores, store_outer, *((kh, kw) if scheme.unroll_ker else ())):
        sch.unroll(loop)
    sch.set_scope(conv, 0, "local")
    tiles.keep_sums(sch, conv)
    if placed is not None:
        placed.store(sch, epilogue)
    if "pad" in stages:
        _schedule_pad(sch, task, workload, scheme)
    sch.decompose_reduction(sch.get_sblock("partial") if scheme.sum_chunks else conv, ic_chunk)
    if scheme.out_bn:
        _fold_stores(sch, epilogue, scheme)
    loops = [sch.get(loop).loop_var for loop in (task, w_outer, ic_chunk, kh, kw, ic)]
    func = sch.mod["main"]
    if not rows_first(workload, scheme, target):
        func = _prefetch_weights(func, workload, scheme, loops, each, target)
    func = _without_dead_taps(func, workload, scheme, loops, target)
    return vectorize_calls(func).with_attr("tirx.is_scheduled", True)


def _without_dead_taps(
    func: tirx.PrimFunc,
    workload: Conv2dWorkload,
    scheme: DirectScheme,
    loops: list[tirx.Var],
    target: CpuTarget,
) -> tirx.PrimFunc:
    rows, columns = tap_axes(workload, scheme)
    chunks = scheme.kernel_layout.shape(workload.kernel_shape)[0]
    own = loops[0] // chunks if rows_first(workload, scheme, target) else loops[0]
    func = skip_dead_taps(func, rows, own % rows.tiles, loops[3])
    return skip_dead_taps(func, columns, loops[1], loops[4])


def _tiles(workload: Conv2dWorkload, scheme: DirectScheme) -> OutputTiles:
    """Return the register tiles of an output in NCHW[x]c; they move if no pixel is padding."""
    return OutputTiles.of(
        {2: scheme.reg_oh, 3: scheme.reg_n},
        {2: workload.out_height, 3: workload.out_width},
        may_move=not any(workload.padding) and not reads_outside(workload),
    )


def _compute(
    workload: Conv2dWorkload,
    scheme: DirectScheme,
    pitch: int,
    tiles: OutputTiles,
    placed: Placed | None,
) -> list[te.Tensor]:
    """Return the TE tensors: data, weights, epilogue operands, output.

    The stage ``conv`` covers whole register tiles. The stage ``pad``, if needed, supplies zeros
    around the image and where ``conv`` overhangs, with rows a multiple of ``pitch`` pixels apart.
    """
    ic_bn, oc_bn = scheme.ic_bn, scheme.oc_bn
    (stride_h, stride_w), (dil_h, dil_w) = workload.stride, workload.dilation
    data_shape = scheme.in_layout.shape(workload.input_shape)
    kernel_shape = scheme.kernel_layout.shape(workload.kernel_shape)
    data = te.placeholder(data_shape, workload.numerics.data, name="data")
    kernel = te.placeholder(kernel_shape, workload.numerics.weights, name="kernel")
    rows = ceil_div(workload.out_height, scheme.reg_oh) * scheme.reg_oh
    columns = ceil_div(workload.out_width, scheme.reg_n) * scheme.reg_n
    source = _padded(data, workload, rows, columns, pitch, tiles)
    chunks_out, chunks_in = kernel_shape[0], kernel_shape[1]
    chunks_out_group = chunks_out // workload.groups if workload.groups > 1 else chunks_out
    each = scheme.sum_chunks or chunks_in
    parts = te.reduce_axis((0, chunks_in // each), "part")
    ic_chunk = te.reduce_axis((0, each), "ic_chunk")
    ic = te.reduce_axis((0, ic_bn), "ic")
    kh = te.reduce_axis((0, workload.kernel[0]), "kh")
    kw = te.reduce_axis((0, workload.kernel[1]), "kw")

    def products(
        n: tirx.Var, c: tirx.Var, h: tirx.Var, w: tirx.Var, o: tirx.Var, part: tirx.Var | int = 0
    ) -> tirx.Expr:
        own = part * each + ic_chunk
        chunk = own if workload.groups == 1 else c // chunks_out_group * chunks_in + own
        y, x = tiles.position(2, h), tiles.position(3, w)
        at = (n, chunk, y * stride_h + kh * dil_h, x * stride_w + kw * dil_w)
        pixel = source(*at) if len(data_shape) == 4 else source(*at, ic)
        return te.sum(pixel * kernel(c, own, kh, kw, ic, o), axis=[ic_chunk, kh, kw, ic])

    shape = (workload.batch, chunks_out, rows, columns, oc_bn)
    if scheme.sum_chunks:
        partial = te.compute((*shape, chunks_in // each), lambda *i: products(*i), name="partial")
        conv = te.compute(shape, lambda *i: te.sum(partial(*i, parts), axis=parts), name="conv")
    else:
        conv = te.compute(shape, lambda *i: products(*i), name="conv")
    output, operands = apply_epilogue(conv, workload, DataLayout(oc_bn), placed)
    return [data, kernel, *operands, output]


def _padded(
    data: te.Tensor,
    workload: Conv2dWorkload,
    rows: int,
    columns: int,
    pitch: int,
    tiles: OutputTiles,
) -> Any:
    """Return the pixels that output reads, 0 outside, by image, chunk, row, column and lane."""
    reach = [
        (count - 1) * stride + (kernel - 1) * dilation + 1
        for count, stride, kernel, dilation in zip(
            (rows, columns), workload.stride, workload.kernel, workload.dilation, strict=True
        )
    ]
    _, chunks, _, _, *block = (int(extent) for extent in data.shape)
    each = chunks // workload.groups
    fits = reach[0] <= workload.height and reach[1] <= workload.width
    fits = fits and workload.padding[:2] == (0, 0)
    if tiles.moves or (fits and not reads_outside(workload)):
        return stored_pixels(data, workload, each)
    chunks *= workload.frames.kernel if workload.frames else 1
    shape = (workload.batch, chunks, reach[0], ceil_div(reach[1], pitch) * pitch, *block)
    return te.compute(shape, padded_pixels(data, workload, each), name="pad")


def _sum_in_parts(sch: Schedule, part: object, lanes: int) -> list[object]:
    """Compute a part's sums within the loop over the parts; return the loops over its steps."""
    sch.decompose_reduction(sch.get_sblock("conv"), part)
    partial = sch.get_sblock("partial")
    sch.compute_at(partial, part, preserve_unit_loops=True)
    h, w, oc, _, ic_chunk, kh, kw, ic = sch.get_loops(partial)[-8:]
    vector_outer, vector = sch.split(oc, [None, lanes])
    sch.reorder(ic_chunk, kh, kw, ic, h, w, vector_outer, vector)
    sch.vectorize(vector)
    for loop in (h, w, vector_outer):
        sch.unroll(loop)
    sch.set_scope(partial, 0, "local")
    return [ic_chunk, kh, kw, ic]


def _fold_stores(sch: Schedule, epilogue: object, scheme: DirectScheme) -> None:
    """Change operands and output of the epilogue to blocks of ``out_bn`` channels. Each vector may
    go to another chunk; if none straddles two, only the stores' addresses change.
    """
    block, other = scheme.oc_bn, scheme.out_bn

    def place(*index: tirx.Var) -> list[tirx.Expr]:
        n, chunk, h, w, lane = index
        channel = chunk * block + lane
        return [n, channel // other, h, w, channel % other]

    sch.transform_layout(epilogue, ("write", 0), place)
    for number, read in enumerate(sch.get(epilogue).reads):
        if read.source.scope() != "local":  # the sums stay as they are
            sch.transform_layout(epilogue, ("read", number), place)


def rows_first(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> bool:
    """Return whether tasks process all chunks of a row before the next row.

    Each thread then owns a band of rows. Most of its input is its own output of the previous layer,
    which is still in its L2. This pays while the weights nearly fit there too; larger weights are
    read chunk by chunk, each for all rows. ResNet-50 as a whole gains 2 to 3 %.
    """
    size = math.prod(scheme.kernel_layout.shape(workload.kernel_shape))
    size *= bytes_of(workload.numerics.weights)
    return size <= ROWS_FIRST_L2_SHARE * target.l2


def _prefetch_weights(
    func: tirx.PrimFunc,
    workload: Conv2dWorkload,
    scheme: DirectScheme,
    loops: list[tirx.Var],
    each: int,
    target: CpuTarget,
) -> tirx.PrimFunc:
    """Prefetch the next channel chunk's weights while the current chunk's are in use.

    The tiles of a chunk read its weights from L2, except the first, which waits for memory. One
    prefetch a step, spread evenly over the chunk's tiles, hides that traffic behind the
    multiply-adds. After the last chunk it reaches the next layer's weights, which follow in the
    artifact. On images of 7x7 pixels this is worth 3 to 5 %.

    A step also prefetches the next layer's weights at the same position: a dense layer of 1024x1000
    after a 1x1 convolution of 1024 channels takes 28 us instead of 52 to 74.
    """
    chunks, chunks_in, kernel_h, kernel_w, ic_bn, oc_bn = scheme.kernel_layout.shape(
        workload.kernel_shape
    )
    steps = chunks_in * kernel_h * kernel_w * ic_bn
    rows = ceil_div(workload.out_height, scheme.reg_oh)
    tiles = rows * ceil_div(workload.out_width, scheme.reg_n)
    element = bytes_of(workload.numerics.weights)
    if steps * oc_bn * element < PREFETCH_BYTES or tiles > PREFETCH_TILES:
        return func
    task, column, ic_chunk, kh, kw, ic = loops
    tile = task % rows * (tiles // rows) + column
    step = ((ic_chunk * kernel_h + kh) * kernel_w + kw) * ic_bn + ic * each
    ahead = fraction(tile * steps + step, oc_bn, tiles, target)
    lines = min(each, ceil_div(each * oc_bn * element, LINE * tiles))
    chunk = task // rows % chunks + 1
    following = [chunk]
    if fetches_next(chunks * steps * oc_bn * element, target):
        following.append(chunk + chunks - 1)
    places = [
        [where, 0, 0, 0, 0, ahead + line * (LINE // element)]
        for where in following
        for line in range(lines)
    ]
    fetches = [tirx.Evaluate(prefetch_to_l2(func.params[1], place)) for place in places]

    def prepend(loop: tirx.For) -> tirx.For:
        if not loop.loop_var.same_as(ic):
            return loop
        body = tirx.SeqStmt([*fetches, loop.body])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, prepend)))


def _schedule_pad(
    sch: Schedule, task: object, workload: Conv2dWorkload, scheme: DirectScheme
) -> None:
    pad = sch.get_sblock("pad")
    if pads_image_once(workload, scheme):
        sch.parallel(sch.fuse(*sch.get_loops(pad)[:3]))
    else:
        sch.compute_at(pad, task)
    column = sch.get_loops(pad)[-1]
    if scheme.ic_bn > 1:
        sch.vectorize(column)
        column = sch.get_loops(pad)[-2]
    sch.annotate(column, "pragma_loop_partition_hint", 1)


def reads_rows_by_lane(workload: Conv2dWorkload, scheme: DirectScheme, target: CpuTarget) -> bool:
    """Return whether pixels of planes are read as lanes of vectors along rows: each register tile
    begins with one, and a row's taps are unrolled.
    """
    across = scheme.reg_n * workload.stride[1]
    unit = target.dot_unit(workload.numerics)
    aligned = across % unit.lanes == 0 and workload.kernel[1] <= MAX_ROW_TAPS
    return unit.by_lane and scheme.ic_bn == 1 and aligned


def pads_image_once(workload: Conv2dWorkload, scheme: DirectScheme) -> bool:
    """Return whether the strips of all tasks would copy the image more than `MAX_COPIES` times."""
    return strip_copies(workload, scheme) > MAX_COPIES


def strip_copies(workload: Conv2dWorkload, scheme: DirectScheme) -> float:
    """Return the number of copies of each row if every task pads the rows it reads."""
    row_tiles = ceil_div(workload.out_height, scheme.reg_oh)
    overlap = row_tiles * strip_rows(workload, scheme) / workload.height
    return overlap * ceil_div(workload.out_channels // workload.groups, scheme.oc_bn)


def strip_rows(workload: Conv2dWorkload, scheme: DirectScheme) -> int:
    """Return the number of input rows that one register tile reads."""
    taps = (workload.kernel[0] - 1) * workload.dilation[0] + 1
    return (scheme.reg_oh - 1) * workload.stride[0] + taps
