"""Transforms between NCHW and NCHW[x]c layouts, and their estimates.

For each image and chunk, blocking channels transposes a (channels, pixels) matrix. It is done in
square tiles in registers: r vectors are loaded, transposed by log2(r) rounds of two-vector
shuffles, and stored. Both sides are accessed in whole vectors, so a transform runs at the speed of
the cache level it streams from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.either import either
from neocpu.schedules.tir.bfloat16 import BITS
from neocpu.schedules.tir.builder import build_kernel, known, span, splat, task_loop, transpose
from neocpu.schedules.vocabulary.layout import Format, ceil_div
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.scheme import TransformScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, Template
from neocpu.schedules.vocabulary.traced_sizes import least_of

# The number of pixels in a task: 16 channels of 512 fp32 pixels are 32 KiB on either side.
TASK_PIXELS = 512
# The widest type in tiles: a tile of whole vectors of bytes would need as many vectors as lanes.
MAX_EDGE = 16
# Shuffling takes as long as moving the bytes in whole lines.
SHUFFLE_FACTOR = 2


def lower_transform(
    shape: tuple[int, ...], source: Format, destination: Format, target: CpuTarget
) -> Any:
    """Return the scheduled ``PrimFunc(data, output)`` that changes the layout of a feature map.

    - `shape`: the logical NCHW shape. Padded lanes of ``destination`` become zeros or, between two
      blocked layouts, the values of the padded lanes of ``source``.
    - `source`, `destination`: formats of the same element type: only their layouts differ.
    """
    assert source.dtype == destination.dtype, (source, destination)
    dtype, blocks = source.dtype, (source.layout.block, destination.layout.block)
    parameters = (("data", source.shape(shape), dtype), ("output", destination.shape(shape), dtype))
    n, c, h, w = shape

    def body(data: Any, output: Any) -> None:
        # Height and width are one axis: no layout separates them.
        kind = BITS if dtype == BFLOAT16 else dtype
        flat = [
            T.decl_buffer(_flat(block, shape), kind, data=buffer.data, layout=None)
            for block, buffer in zip(blocks, (data, output), strict=True)
        ]
        if 1 in blocks:
            emit = _emit_pack if blocks[0] == 1 else _emit_unpack
            edge = _tile_edge(max(blocks), least_of(h * w), target.lanes(dtype))
            emit_tiles((n, c, h * w), max(blocks), (edge, edge), emit, *flat)
        else:
            _emit_regroup(n, h * w, *blocks, *flat)

    return build_kernel(parameters, body)


def _ends(workload: TransformWorkload) -> tuple[Format, Format]:
    return workload.source, workload.destination


def argument_shapes(workload: TransformWorkload, scheme: TransformScheme) -> Arguments:
    """Return the physical ``(shape, dtype)`` of data and output."""
    return tuple((end.shape(workload.shape), end.dtype) for end in _ends(workload))


def lower(
    workload: TransformWorkload, scheme: TransformScheme, target: CpuTarget, threads: int = 1
) -> Any:
    """Return the scheduled ``PrimFunc(data, output)``."""
    return lower_transform(workload.shape, workload.source, workload.destination, target)


def estimate(
    workload: TransformWorkload, scheme: TransformScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: every byte is read or written once."""
    size = sum(end.bytes(workload.shape) for end in _ends(workload))
    return fork_seconds(threads, target) + SHUFFLE_FACTOR * stream_seconds(size, target, threads)


def _flat(block: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    n, c, h, w = shape
    return (n, c, h * w) if block == 1 else (n, ceil_div(c, block), h * w, block)


def _tile_edge(block: int, pixels: int, lanes: int) -> int:
    """Return the largest power of two that divides ``block`` and fits a vector and the pixels."""
    edge = 1
    while edge * 2 <= min(lanes, pixels, MAX_EDGE) and block % (edge * 2) == 0:
        edge *= 2
    return edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Channels and pixels that are converted from one layout to the other in registers.

    - `image`, `chunk`, `pixel`: the position of the tile.
    - `block`: the number of channels of a chunk.
    - `lane`: its first channel within the chunk.
    - `edge`, `valid`: the number of its channels, and the number of those that exist.
    """

    image: Any
    chunk: Any
    block: int
    pixel: Any
    lane: Any
    edge: int
    valid: int

    @property
    def channel(self) -> Any:
        """Its first channel within the image."""
        return self.chunk * self.block + self.lane


def emit_tiles(
    extents: tuple[int, int, int],
    block: int,
    tile: tuple[int, int],
    emit: Callable[[Any, Any, Tile], None],
    data: Any,
    output: Any,
) -> None:
    """Emit the loop nest of NCHW to or from NCHW[block]c::

        parallel n · chunk · pixel range
          pixel tile
            channel group of the chunk     (zeros beyond C)
              emit                         in registers: a transposition, if tiles are square

    The last tile is shifted back to end at the last pixel: it overlaps the one before it and
    writes the same values again, so no tile is partial.

    - `extents`: the numbers of images, channels, and pixels of a channel.
    - `tile`: the numbers of channels and pixels that ``emit`` converts at once.
    """
    (n, c, pixels), (edge, width) = extents, tile
    chunks, tiles = ceil_div(c, block), ceil_div(pixels, width)
    ranges = ceil_div(pixels, TASK_PIXELS)
    per_range = ceil_div(tiles, ranges)
    ranges = ceil_div(tiles, per_range)
    tail = c - (chunks - 1) * block  # channels of the last chunk
    with task_loop(n * chunks * ranges, n * chunks * block * pixels) as task:
        number, each = known(ranges), known(per_range)
        image, chunk = task // (chunks * number), task // number % chunks
        first = task % number * each
        with T.serial(T.min(each, tiles - first)) as step:
            pixel = T.min((first + step) * width, pixels - width)

            def made(lane: Any, valid: int) -> None:
                tile = Tile(
                    image=image,
                    chunk=chunk,
                    block=block,
                    pixel=pixel,
                    edge=edge,
                    lane=lane,
                    valid=valid,
                )
                emit(data, output, tile)

            def whole() -> None:
                with T.serial(block // edge) as group:
                    made(group * edge, edge)

            def last() -> None:
                for lane in range(0, block, edge):
                    made(lane, min(max(tail - lane, 0), edge))

            if tail == block:
                whole()
            elif chunks == 1:
                last()
            else:
                either(chunk < chunks - 1, whole, last)


def _emit_pack(data: Any, output: Any, tile: Tile) -> None:
    """Emit one tile of NCHW to NCHW[x]c; the channels that do not exist are zero."""
    edge = tile.edge
    zero = splat(tirx.const(0, str(data.dtype)), edge)
    rows = [
        T.Bind(data[tile.image, tile.channel + k, span(tile.pixel, edge)])
        if k < tile.valid
        else zero
        for k in range(edge)
    ]
    for k, column in enumerate(transpose(rows) if tile.valid else rows):
        place = [tile.image, tile.chunk, tile.pixel + k, span(tile.lane, edge)]
        T.buffer_store(output, column, place)


def _emit_unpack(data: Any, output: Any, tile: Tile) -> None:
    """Emit one tile of NCHW[x]c to NCHW; the channels that do not exist are dropped."""
    if tile.valid == 0:
        return
    image, edge, lanes = tile.image, tile.edge, span(tile.lane, tile.edge)
    columns = [T.Bind(data[image, tile.chunk, tile.pixel + k, lanes]) for k in range(edge)]
    for k, row in enumerate(transpose(columns)[: tile.valid]):
        T.buffer_store(output, row, [image, tile.channel + k, span(tile.pixel, edge)])


def _emit_regroup(n: int, pixels: int, x: int, y: int, data: Any, output: Any) -> None:
    """Emit the loop nest of NCHW[x]c to NCHW[y]c: copies of ``gcd(x, y)`` consecutive channels::

    parallel n · output chunk · pixel range
      pixel
        group of the output chunk      (unrolled)
          run[gcd(x, y)]               zeros beyond the source's chunks
    """
    run = math.gcd(x, y)
    source_runs = int(data.shape[1]) * x // run
    chunks = int(output.shape[1])
    zero = splat(tirx.const(0, str(data.dtype)), run)
    ranges = ceil_div(pixels, TASK_PIXELS)
    per_range = ceil_div(pixels, ranges)
    ranges = ceil_div(pixels, per_range)
    with task_loop(n * chunks * ranges, n * chunks * pixels * y) as task:
        number, each = known(ranges), known(per_range)
        image, chunk = task // (chunks * number), task // number % chunks
        first = task % number * each
        with T.serial(T.min(each, pixels - first)) as step:
            pixel = first + step
            for k in range(y // run):
                index = chunk * (y // run) + k
                place = [image, chunk, pixel, span(k * run, run)]

                def copy(index: Any = index, place: list[Any] = place) -> None:
                    lane = index % (x // run) * run
                    value = data[image, index // (x // run), pixel, span(lane, run)]
                    T.buffer_store(output, value, place)

                exists = (
                    None if (chunks - 1) * (y // run) + k < source_runs else index < source_runs
                )
                either(exists, copy, partial(T.buffer_store, output, zero, place))


TEMPLATE = Template(
    workload=TransformWorkload,
    scheme=TransformScheme,
    version=1,
    applies=lambda workload, target: {end.dtype for end in _ends(workload)} == {"float32"},
    space=lambda workload, target: (TransformScheme(),),
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
)
