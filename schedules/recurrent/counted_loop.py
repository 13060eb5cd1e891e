"""The kernels around the body of a loop that the runtime repeats.

The first kernel sets the states to their initial values. The last kernel passes on the results of a
step: the next states replace those that were read, and a row of each further output goes to the
place of the step. Another kernel takes an element of a scanned tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    PARALLEL_ELEMENTS,
    build_kernel,
    flat,
    for_share,
    for_vectors,
    span,
)

LOOP_BEGIN: Final = "neocpu.loop_begin"
"""The attribute of the first kernel whose value is the loop's name."""

LOOP_END: Final = "neocpu.loop_end"
"""The same attribute of the last kernel, whose outputs, except the rows, have the places of the
first kernel's."""

LOOP_LIMIT: Final = "neocpu.loop_limit"
"""The attribute of the last kernel with the largest number of iterations."""

LOOP_STATES: Final = "neocpu.loop_states"
"""The attribute of both kernels with the number of states."""

LOOP_DECIDED: Final = "neocpu.loop_decided"
"""The attribute of both kernels that says whether the last tensor they read decides: for the first
kernel the number of iterations (int64), for the last kernel whether there is one more (bool)."""

LOOP_OUTER: Final = "neocpu.loop_outer"
"""The attribute of a kernel that never runs: its result, which a loop reads, is its input."""

_VECTOR: Final = 64
"""The bytes copied at a time; LLVM chooses vectors of the target."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An element type and a shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


_COUNTER: Final = Tensor("int64", ())


def lower_loop_begin(name: str, states: Sequence[Tensor], *, counted: bool) -> Any:
    """Return the scheduled ``PrimFunc(*initial, [count], number, *states)``, which sets the number
    of the step to 0 and copies the states; ``count``, if ``counted``, is the iterations'. ``name``
    is unique.
    """
    reads = [*states, *([_COUNTER] if counted else ())]

    def body(*buffers: Any) -> None:
        number, results = buffers[len(reads)], buffers[len(reads) + 1 :]
        T.buffer_store(number, tirx.const(0, "int64"), [])
        for source, result in zip(buffers, results, strict=False):
            _copy(source, result)

    kernel = build_kernel(_parameters(reads, [_COUNTER, *states]), body)
    return _marked(kernel, {LOOP_BEGIN: name}, len(states), counted)


def lower_loop_end(
    name: str,
    limit: int,
    states: Sequence[Tensor],
    rows: Sequence[tuple[Tensor, bool]],
    condition: Tensor | None,
) -> Any:
    """Return the scheduled ``PrimFunc(number, *next, *rows, [condition], *states, *outputs)``.

    The kernel writes one row of each output, and no other row.

    - `limit`: the largest number of iterations.
    - `rows`: the row that a step adds to each output, and whether the last row comes first.
    - `condition`: one bool, if a tensor decides whether the body runs once more.
    """
    deciding = [] if condition is None else [condition]
    reads = [_COUNTER, *states, *(row for row, _ in rows), *deciding]
    outputs = [Tensor(row.dtype, (limit, *row.shape)) for row, _ in rows]

    def body(*buffers: Any) -> None:
        step = _step(buffers[0], limit)
        made, results = buffers[1 : len(reads)], buffers[len(reads) :]
        for source, result in zip(made, results[: len(states)], strict=False):
            _copy(source, result)
        places = zip(made[len(states) :], results[len(states) :], rows, strict=False)
        for source, result, (row, backward) in places:
            place = limit - 1 - step if backward else step
            _copy(source, result, start=place * row.elements)

    kernel = build_kernel(_parameters(reads, [*states, *outputs]), body)
    marks = {LOOP_END: name, LOOP_LIMIT: limit}
    return _marked(kernel, marks, len(states), condition is not None)


def lower_loop_element(whole: Tensor, axis: int, limit: int, *, backward: bool) -> Any:
    """Return the scheduled ``PrimFunc(whole, number, element)``.

    - `whole`: a tensor that is at least ``limit`` long along the axis.
    - `axis`: the axis, not negative; the element has all others.
    - `backward`: whether the first step takes the last of ``limit`` elements.
    """
    outer, run = math.prod(whole.shape[:axis]), math.prod(whole.shape[axis + 1 :])
    element = Tensor(whole.dtype, (*whole.shape[:axis], *whole.shape[axis + 1 :]))

    def body(source: Any, number: Any, result: Any) -> None:
        step = _step(number, limit)
        place = (limit - 1 - step if backward else step) * run
        if outer == 1:
            _copy(source, result, first=place, size=run)
            return
        with T.serial(outer) as index:
            begin = index * whole.shape[axis] * run + place
            _copy(source, result, first=begin, start=index * run, size=run)

    return build_kernel(_parameters([whole, _COUNTER], [element]), body)


def lower_copy(tensor: Tensor) -> Any:
    """Return the scheduled ``PrimFunc(input, output)`` that copies."""
    parameters = _parameters([tensor], [tensor])
    return build_kernel(parameters, lambda source, result: _copy(source, result))


def lower_loop_outer(tensor: Tensor) -> Any:
    """Return ``PrimFunc(input, output)``, which marks a tensor from outside that a loop reads."""
    return lower_copy(tensor).with_attr(LOOP_OUTER, 1)


def _parameters(
    reads: Sequence[Tensor], writes: Sequence[Tensor]
) -> list[tuple[str, tuple[int, ...], str]]:
    named = [
        *((f"input{i}", tensor) for i, tensor in enumerate(reads)),
        *((f"output{i}", tensor) for i, tensor in enumerate(writes)),
    ]
    return [(name, tensor.shape, tensor.dtype) for name, tensor in named]


def _marked(kernel: Any, marks: dict[str, Any], states: int, decided: bool) -> Any:
    return kernel.with_attr({**marks, LOOP_STATES: states, LOOP_DECIDED: int(decided)})


def _step(number: Any, limit: int) -> Any:
    """Return the number of the step, kept within the loop whatever a header says."""
    step = tirx.BufferLoad(number, [])
    last = tirx.const(limit - 1, "int64")
    return T.cast(T.max(T.min(step, last), tirx.const(0, "int64")), "int32")


def _copy(source: Any, destination: Any, *, start: Any = 0, first: Any = 0, size: int = 0) -> None:
    """Emit a copy of a tensor, or of ``size`` elements from ``first`` on, to ``start``."""
    size = size or math.prod(int(extent) for extent in source.shape)
    lanes = _VECTOR // bytes_of(str(source.dtype))
    given, made = flat(source), flat(destination)

    def copy(at: Any, width: int) -> None:
        T.buffer_store(made, given[span(first + at, width)], [span(start + at, width)])

    if size < PARALLEL_ELEMENTS:
        for_vectors(size, lanes, copy)
        return
    with T.parallel(ENOUGH_TASKS) as task:
        for_share(task, size, lanes, copy)
