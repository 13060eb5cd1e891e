"""Max and average pooling in NCHW and NCHW[x]c.

Padding is never materialised. In NCHW[x]c one vector holds the channels of a pixel, so a window is
a chain of vector loads at clamped coordinates. In NCHW a vector holds neighbours of a row: the rows
of a window are combined first, into one padded row on the stack, and then its columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.pool_workload import (
    PoolAxis,
    PoolWorkload,
    StoredData,
    StoredHalves,
)
from neocpu.schedules.tir.bfloat16 import bits_of, exact, widened
from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat, task_loop
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import larger, varies

# The most pixels of a window that are unrolled: 8x8 is the largest in common networks.
UNROLL_WINDOW = 64
#: The most rows, and columns, of a window that are unrolled in NCHW; half as many for dilated
#: windows, because the time to compile their chain of conditions doubles with each.
UNROLL_TAPS = 16
# Cycles to load a vector of a window's pixels and combine it with others (measured on a Zen 3).
CYCLES_PER_TAP = 1.2
# The work for an element of a window, in copied elements.
WORK_PER_ELEMENT = 4


def estimate(
    workload: PoolWorkload, layout: DataLayout, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: transfers, and windows, in NCHW by rows, each about a vector more
    than its pixels, for every column of the data, and then by columns.
    """
    shapes = (workload.input_shape, workload.output_shape)
    types = (workload.data_dtype, workload.dtype)
    forms = (Format(layout, dtype) for dtype in types)
    size = sum(form.bytes(shape) for form, shape in zip(forms, shapes, strict=True))
    taps = workload.kernel[0] * workload.kernel[1]
    pixels = math.prod(layout.shape(workload.output_shape))
    lanes = target.lanes(workload.computes)
    if layout.block == 1:
        taps = workload.kernel[0] * workload.stride[1] + workload.kernel[1]
        pixels += pixels // workload.axis(1).outputs * lanes
    window = CYCLES_PER_TAP * taps * pixels / lanes / (target.frequency * threads)
    return fork_seconds(threads, target) + stream_seconds(size, target, threads) + window


def lower_pool(workload: PoolWorkload, layout: DataLayout, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, output)`` of a pooling in ``layout``."""
    parameters = (
        ("data", layout.shape(workload.input_shape), workload.data_dtype),
        ("output", layout.shape(workload.output_shape), workload.dtype),
    )
    emit = _emit_nchw if layout.block == 1 else _emit_blocked
    return build_kernel(
        parameters, lambda data, output: emit(workload, bits_of(data), bits_of(output), target)
    )


def lower_global_pool(
    kind: str,
    shape: tuple[int, int, int, int],
    form: Format,
    target: CpuTarget,
    stored: StoredData | StoredHalves | None = None,
) -> Any:
    """Return the scheduled ``PrimFunc(data, output)`` of a pooling of NCHW ``shape`` to one pixel.

    - `kind`: ``max``, ``avg``, ``sum``, or ``squares``: the sum of squares.
    - `form`: the format of the output, and of the data except for the type of ``stored`` data.
    """
    assert kind in ("max", "avg", "sum", "squares"), kind
    n, c, h, w = shape
    parameters = (
        ("data", form.shape(shape), stored.dtype if stored else form.dtype),
        ("output", form.shape((n, c, 1, 1)), form.dtype),
    )
    return build_kernel(
        parameters, lambda x, y: emit_global_pool(kind, h * w, bits_of(x), y, target, stored)
    )


def _identity(kind: str, dtype: str, width: int) -> Any:
    if not dtype.startswith("float"):
        return splat(tirx.min_value(dtype) if kind == "max" else tirx.const(0, dtype), width)
    return splat(tirx.const(float("-inf") if kind == "max" else 0.0, dtype), width)


def _read(pool: PoolWorkload, value: Any) -> Any:
    """Return a vector of data in the type in which it is compared or added."""
    if pool.stored:
        return pool.stored.above_zero(value)
    return widened(value) if pool.dtype == BFLOAT16 else value


def _written(pool: PoolWorkload, value: Any, width: int) -> Any:
    """Return a vector of results in the type in which it is stored."""
    if pool.stored:
        return pool.stored.real(value, width)
    return exact(value) if pool.dtype == BFLOAT16 else value


def _combine(kind: str, a: Any, b: Any) -> Any:
    return T.max(a, b) if kind == "max" else a + b


def _emit_blocked(pool: PoolWorkload, data: Any, output: Any, target: CpuTarget) -> None:
    """Emit the loop nest in NCHW[x]c::

    parallel n · chunk · oh
      ow                          three loops: at the left border, inside, at the right one
        window rows, columns      (unrolled up to 8 x 8)
          acc[x] = max | +        one vector of channels, in a register
    """
    n, chunks, _, _, block = (int(extent) for extent in output.shape)
    oh, ow = pool.output_shape[2:]
    loop = T.unroll if pool.kernel[0] * pool.kernel[1] <= UNROLL_WINDOW else T.serial
    rows, columns = pool.axis(0), pool.axis(1)
    with task_loop(n * chunks * oh, n * chunks * oh * ow * block * WORK_PER_ELEMENT) as task:
        image, chunk, y = task // (chunks * oh), task // oh % chunks, task % oh

        def window(x: Any, columns_inside: bool, lane: Any, width: int) -> None:
            none, every = _identity(pool.kind, pool.computes, width), span(0, width)
            acc = T.alloc_buffer((width,), pool.computes, layout=None)
            T.buffer_store(acc, none, [every])
            with loop(pool.kernel[0]) as i, loop(pool.kernel[1]) as j:
                iy, ix = rows.position(y, i), columns.position(x, j)
                near = ix if columns_inside else columns.clamp(ix)
                value = _read(pool, data[image, chunk, rows.clamp(iy), near, span(lane, width)])
                # A clamped pixel of an undilated window is in it: a maximum may see it twice.
                if pool.kind == "avg" or pool.dilation != (1, 1):
                    checked = [(rows, iy)] if columns_inside else [(rows, iy), (columns, ix)]
                    inside = [axis.is_inside(at) for axis, at in checked if not axis.inside]
                    if inside:
                        value = tirx.Select(splat(tirx.all(*inside), width), value, none)
                T.buffer_store(acc, _combine(pool.kind, acc[every], value), [every])
            result = acc[every]
            if pool.kind == "avg":
                whole = tirx.const(1.0 / columns.kernel, pool.computes)
                across = whole if columns_inside else _scale(columns, x, pool)
                result = result * splat(_scale(rows, y, pool) * across, width)
            place = [image, chunk, y, x, span(lane, width)]
            T.buffer_store(output, _written(pool, result, width), place)

        first, last = columns.interior
        for start, stop in pairwise((0, first, last, ow)):
            if varies(start, stop) or start < stop:
                inside = (start, stop) == (first, last)
                with T.serial(start, stop) as x:
                    for_vectors(block, 4 * target.lanes(pool.computes), partial(window, x, inside))


def _scale(axis: PoolAxis, out: Any, pool: PoolWorkload) -> Any:
    """Return the reciprocal of the number of pixels that window ``out`` averages along one axis."""
    count = axis.count(out, pool.count_include_pad)
    if isinstance(count, int):
        return tirx.const(1.0 / count, pool.computes)
    return tirx.const(1.0, pool.computes) / T.cast(count, pool.computes)


def _emit_nchw(pool: PoolWorkload, data: Any, output: Any, target: CpuTarget) -> None:
    """Emit the loop nest in NCHW::

    parallel n · c
      oh
        row[left + w + right] = max | + over the window's rows    (vectors along w)
        ow                                                        (vectors along ow)
          acc = max | + over the window's columns of row
    """
    n, c, oh, ow = pool.output_shape
    lanes, stride = target.lanes(pool.computes), pool.stride[1]
    rows, columns = pool.axis(0), pool.axis(1)
    length = larger(columns.reach, columns.before + pool.width)
    with task_loop(n * c, n * c * oh * ow * WORK_PER_ELEMENT) as task:
        image, channel = task // c, task % c
        row = T.alloc_buffer((length,), pool.computes, layout=None)

        def fill(start: int, stop: int) -> None:
            def store(at: Any, width: int) -> None:
                none = _identity(pool.kind, pool.computes, width)
                T.buffer_store(row, none, [span(start + at, width)])

            for_vectors(stop - start, lanes, store)

        fill(0, columns.before)
        fill(columns.before + pool.width, length)
        if pool.kind == "avg":
            across = T.alloc_buffer((ow,), pool.computes, layout=None)
            with T.serial(ow) as x:
                T.buffer_store(across, _scale(columns, x, pool), [x])
        else:
            across = None
        with T.serial(oh) as y:

            def combine_rows(at: Any, width: int) -> None:
                def line_of(i: Any) -> Any:
                    iy = rows.position(y, i)
                    line = data[image, channel, rows.clamp(iy), span(at, width)]
                    line = _read(pool, line)
                    if not rows.inside and (pool.kind == "avg" or pool.dilation[0] > 1):
                        line = tirx.Select(
                            splat(rows.is_inside(iy), width),
                            line,
                            _identity(pool.kind, pool.computes, width),
                        )
                    return line

                value = _folded(pool, pool.kernel[0], width, line_of)
                T.buffer_store(row, value, [span(columns.before + at, width)])

            for_vectors(pool.width, lanes, combine_rows)
            down = _scale(rows, y, pool) if pool.kind == "avg" else None

            def combine_columns(at: Any, width: int) -> None:
                def taps_of(j: Any) -> Any:
                    first = at * stride + j * pool.dilation[1]
                    return row[first if width == 1 else T.ramp(first, stride, width)]

                value = _folded(pool, pool.kernel[1], width, taps_of)
                if pool.kind == "avg":
                    value = value * splat(down, width) * across[span(at, width)]
                place = [image, channel, y, span(at, width)]
                T.buffer_store(output, _written(pool, value, width), place)

            for_vectors(ow, lanes, combine_columns)


def _folded(pool: PoolWorkload, taps: int, width: int, read: Callable[[Any], Any]) -> Any:
    """Return the combination of the vectors ``read(tap)`` over all taps."""
    value = _identity(pool.kind, pool.computes, width)
    if taps * min(max(pool.dilation), 2) <= UNROLL_TAPS:
        for tap in range(taps):
            value = T.Bind(_combine(pool.kind, value, read(tap)))
        return value
    acc = T.alloc_buffer((width,), pool.computes, layout=None)
    everything = span(0, width)
    T.buffer_store(acc, value, [everything])
    with T.serial(taps) as tap:
        T.buffer_store(acc, _combine(pool.kind, acc[everything], read(tap)), [everything])
    return acc[everything]


def emit_global_pool(
    kind: str,
    pixels: int,
    data: Any,
    output: Any,
    target: CpuTarget,
    stored: StoredData | StoredHalves | None = None,
) -> None:
    """Emit a reduction over all pixels of each (image, chunk), which are contiguous::

    parallel n · chunk
      acc[wide] = max | +      several pixels of x lanes each: four vectors, to hide latency
      halve acc down to the x lanes of one pixel
    """
    dtype = str(output.dtype)
    n, chunks = (int(extent) for extent in output.shape[:2])
    block = int(output.shape[4]) if len(output.shape) == 5 else 1
    group = 1
    while (varies(pixels) or group * 2 <= pixels) and group * 2 * block <= 4 * target.lanes(dtype):
        group *= 2
    wide = group * block
    size = n * chunks * pixels * block
    source = flat(data)

    def read(first: Any, width: int) -> Any:
        value = source[span(first, width)]
        if kind == "squares":
            value = T.Bind(value)
            return value * value
        return stored.above_zero(value) if stored else value

    with task_loop(n * chunks, size) as task:
        base = task * (pixels * block)
        acc = T.alloc_buffer((wide,), dtype, layout=None)
        everything = span(0, wide)
        # The first pixels begin the sums, unless there may be none.
        begun = 0 if varies(pixels) else 1
        none = _identity(kind, dtype, wide)
        T.buffer_store(acc, read(base, wide) if begun else none, [everything])
        with T.serial(pixels // group - begun) as step:
            value = read(base + (step + begun) * wide, wide)
            T.buffer_store(acc, _combine(kind, acc[everything], value), [everything])
        value = T.Bind(acc[everything])
        while wide > block:
            wide //= 2
            low, high = (T.Shuffle([value], list(range(at, at + wide))) for at in (0, wide))
            value = T.Bind(_combine(kind, low, high))
        if varies(pixels):
            whole, lanes = pixels // group * group, span(0, block)
            rest = T.alloc_buffer((block,), dtype, layout=None)
            T.buffer_store(rest, value, [lanes])
            with T.serial(pixels - whole) as step:
                more = read(base + (whole + step) * block, block)
                T.buffer_store(rest, _combine(kind, rest[lanes], more), [lanes])
            value = rest[lanes]
        else:
            for pixel in range(pixels // group * group, pixels):
                value = T.Bind(_combine(kind, value, read(base + pixel * block, block)))
        if kind == "avg":
            value = value * splat(tirx.const(1.0 / pixels, dtype), block)
        if stored:
            value = stored.real(value, block)
        lane = [span(0, block)] if block > 1 else []
        T.buffer_store(output, value, [task // chunks, task % chunks, 0, 0, *lane])
