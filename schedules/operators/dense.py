"""Dense layers: a few rows of activations times constant weights, ``(M, K) x (K, N)``.

With one row every weight is used once, so the layer runs at the speed at which its weights arrive.
Weights are packed so that each task streams one contiguous block, a few vectors wide, and the sums
of that block stay in registers. Several rows share the loaded weights in a register tile.

Weights may also be 8-bit integers. They are converted to float32 when they are loaded, so that a
quarter of the bytes come from memory. Their scales are a step of the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tvm_ffi
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.s_tir import Schedule

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.estimates.memory_traffic import LINE, cold_weights, fork_seconds, with_memory
from neocpu.schedules.estimates.register_tile import (
    TILE_CYCLES,
    broadcast_limit,
    step_cycles,
    steps_cycles,
)
from neocpu.schedules.operators.epilogue import apply_epilogue
from neocpu.schedules.tir.builder import prefetch_to_l2
from neocpu.schedules.tir.output_tiles import OutputTiles, Placed
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.layout import NCHW, ceil_div
from neocpu.schedules.vocabulary.memory_workloads import Keyed
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import typical_of, varies
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

# TVM keeps smaller temporaries on the stack, where LLVM finds registers for them.
STACK_BYTES = 1024
# The ratio of rows to L2 from which on rows are better read once: at twice L2's size it cost 2 %.
FAR_ROWS = 4
# The cycles of storing a vector of sums, and the factors of storing and of the steps before it if
# the last block has unneeded columns. On a Zen 5, 4096 rows of 180 took as long for 180 columns as
# for 192, by column; with GELU, 360 columns took a twentieth longer than 384.
STORE_CYCLES, RAGGED_FACTOR = 1, 1.5
# The bytes by which weights of 8 or 16 bits are prefetched. On an Emerald Rapids, two threads then
# read 22 to 27 GB/s in place of 13 to 17; float32 arrives at 26 to 38 in any case.
BYTES_AHEAD = 8192
# Additional strips for each thread but one: tasks then differ by less than a tenth.
STRIPS = 4


@dataclass(frozen=True, slots=True)
class DenseWorkload(Keyed):
    """``output[m, n] = epilogue(sum over k of data[m, k] * weights[k, n])``, with operands ``(N,)``
    per channel and ``(M, N)`` as tensors.
    """

    kind: ClassVar[str] = "dense"
    m: int
    n: int
    k: int
    numerics: Numerics = FLOAT32
    epilogue: tuple[EpilogueOp, ...] = ()

    @property
    def flops(self) -> int:
        """The number of floating-point operations, two per multiply-accumulate."""
        return 2 * self.m * self.n * self.k

    @property
    def row_bytes(self) -> int:
        """The bytes of all rows that are read and written, without operands."""
        numerics = self.numerics
        return self.m * (self.n * bytes_of(numerics.output) + self.k * bytes_of(numerics.data))

    def __str__(self) -> str:
        text = f"{self.m}x{self.k} -> {self.n}" + "".join(f" +{op.kind}" for op in self.epilogue)
        return text if self.numerics == FLOAT32 else f"{text}, {self.numerics}"


def _unit(workload: DenseWorkload, target: CpuTarget) -> DotUnit:
    """Return the instruction for the type of its sums."""
    return target.dot_unit(Numerics.uniform(workload.numerics.sum))


def estimate(workload: DenseWorkload, target: CpuTarget, threads: int = 1) -> float:
    """Return analytic seconds: the busiest thread's tiles, and transfers of weights, and of rows
    that the last-level cache does not hold, from memory.
    """
    w, unit = workload, _unit(workload, target)
    blocks, _, block = packed_shape(w, target, threads)
    tiling = _tiling(w, target, threads)
    vectors, size = block // unit.lanes, w.k * block * bytes_of(w.numerics.weights)
    each_sum = STORE_CYCLES + steps_cycles(w.epilogue)
    if w.n % block:
        each_sum *= RAGGED_FACTOR
    tile = w.k * step_cycles(vectors, tiling.reg_m, unit, target, size)
    tile += TILE_CYCLES + vectors * tiling.reg_m * each_sum
    tasks = ceil_div(blocks * tiling.strips, threads)
    busy = tasks * ceil_div(tiling.tiles, tiling.strips) * tile / target.frequency
    far = w.row_bytes / threads if w.row_bytes > target.l2 * threads else 0
    cold = cold_weights(blocks * size, target, blocks, tiling.strips)
    if w.row_bytes > (target.l2 + target.l3) * threads:
        cold += w.row_bytes
    return fork_seconds(threads, target) + with_memory(busy, far, cold, target)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """The rows of a register tile, the tiles of the matrix, and the strips that share them."""

    reg_m: int
    tiles: int
    strips: int


def _tiling(workload: DenseWorkload, target: CpuTarget, threads: int) -> _Tiling:
    unit = _unit(workload, target)
    blocks, _, block = packed_shape(workload, target, threads)
    limit = max(1, broadcast_limit(block // unit.lanes, unit))
    reg_m = ceil_div(workload.m, ceil_div(workload.m, limit))
    strips = strips_of(workload, reg_m, blocks, target, threads)
    return _Tiling(reg_m, ceil_div(workload.m, reg_m), strips)


def block_width(workload: DenseWorkload, target: CpuTarget, threads: int = 1) -> int:
    """Return the output columns of a block of packed weights: up to four vectors, enough tasks.

    With many rows, `strips_of` makes several tasks of a block. Each of their tiles reads a block
    from L2 again. If the block is too long to stay there, it has only three vectors, so that tiles
    are higher.
    """
    unit = _unit(workload, target)
    lanes = unit.lanes
    size = 4 * lanes * workload.k * bytes_of(workload.numerics.weights)
    is_long = workload.m > 4 and size > target.l2 // 2
    for vectors in (3 if is_long else 4, 2):
        blocks = ceil_div(workload.n, vectors * lanes)
        tiles = ceil_div(workload.m, max(1, broadcast_limit(vectors, unit)))
        fits = blocks * vectors * lanes <= 1.1 * workload.n
        registers = vectors * min(workload.m, 4) + vectors < target.vector_registers
        if fits and registers and blocks * max(1, tiles // 4) >= 4 * threads:
            return vectors * lanes
    return lanes


def packed_shape(workload: DenseWorkload, target: CpuTarget, threads: int = 1) -> tuple[int, ...]:
    """Return the physical shape of the weights: ``(ceil(N/block), K, block)``."""
    block = block_width(workload, target, threads)
    return (ceil_div(workload.n, block), workload.k, block)


def pack_weights(
    weights: NDArray[np.generic], workload: DenseWorkload, target: CpuTarget, threads: int = 1
) -> NDArray[np.generic]:
    """Pack ``(K, N)`` weights to `packed_shape`, with zeros in padded columns."""
    blocks, k, block = packed_shape(workload, target, threads)
    missing = blocks * block - workload.n
    # np.pad would copy VGG's 411 MB even if there is nothing to add.
    padded = np.pad(weights, ((0, 0), (0, missing))) if missing else weights
    return np.ascontiguousarray(padded.reshape(k, blocks, block).transpose(1, 0, 2))


def argument_shapes(
    workload: DenseWorkload, target: CpuTarget, threads: int = 1
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return physical ``(shape, dtype)`` of data, packed weights, epilogue operands and output."""
    output = (workload.m, workload.n)
    numerics = workload.numerics
    operands = (
        ((workload.n,), numerics.sum) if op.operand == PER_CHANNEL else (output, numerics.output)
        for op in workload.epilogue
        if op.operand != NO_OPERAND
    )
    return (
        ((workload.m, workload.k), numerics.data),
        (packed_shape(workload, target, threads), numerics.weights),
        *operands,
        (output, numerics.output),
    )


def strips_of(
    workload: DenseWorkload, reg_m: int, blocks: int, target: CpuTarget, threads: int = 1
) -> int:
    """Return the number of strips of rows; each is multiplied with all blocks of weights in turn.

    If blocks are few, or their number cannot be shared evenly by the threads, strips make more
    tasks. Every block reads all rows of a strip, which should lie in L2, and every strip reads all
    weights. If all rows exceed L2 several times, strips read less than blocks: 3136 rows of 384
    values became 1.17 times as fast on a Zen 5.
    """
    tiles, size = ceil_div(workload.m, reg_m), bytes_of(workload.numerics.data)
    given, least = workload.m * workload.k * size, 1
    near = min(ceil_div(given, target.l2 // 4), tiles)
    if given > FAR_ROWS * target.l2 and near * workload.n < blocks * workload.m:
        least = near

    def busiest(strips: int) -> int:
        """Tiles of the thread that has most, and one for beginning each task."""
        return ceil_div(blocks * strips, threads) * (ceil_div(tiles, strips) + 1)

    most = min(2 * least + STRIPS * (threads - 1), tiles)
    return min(range(least, max(most, least) + 1), key=busiest)


def lower_dense(workload: DenseWorkload, target: CpuTarget, threads: int = 1) -> tirx.PrimFunc:
    """Return the scheduled kernel; its arguments are those of `argument_shapes`::

    for strip, block in parallel(strips, N/nb):
        for i in range(M/reg_m/strips):
            acc[reg_m, nb] = 0                       # registers
            for k:
                prefetch(weights[block + 1, …])      # if M > reg_m
                for r, v in unrolled(reg_m, nb/lanes):
                    acc[r, v] += broadcast(data[i, k]) * weights[block, k, v]
            output[...] = epilogue(acc)
    """
    unit = _unit(workload, target)
    lanes = unit.lanes
    like = typical_of(workload)
    blocks, _, block = packed_shape(like, target, threads)
    tiling = _tiling(like, target, threads)
    reg_m, strips = tiling.reg_m, tiling.strips
    rows = strips * ceil_div(ceil_div(workload.m, reg_m), strips) * reg_m
    tiles = OutputTiles.of({0: reg_m}, {0: workload.m})
    placed = _placed(workload, tiles, rows)
    sch = Schedule(te.create_prim_func(_compute(workload, rows, blocks, block, tiles, placed)))
    conv, epilogue = sch.get_sblock("conv"), sch.get_sblock("epilogue")
    if placed is not None:
        placed.store(sch, epilogue)
    _drop_pixels(sch, workload)
    row, column, y, x, k = sch.get_loops(conv)
    row_outer, row_inner = sch.split(row, [None, reg_m])
    column_outer, column_inner = sch.split(column, [None, block])
    vector_outer, vector = sch.split(column_inner, [None, lanes])
    tasks = column_outer
    if strips > 1:
        strip, row_outer = sch.split(row_outer, [strips, None])
        sch.reorder(strip, column_outer, row_outer)
        tasks = sch.fuse(strip, column_outer)
    sch.reorder(tasks, row_outer, y, x, k, row_inner, vector_outer, vector)
    sch.parallel(tasks)
    each = 1  # channels of a step
    if unit.by_lane and workload.k % lanes == 0:
        each = lanes
        k, lane = sch.split(k, [None, lanes])
        sch.unroll(lane)
    sch.reverse_compute_at(epilogue, row_outer)
    sch.vectorize(vector)
    if workload.n % block == 0:
        own = sch.get_loops(epilogue)[2:]
        column = [loop for loop in own if int(sch.get(loop).extent) == block][-1]
        sch.vectorize(sch.split(column, [None, lanes])[1])
    sch.unroll(row_inner)
    sch.unroll(vector_outer)
    if reg_m * block * bytes_of(workload.numerics.sum) >= STACK_BYTES:
        sch.set_scope(conv, 0, "local")
    tiles.keep_sums(sch, conv)
    sch.decompose_reduction(conv, k)
    func = sch.mod["main"]
    if like.m > reg_m:
        loops = [sch.get(loop) for loop in (tasks, row_outer, k)]
        func = _prefetch_weights(func, workload, each * block, blocks, reg_m, strips, *loops)
    elif _prefetches_ahead(workload, target):
        loops = [sch.get(loop) for loop in (tasks, k)]
        func = _prefetch_ahead(func, workload, each * block, *loops)
    return vectorize_calls(func).with_attr("tirx.is_scheduled", True)


def _prefetch_weights(
    func: tirx.PrimFunc,
    workload: DenseWorkload,
    width: int,
    blocks: int,
    reg_m: int,
    strips: int,
    tasks: tirx.For,
    tiles: tirx.For,
    steps: tirx.For,
) -> tirx.PrimFunc:
    """Prefetch the next block's weights, ``width`` a step, while the current block is in use.

    All tiles of rows except the first find a block in L2. Prefetches spread evenly over the tiles
    hide the first tile's wait behind all multiply-adds. After the last block they reach the next
    layer's weights, which follow in the artifact. 13 to 64 rows gain 8 to 25 %. One row has no
    multiply-adds that could hide anything, and streams at the speed of memory in any case.
    """
    following = tasks.loop_var + 1
    if int(tasks.extent) > blocks:  # there are several strips, and each begins with the first block
        following = tirx.floormod(following, blocks)
    count = typical_of(ceil_div(ceil_div(workload.m, reg_m), strips))
    step = tiles.loop_var * steps.extent + steps.loop_var
    element = bytes_of(workload.numerics.weights)
    lines = max(1, width * element // (LINE * count))
    start = step * width // count
    places = [[following, 0, start + line * (LINE // element)] for line in range(lines)]
    return _prefetching(func, steps, places)


def _prefetches_ahead(workload: DenseWorkload, target: CpuTarget) -> bool:
    """Return whether one register tile's weights are prefetched; other CPUs were not measured."""
    has_tiles = target.bfloat16_tiles is not None
    return has_tiles and bytes_of(workload.numerics.weights) < bytes_of(workload.numerics.sum)


def _prefetch_ahead(
    func: tirx.PrimFunc, workload: DenseWorkload, width: int, tasks: tirx.For, steps: tirx.For
) -> tirx.PrimFunc:
    """Prefetch weights of the same stream, `BYTES_AHEAD` and ``width`` elements a step."""
    element = bytes_of(workload.numerics.weights)
    start = steps.loop_var * width + BYTES_AHEAD // element
    lines = max(1, width * element // LINE)
    places = [[tasks.loop_var, 0, start + line * (LINE // element)] for line in range(lines)]
    return _prefetching(func, steps, places)


def _prefetching(func: tirx.PrimFunc, steps: tirx.For, places: list[list[Any]]) -> tirx.PrimFunc:
    """Return the kernel with prefetches of these weights at the beginning of each step."""
    fetches = [tirx.Evaluate(prefetch_to_l2(func.params[1], place)) for place in places]

    def prepend(loop: tirx.For) -> tirx.For:
        if not loop.loop_var.same_as(steps.loop_var):
            return loop
        body = tirx.SeqStmt([*fetches, loop.body])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, prepend)))


def _as_convolution(workload: DenseWorkload) -> Conv2dWorkload:
    """Return the pointwise convolution of one pixel that is equivalent, for its epilogue."""
    return Conv2dWorkload(
        batch=workload.m,
        in_channels=workload.k,
        height=1,
        width=1,
        out_channels=workload.n,
        kernel=(1, 1),
        numerics=workload.numerics,
        epilogue=workload.epilogue,
    )


def _placed(workload: DenseWorkload, tiles: OutputTiles, rows: int) -> Placed | None:
    """Return the stage that stores so many rows; None if tiles overhang."""
    if not tiles.moves:
        return None

    def place(i: Any, *rest: Any) -> list[Any]:
        return [tiles.position(0, i), *rest]

    return Placed(shape=(rows, workload.n, 1, 1), place=place)


def _compute(
    workload: DenseWorkload,
    rows: int,
    blocks: int,
    block: int,
    tiles: OutputTiles,
    placed: Placed | None,
) -> list[te.Tensor]:
    data = te.placeholder((workload.m, workload.k), workload.numerics.data, name="data")
    weights = te.placeholder((blocks, workload.k, block), workload.numerics.weights, name="weights")
    k = te.reduce_axis((0, workload.k), "k")

    def product(i: Any, j: Any, y: Any, x: Any) -> Any:
        # The last tile may overhang: it computes the last row again, and nothing reads it.
        fits = tiles.moves or (rows == workload.m and not varies(workload.m))
        source = tiles.position(0, i) if fits else tirx.min(i, workload.m - 1)
        weight = weights(j // block, k, j % block)
        if workload.numerics.weights != workload.numerics.sum:
            weight = weight.astype(workload.numerics.sum)
        return te.sum(data(source, k) * weight, axis=[k])

    conv = te.compute((rows, blocks * block, 1, 1), product, name="conv")
    output, operands = apply_epilogue(conv, _as_convolution(workload), NCHW, placed)
    return [data, weights, *operands, output]


def _drop_pixels(sch: Schedule, workload: DenseWorkload) -> None:
    """Remove the 1 by 1 pixel from the shapes of the epilogue's operands and the output."""
    epilogue = sch.get_sblock("epilogue")
    kinds = [op.operand for op in workload.epilogue if op.operand != NO_OPERAND]
    for number, kind in enumerate(kinds):
        if kind == PER_CHANNEL:
            sch.transform_layout(epilogue, ("read", number + 1), lambda n, c, h, w: (c,))
        else:
            sch.transform_layout(epilogue, ("read", number + 1), lambda n, c, h, w: (n, c))
    sch.transform_layout(epilogue, ("write", 0), lambda n, c, h, w: (n, c))
