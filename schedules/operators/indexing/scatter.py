"""ONNX's ScatterElements and ScatterND: updates at indices from data.

An index out of bounds writes nothing; see `neocpu.schedules.operators.indexing.lookup`. Updates of
one element are applied in the order of their indices for any number of threads, because tasks own
different elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.indexing.lookup import counted
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    PARALLEL_ELEMENTS,
    build_kernel,
    digits,
    part_start,
    strides_of,
    task_loop,
)

# A task writes at least a cache line of each run of elements, so that threads share no lines.
_LINE_ELEMENTS = 64
# The elements of the data that a task writes, which stay in L2, and the number of tasks.
_OWNED, _LEAST_OWNERS = 1 << 17, 4

#: The new value for an element and its update, by ONNX's name.
REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: T.max(old, new),
    "min": lambda old, new: T.min(old, new),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementsWorkload:
    """The shapes and the axis of a ScatterElements: updates have the shape of ``indices``, which is
    no larger than ``data`` along all axes except ``axis``.
    """

    data: tuple[int, ...]
    indices: tuple[int, ...]
    axis: int
    reduction: str
    dtype: str
    index_dtype: str

    @property
    def before(self) -> int:
        """The number of indices along the axes before ``axis``."""
        return math.prod(self.indices[: self.axis])

    @property
    def parts(self) -> int:
        """The number of parts of the last axis, if it is not ``axis``, that make enough tasks."""
        last = len(self.indices) - 1
        if self.axis == last or math.prod(self.indices) < PARALLEL_ELEMENTS:
            return 1
        return max(1, min(ENOUGH_TASKS // self.before, self.indices[last] // _LINE_ELEMENTS))


def lower_scatter_elements(workload: ElementsWorkload) -> Any:
    """Return the scheduled ``PrimFunc(data, indices, updates, output)``, on flat buffers::

        parallel part: output = data
        parallel axes in front of the indexed one · part of the last one
          for the indexed axis: for axes after it, the last one's part:
            if the index is inside: output[..., index, ...] = f(output[..., index, ...], update)

    or, if there are many tasks, and indices and data agree along all other axes than ``axis``::

        parallel axes in front of the indexed one · part of the last one
          for the indexed axis: for axes after it, the last one's part: output = data
          for the indexed axis: for axes after it, the last one's part:
            if the index is inside: output[..., index, ...] = f(output[..., index, ...], update)

    Each task copies what it alone writes to, and has that in its caches then.
    """
    data, indices, axis = workload.data, workload.indices, workload.axis
    count, parts = math.prod(indices), workload.parts
    parameters = _parameters(math.prod(data), count, count, workload.dtype, workload.index_dtype)
    tasks = workload.before * parts
    # A few tasks would copy more slowly than all threads do.
    alone = tasks >= ENOUGH_TASKS and indices == (*data[:axis], indices[axis], *data[axis + 1 :])

    def offset(at: Sequence[Any], shape: Sequence[int]) -> Any:
        # Converted indices are never narrowed, which would cost a tenth of the time.
        terms = (T.cast(i, "int64") * n for i, n in zip(at, strides_of(shape), strict=True))
        return T.Bind(sum(terms))

    def behind(nest: ExitStack, extent: int, part: Any) -> list[Any]:
        at = [nest.enter_context(T.serial(n)) for n in (extent, *indices[axis + 1 : -1])]
        if axis < len(indices) - 1:
            at.append(nest.enter_context(_part_loop(part, indices[-1], parts)))
        return at

    def body(values: Any, places: Any, updates: Any, output: Any) -> None:
        if not alone:
            _emit_copy(values, output)
        with task_loop(tasks, math.prod(data) if alone else count) as task:
            before, part = task // parts, task % parts
            front = digits(before, indices[:axis])
            if alone:
                with ExitStack() as nest:
                    here = offset(front + behind(nest, data[axis], part), data)
                    T.buffer_store(output, values[here], [here])
            with ExitStack() as nest:
                at = front + behind(nest, indices[axis], part)
                here = offset(at, indices)
                at[axis] = counted(places[here], data[axis])
                with T.If(_inside(at[axis], data[axis])), T.Then():
                    there = offset(at, data)
                    value = REDUCTIONS[workload.reduction](output[there], updates[here])
                    T.buffer_store(output, value, [there])

    return build_kernel(parameters, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWorkload:
    """A ScatterND: ``(rows, inner)`` updates of ``(*extents, inner)`` by indices of its axes."""

    extents: tuple[int, ...]
    rows: int
    inner: int
    reduction: str
    dtype: str
    index_dtype: str

    @property
    def parts(self) -> int:
        """The number of tasks that share each row."""
        return max(1, min(ENOUGH_TASKS, self.inner // _LINE_ELEMENTS)) if self.is_large else 1

    @property
    def owners(self) -> int:
        """The number of tasks that each read all rows and write a part of the data."""
        elements = math.prod(self.extents) * self.inner
        return max(_LEAST_OWNERS, min(ENOUGH_TASKS, elements // _OWNED))

    @property
    def is_large(self) -> bool:
        """Whether the writes are worth several tasks."""
        return self.rows * self.inner >= PARALLEL_ELEMENTS


def lower_scatter_nd(workload: RowsWorkload) -> Any:
    """Return the scheduled ``PrimFunc(data, indices, updates, output)``, on flat buffers::

        parallel part: output = data
        parallel part of the elements after the indexed axes
          for row:
            if its indices are inside: for element: output[row', ...] = f(output[row', ...], update)

    or, if those are few::

        parallel row: place[row] = row', or -1
        parallel part of the data
          output = data
          for row:
            if place[row] is there: for element: output[row', ...] = f(output[row', ...], update)
    """
    extents, rows, inner = workload.extents, workload.rows, workload.inner
    depth, parts = len(extents), workload.parts
    parameters = _parameters(
        math.prod(extents) * inner, rows * depth, rows * inner, workload.dtype, workload.index_dtype
    )

    def body(values: Any, places: Any, updates: Any, output: Any) -> None:
        def found(row: Any) -> tuple[Any, Any]:
            """Return whether a row's indices are inside, and the row of the data that it is."""
            at = [counted(places[row * depth + i], extent) for i, extent in enumerate(extents)]
            valid = tirx.all(*(_inside(i, extent) for i, extent in zip(at, extents, strict=True)))
            strides = strides_of(extents)
            there = sum(T.cast(i, "int32") * n for i, n in zip(at, strides, strict=True))
            return valid, there

        def write(row: Any, there: Any, part: Any, count: int) -> None:
            first = T.Bind(there * inner)
            with _part_loop(part, inner, count) as i:
                value = updates[row * inner + i]
                value = REDUCTIONS[workload.reduction](output[first + i], value)
                T.buffer_store(output, value, [first + i])

        if parts == 1 and workload.is_large:
            place = T.alloc_buffer((rows,), "int32", layout=None)
            with task_loop(rows, rows * inner) as row:
                valid, there = found(row)
                T.buffer_store(place, tirx.Select(valid, there, tirx.const(-1, "int32")), [row])
            total = math.prod(extents)
            with T.parallel(workload.owners) as owner:
                low, high = (
                    T.Bind(part_start(owner + i, total, workload.owners)) for i in range(2)
                )
                with T.serial(low * inner, high * inner) as i:
                    T.buffer_store(output, values[i], [i])
                with T.serial(rows) as row:
                    there = T.Bind(place[row])
                    with T.If(tirx.all(there >= low, there < high)), T.Then():
                        write(row, there, 0, 1)
            return
        _emit_copy(values, output)
        with task_loop(parts, rows * inner) as part, T.serial(rows) as row:
            valid, there = found(row)
            with T.If(valid), T.Then():
                write(row, there, part, parts)

    return build_kernel(parameters, body)


def _parameters(
    elements: int, indices: int, updates: int, dtype: str, index_dtype: str
) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    return (
        ("data", (elements,), dtype),
        ("indices", (indices,), index_dtype),
        ("updates", (updates,), dtype),
        ("output", (elements,), dtype),
    )


def _inside(place: Any, extent: int) -> Any:
    """Return whether an index that `counted` returned is valid: a negative one is huge unsigned."""
    unsigned = f"u{place.ty.dtype}"
    return T.cast(place, unsigned) < tirx.const(extent, unsigned)


def _part_loop(part: Any, extent: int, parts: int) -> Any:
    """Return the frame of the loop over one of ``parts`` parts of ``extent`` elements."""
    if parts == 1:
        return T.serial(extent)
    return T.serial(part_start(part, extent, parts), part_start(part + 1, extent, parts))


def _emit_copy(data: Any, output: Any) -> None:
    size = int(data.shape[0])
    parts = ENOUGH_TASKS if size >= PARALLEL_ELEMENTS else 1
    with task_loop(parts, size) as part, _part_loop(part, size, parts) as i:
        T.buffer_store(output, data[i], [i])
