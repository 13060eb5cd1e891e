"""Gathers of channels: slices of several feature maps become one feature map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.bfloat16 import bits_of
from neocpu.schedules.tir.builder import build_kernel, for_vectors, span, splat, task_loop
from neocpu.schedules.vocabulary.layout import ALIGNMENT, NCHW, Format
from neocpu.schedules.vocabulary.target import CpuTarget

Shape4 = tuple[int, int, int, int]
# A slice is its first channel and the one after its last.
Slice = tuple[int, int]

#: The attribute of a kernel whose output is a contiguous part of its input, from this byte on: the
#: kernel is not needed if the output is read there.
VIEW = "neocpu.view"


def lower_gather(
    shapes: Sequence[Shape4],
    slices: Sequence[Slice],
    target: CpuTarget,
    form: Format,
) -> Any:
    """Return the scheduled ``PrimFunc(*inputs, output)`` that concatenates slices of channels.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Logical NCHW shapes; only their channels differ.
    slices : sequence of (int, int)
        The first channel and the one after the last, for each input. In NCHW[x]c neither needs to
        be a multiple of the block: lanes are shifted, and the output's padded lanes are zero.
    """
    n, _, h, w = shapes[0]
    channels = sum(end - first for first, end in slices)
    physical = [form.shape(shape) for shape in (*shapes, (n, channels, h, w))]
    names = [*(f"input{i}" for i in range(len(shapes))), "output"]
    parameters = [(name, shape, form.dtype) for name, shape in zip(names, physical, strict=True)]

    def body(*given: Any) -> None:
        buffers = [bits_of(buffer) for buffer in given]
        if form.layout == NCHW:
            _emit_rows(slices, target.lanes(form.dtype), buffers[:-1], buffers[-1])
        else:
            emit_blocked(slices, buffers[:-1], buffers[-1])

    kernel = build_kernel(parameters, body)
    offset = slice_offset(shapes[0], slices[0], form) if len(slices) == 1 else None
    return kernel if offset is None else kernel.with_attr(VIEW, offset)


def slice_offset(shape: Shape4, part: Slice, form: Format) -> int | None:
    """Return the byte at which some channels of a feature map begin, if they are contiguous.

    The result is None if they are not contiguous or begin where a kernel may not read, or if their
    last block has other channels: lanes after the last channel must be zero, because an infinite
    value there would become NaN.
    """
    (first, end), block = part, form.layout.block
    if shape[0] > 1 or first % block or (end % block and end != shape[1]):
        return None
    offset = form.bytes((1, first, *shape[2:])) if first else 0
    return None if offset % ALIGNMENT else offset


def _emit_rows(slices: Sequence[Slice], lanes: int, inputs: Sequence[Any], output: Any) -> None:
    """Emit the copies in NCHW.

    ::

        parallel n · row
          for each input: for each channel of its slice: vectors of the row
    """
    n, channels, height, width = (int(extent) for extent in output.shape)
    with task_loop(n * height, n * channels * height * width) as task:
        image, y = task // height, task % height
        start = 0
        for data, (first, end) in zip(inputs, slices, strict=True):
            with T.serial(end - first) as c:
                _copy_row(data, (image, first + c, y), output, (image, start + c, y), lanes)
            start += end - first


def _copy_row(
    data: Any, source: tuple[Any, ...], output: Any, place: tuple[Any, ...], lanes: int
) -> None:
    def copy(x: Any, count: int) -> None:
        T.buffer_store(output, data[(*source, span(x, count))], [*place, span(x, count)])

    for_vectors(int(output.shape[3]), lanes, copy)


def emit_blocked(slices: Sequence[Slice], inputs: Sequence[Any], output: Any) -> None:
    """Emit the copies in NCHW[x]c.

    ::

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

    Parameters
    ----------
    width : int
        The number of pixels in the row.
    read : callable
        A function that returns lanes of a pixel, for the number of an input and one of its chunks.
    place : callable
        A function that returns where a chunk of a pixel begins in the output.
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
    """Return ``(first, count, pieces of the first)`` of output chunks with the same structure.

    Only the input chunks advance by one from each of them to the next. Unrolled, hundreds of them
    would take LLVM minutes.
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
