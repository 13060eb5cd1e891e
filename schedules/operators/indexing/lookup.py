"""Kernels that read at indices from data: every index is checked before it becomes an address.

These kernels read their indices from memory, and no computation of indices is ever fused into them.
Compilers assume that integers do not overflow, so within one kernel they could remove a check that
only an overflowed index fails.

A negative index counts from the end, once, as in ONNX. ONNX makes all other indices outside an
error, which a kernel cannot raise: reads take the nearest element instead, and writes do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import (
    build_kernel,
    flat,
    flat_bits,
    for_vectors,
    loop_nest,
    span,
    strides_of,
    task_loop,
)
from neocpu.schedules.vocabulary.layout import ceil_div

WIDE = 16
"""The number of indices that are checked together."""


def counted(index: Any, extent: int) -> Any:
    """Return a loaded index, or vector of them, counted from the end of ``extent`` if negative."""
    dtype = index.ty.dtype
    bound = T.Bind(index)
    # The sum may overflow only where it is not selected.
    wrapped = bound + tirx.const(extent, dtype)
    return T.Bind(tirx.Select(bound < tirx.const(0, dtype), wrapped, bound))


def nearest(index: Any, extent: int) -> Any:
    """Return a loaded index, or a vector, as int32, clamped to ``extent`` elements."""
    place = counted(index, extent)
    dtype = place.ty.dtype
    last = tirx.const(extent - 1, dtype)
    inside = T.max(T.min(place, last), tirx.const(0, dtype))
    _, vector, lanes = str(dtype).partition("x")
    return T.cast(inside, f"int32{vector}{lanes}")


def lower_take(shape: tuple[int, int, int], count: int, dtype: str, index_dtype: str) -> Any:
    """Return the scheduled ``PrimFunc(data, indices, output)``: rows of ``data``, in any order.

    ``data`` is ``shape``, ``(outer, extent, inner)``, ``indices`` ``(count,)`` and ``output``
    ``(outer, count, inner)``, all flat. An index outside counts as the nearest one::

        parallel outer · count
          for vectors of inner: output[outer, i] = data[outer, indices[i]]
    """
    outer, extent, inner = shape
    parameters = (
        ("data", (math.prod(shape),), dtype),
        ("indices", (count,), index_dtype),
        ("output", (outer * count * inner,), dtype),
    )

    def body(given: Any, indices: Any, written: Any) -> None:
        data, output = (flat_bits(buffer) for buffer in (given, written))
        with task_loop(outer * count, outer * count * inner) as row:
            index = T.Bind(indices[row % count])
            kind = index.ty.dtype
            inside = T.max(T.min(index, tirx.const(extent - 1, kind)), tirx.const(0, kind))
            source = T.Bind((row // count * extent + T.cast(inside, "int32")) * inner)
            start = T.Bind(row * inner)

            def copy(i: Any, lanes: int) -> None:
                T.buffer_store(output, data[span(source + i, lanes)], [span(start + i, lanes)])

            for_vectors(inner, WIDE, copy)

    return build_kernel(parameters, body)


def lower_offsets(batches: int, rows: int, extents: tuple[int, ...], index_dtype: str) -> Any:
    """Return the scheduled ``PrimFunc(indices, offsets)``: the element of each row of indices.

    - `batches`, `rows`: ``indices`` is ``(batches * rows, len(extents))``, ``offsets`` ``(batches *
      rows,)`` int32.
    - `extents`: the extents of the indexed axes. An offset counts elements of ``(batches,
      *extents)``, row-major.

    ::

        parallel batch · rows: offsets[row] = batch · elements + sum of index · stride
    """
    total, elements, depth = batches * rows, math.prod(extents), len(extents)
    parameters = (("indices", (total, len(extents)), index_dtype), ("offsets", (total,), "int32"))

    def body(indices: Any, offsets: Any) -> None:
        given = flat(indices)
        with _vectors((batches, rows), total) as (batch, i, width):
            row = batch * rows + i
            offset: Any = batch * elements
            for axis, stride in enumerate(strides_of(extents)):
                places = row * depth + axis
                index = given[T.ramp(places, depth, width) if width > 1 else places]
                offset = offset + nearest(index, extents[axis]) * stride
            T.buffer_store(offsets, offset, [span(row, width)])

    return build_kernel(parameters, body)


def lower_gather_elements(
    data: Sequence[int], indices: Sequence[int], axis: int, dtype: str, index_dtype: str
) -> Any:
    """Return the scheduled ``PrimFunc(data, indices, output)`` of ONNX's GatherElements.

    - `data`, `indices`: shapes of one rank. The output has the shape of ``indices``, which is no
      larger than ``data`` along all axes except ``axis``. Buffers are flat.

    ::

        parallel leading axes of indices / other axes
          output[...] = data[..., index, ...]
    """
    count = math.prod(indices)
    parameters = (
        ("data", (math.prod(data),), dtype),
        ("indices", (count,), index_dtype),
        ("output", (count,), dtype),
    )
    if data[-1] == indices[-1] == 1 and axis < len(data) - 1:
        data, indices = data[:-1], indices[:-1]
    source, target = strides_of(data), strides_of(indices)

    def body(given: Any, places: Any, written: Any) -> None:
        values, output = (flat_bits(buffer) for buffer in (given, written))
        with _vectors(indices, count) as (*at, width):
            first = sum(i * stride for i, stride in zip(at, target, strict=True))
            here = span(first, width)
            there: list[Any] = [*at[:-1], span(at[-1], width)]
            there[axis] = nearest(places[here], data[axis])
            offset = sum(i * stride for i, stride in zip(there, source, strict=True))
            T.buffer_store(output, values[offset], [here])

    return build_kernel(parameters, body)


@contextmanager
def _vectors(extents: Sequence[int], elements: int) -> Iterator[tuple[Any, ...]]:
    """Emit the body for vectors of the last axis, by first index and length; the last overlaps."""
    *lead, last = extents
    width = WIDE if last >= WIDE else 1
    with loop_nest((*lead, ceil_div(last, width)), elements) as (*at, vector):
        yield (*at, T.min(vector * width, last - width), width)
