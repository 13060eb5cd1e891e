"""Concatenations, and gathers of slices of channels, which become one feature map.

Each input has loops of its own, so that no element tests its origin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.bfloat16 import bits_of
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    PARALLEL_ELEMENTS,
    build_kernel,
    flat,
    for_share,
    for_vectors,
    span,
    splat,
    task_loop,
)
from neocpu.schedules.vocabulary.layout import ALIGNMENT, NCHW, DataLayout, Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import typical_of, varies

Shape4 = tuple[int, int, int, int]
# A slice is its first channel and the one after its last.
Slice = tuple[int, int]

#: Marks a kernel that is not needed if its inputs, contiguous, are written to its output's place.
END_TO_END = "neocpu.end_to_end"
#: Marks a kernel that is not needed if its output is read in its input, from this byte on.
VIEW = "neocpu.view"


def lower_concat(
    shapes: Sequence[tuple[int, ...]], axis: int, target: CpuTarget, form: Format
) -> Any:
    """Return the scheduled ``PrimFunc(*inputs, output)`` that concatenates tensors of one format.

    - `shapes`: logical shapes, of rank 4 in NCHW[x]c. In NCHW they are physical shapes of any rank.
      Rows of memory are concatenated as they lie, so blocked tensors whose channels fill their
      blocks may also be passed in this way.
    - `axis`: the logical axis, not negative. Channels in NCHW[x]c need not fill their blocks: lanes
      are shifted if they do not, and the output's padded lanes are zero.
    """
    total = sum(shape[axis] for shape in shapes)
    result = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    if _is_shifted(shapes, axis, form):
        emit = partial(_emit_blocked, [(0, shape[axis]) for shape in shapes])
    else:
        emit = partial(_emit_runs, axis, _physical(shapes, form), target.lanes(form.dtype))
    kernel = _kernel(_physical((*shapes, result), form), form, emit)
    in_place = lies_end_to_end(shapes, axis, form)
    return kernel.with_attr(END_TO_END, True) if in_place else kernel


def _kernel(
    shapes: Sequence[tuple[int, ...]], form: Format, emit: Callable[[Sequence[Any], Any], None]
) -> Any:
    """Return the ``PrimFunc(*inputs, output)`` on physical shapes with the loops of ``emit``."""
    names = [*(f"input{i}" for i in range(len(shapes) - 1)), "output"]
    parameters = [(name, shape, form.dtype) for name, shape in zip(names, shapes, strict=True)]

    def body(*given: Any) -> None:
        *inputs, output = (bits_of(buffer) for buffer in given)
        emit(inputs, output)

    return build_kernel(parameters, body)


def lies_end_to_end(shapes: Sequence[tuple[int, ...]], axis: int, form: Format) -> bool:
    """Return whether a concatenation is its inputs in a row, from multiples of `ALIGNMENT`."""
    physical = _physical(shapes, form)
    before = math.prod(physical[0][:axis])
    if _is_shifted(shapes, axis, form) or varies(before) or before > 1:
        return False
    sizes = [_fixed_part(shape) * bytes_of(form.dtype) for shape in physical[:-1]]
    return all(size % ALIGNMENT == 0 for size in itertools.accumulate(sizes))


def _fixed_part(shape: Sequence[int]) -> int:
    """Return the number of elements if all extents that vary are 1: others are its multiples."""
    return math.prod(extent for extent in shape if not varies(extent))


def _physical(shapes: Sequence[tuple[int, ...]], form: Format) -> list[tuple[int, ...]]:
    return [form.shape(shape) if form.layout != NCHW else shape for shape in shapes]


def is_shifted(channels: Sequence[int], block: int) -> bool:
    """Return whether some input of a concatenation in NCHW[block]c begins within a block."""
    return not all(map(DataLayout(block).divides, channels[:-1]))


def _is_shifted(shapes: Sequence[tuple[int, ...]], axis: int, form: Format) -> bool:
    return axis == 1 and is_shifted([shape[1] for shape in shapes], form.layout.block)


def _emit_runs(
    axis: int,
    shapes: Sequence[tuple[int, ...]],
    lanes: int,
    inputs: Sequence[Any],
    output: Any,
) -> None:
    """Emit the copies of contiguous runs, one per input and index of the axes before ``axis``::

    parallel outer (or shares of each run, if the outer extent is small)
      for each input: vectors of its run
    """
    outer = math.prod(shapes[0][:axis])
    runs = [math.prod(shape[axis:]) for shape in shapes]
    size = outer * sum(runs)
    sources, destination = [flat(buffer) for buffer in inputs], flat(output)
    starts = [sum(runs[:i]) for i in range(len(runs))]

    def copy(source: Any, at: Any, to: Any, i: Any, width: int) -> None:
        T.buffer_store(destination, source[span(at + i, width)], [span(to + i, width)])

    if typical_of(outer) >= ENOUGH_TASKS or typical_of(size) < PARALLEL_ELEMENTS:
        with task_loop(outer, size) as index:
            for source, run, start in zip(sources, runs, starts, strict=True):
                to = index * sum(runs) + start
                for_vectors(run, lanes, partial(copy, source, index * run, to))
        return
    with task_loop(ENOUGH_TASKS, size) as task, T.serial(outer) as index:
        for source, run, start in zip(sources, runs, starts, strict=True):
            to = index * sum(runs) + start
            for_share(task, run, lanes, partial(copy, source, index * run, to))


def lower_gather(
    shapes: Sequence[Shape4], slices: Sequence[Slice], target: CpuTarget, form: Format
) -> Any:
    """Return the scheduled ``PrimFunc(*inputs, output)`` that concatenates slices of channels.

    - `shapes`: logical NCHW shapes; only their channels differ.
    - `slices`: the first channel and the one after the last, for each input. In NCHW[x]c neither
      needs to be a multiple of the block: lanes are shifted, and the output's padded lanes are
      zero.
    """
    n, _, h, w = shapes[0]
    channels = sum(end - first for first, end in slices)
    physical = [form.shape(shape) for shape in (*shapes, (n, channels, h, w))]
    if form.layout == NCHW:
        emit = partial(_emit_rows, slices, (n, channels, h, w), target.lanes(form.dtype))
    else:
        emit = partial(_emit_blocked, slices)
    kernel = _kernel(physical, form, emit)
    offset = slice_offset(shapes[0], slices[0], form) if len(slices) == 1 else None
    return kernel if offset is None else kernel.with_attr(VIEW, offset)


def slice_offset(shape: Shape4, part: Slice, form: Format) -> int | None:
    """Return the byte at which some channels of a feature map begin, if they are contiguous.

    The result is None if they are not contiguous or begin where a kernel may not read, or if their
    last block has other channels: lanes after the last channel must be zero, because an infinite
    value there would become NaN.
    """
    (first, end), block = part, form.layout.block
    if varies(shape[0]) or shape[0] > 1 or first % block or (end % block and end != shape[1]):
        return None
    fixed = (1 if varies(extent) else extent for extent in shape[2:])
    if first and form.bytes((1, first, *fixed)) % ALIGNMENT:
        return None
    return form.bytes((1, first, *shape[2:])) if first else 0


def _emit_rows(
    slices: Sequence[Slice], shape: Shape4, lanes: int, inputs: Sequence[Any], output: Any
) -> None:
    """Emit the copies in NCHW::

    parallel n · row
      for each input: for each channel of its slice: vectors of the row
    """
    n, channels, height, width = shape
    with task_loop(n * height, n * channels * height * width) as task:
        image, y = task // height, task % height
        start = 0

        def copy(data: Any, source: Any, to: Any, x: Any, count: int) -> None:
            value = data[image, source, y, span(x, count)]
            T.buffer_store(output, value, [image, to, y, span(x, count)])

        for data, (first, end) in zip(inputs, slices, strict=True):
            with T.serial(end - first) as c:
                for_vectors(width, lanes, partial(copy, data, first + c, start + c))
            start += end - first


def _emit_blocked(slices: Sequence[Slice], inputs: Sequence[Any], output: Any) -> None:
    """Emit the copies in NCHW[x]c::

    parallel n · row
      for each run of output chunks that are made alike: for chunk: for pixel:
        for each piece that stays within one input chunk: copy
    """
    n, chunks, height, width, block = (int(extent) for extent in output.shape)
    with task_loop(n * height, n * chunks * height * width * block) as task:
        image, y = task // height, task % height

        def read(number: int, chunk: Any, x: Any, lanes: Any) -> Any:
            return inputs[number][image, chunk, y, x, lanes]

        emit_row(slices, output, width, read, lambda chunk, x: (image, chunk, y, x))


def emit_row(
    slices: Sequence[Slice],
    output: Any,
    width: int,
    read: Callable[[int, Any, Any, Any], Any],
    place: Callable[[Any, Any], tuple[Any, ...]],
) -> None:
    """Emit the copies to a row of pixels of a blocked output.

    - `width`: the number of pixels in the row.
    - `read`: returns lanes of a pixel, for the number of an input and one of its chunks.
    - `place`: returns where a chunk of a pixel begins in the output.
    """
    chunks, block = int(output.shape[1]), int(output.shape[4])
    for first, alike, pieces in _runs(slices, block, chunks):
        filled = sum(length for *_, length in pieces)
        with T.serial(alike) as step, T.serial(width) as x:
            pixel, at = place(first + step, x), 0
            for number, source, lane, length in pieces:
                value = read(number, source + step, x, span(lane, length))
                T.buffer_store(output, value, [*pixel, span(at, length)])
                at += length
            if filled < block:
                zero = splat(tirx.const(0, str(output.dtype)), block - filled)
                T.buffer_store(output, zero, [*pixel, span(filled, block - filled)])


def _runs(
    slices: Sequence[Slice], block: int, chunks: int
) -> Iterator[tuple[int, int, list[tuple[int, int, int, int]]]]:
    """Return ``(first, count, pieces of the first)`` of output chunks that differ by one input
    chunk each. Unrolled, hundreds would take LLVM minutes.
    """
    first, pieces = 0, _pieces(slices, block, 0)
    for chunk in range(1, chunks + 1):
        moved = [(n, source + chunk - first, lane, length) for n, source, lane, length in pieces]
        if chunk == chunks or _pieces(slices, block, chunk) != moved:
            yield first, chunk - first, pieces
            first, pieces = chunk, _pieces(slices, block, chunk)


def _pieces(slices: Sequence[Slice], block: int, chunk: int) -> list[tuple[int, int, int, int]]:
    """Return ``(input, its chunk, its first lane, length)`` of each run in an output chunk."""
    pieces: list[tuple[int, int, int, int]] = []
    offset = 0
    for number, (first, end) in enumerate(slices):
        low = max(chunk * block, offset)
        high = min((chunk + 1) * block, offset + end - first)
        while low < high:
            source, lane = divmod(first + low - offset, block)
            length = min(high - low, block - lane)
            pieces.append((number, source, lane, length))
            low += length
        offset += end - first
    return pieces
