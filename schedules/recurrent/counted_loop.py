"""The kernels around the body of a loop that the runtime repeats.

Before it one gives the states their first values. At its end one hands on what the step made: the
next states take the places of those that were read, and a row of each further output goes to the
place of the step. Another one takes an element of what is scanned.
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
"""Attribute of the first kernel, whose value is the loop's name."""

LOOP_END: Final = "neocpu.loop_end"
"""Attribute of the second one, likewise. What it writes, but for the rows, is what the first one
did: the same places."""

LOOP_LIMIT: Final = "neocpu.loop_limit"
"""Attribute of the second one: how often the body runs at most."""

LOOP_STATES: Final = "neocpu.loop_states"
"""Attribute of both: how many states there are."""

LOOP_DECIDED: Final = "neocpu.loop_decided"
"""Attribute of both: whether the last tensor that they read decides. That of the first one says how
often the body runs (int64), that of the second one whether it runs once more (bool)."""

LOOP_OUTER: Final = "neocpu.loop_outer"
"""Attribute of a kernel that never runs: its result, which a loop reads, is what it reads."""

_VECTOR: Final = 64
"""Bytes that are copied at a time: LLVM makes of it what the target has."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An element type and a shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.shape)


_COUNTER: Final = Tensor("int64", ())


def lower_loop_begin(name: str, states: Sequence[Tensor], *, counted: bool) -> Any:
    """Scheduled ``PrimFunc(*initial, [count], number, *states)``.

    Parameters
    ----------
    name : str
        Of the loop, unlike that of any other.
    states : sequence of Tensor
    counted : bool
        Whether a tensor says how often the body runs.

    Returns
    -------
    PrimFunc
        Writes the number of the step, 0, and copies the states.
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
    """Scheduled ``PrimFunc(number, *next, *rows, [condition], *states, *outputs)``.

    Parameters
    ----------
    name : str
        Of the loop.
    limit : int
        How often it runs at most.
    states : sequence of Tensor
    rows : sequence of (Tensor, bool)
        What a step adds to each output of ``limit`` rows, and whether the last one comes first.
    condition : Tensor, optional
        One bool, whether the body runs once more, if a tensor decides.

    Returns
    -------
    PrimFunc
        Of each output writes one row, and leaves the others as they are.
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
    """Scheduled ``PrimFunc(whole, number, element)``.

    Parameters
    ----------
    whole : Tensor
        At least ``limit`` long along the axis.
    axis : int
        Not negative; the element has all others.
    backward : bool
        Whether the first step takes the last of ``limit`` elements.
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
    """Scheduled ``PrimFunc(input, output)`` that copies."""
    parameters = _parameters([tensor], [tensor])
    return build_kernel(parameters, lambda source, result: _copy(source, result))


def lower_loop_outer(tensor: Tensor) -> Any:
    """``PrimFunc(input, output)`` that marks what a loop reads of what is around it."""
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
    """Return the number of the step, within the loop whatever a header says of it."""
    step = tirx.BufferLoad(number, [])
    last = tirx.const(limit - 1, "int64")
    return T.cast(T.max(T.min(step, last), tirx.const(0, "int64")), "int32")


def _copy(source: Any, destination: Any, *, start: Any = 0, first: Any = 0, size: int = 0) -> None:
    """Emit a copy of a tensor, or of ``size`` elements from ``first``, to those from ``start``."""
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
