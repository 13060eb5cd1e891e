"""The loop over time of LSTM, GRU and RNN layers, in all directions.

What a step adds to the last one's state depends on it, so that time is serial. Directions and the
sequences of a batch are independent, and run in parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.recurrent.activations import Activation
from neocpu.schedules.recurrent.cells import CELLS, Cell, Task, Unit, reset_state
from neocpu.schedules.recurrent.workload import LANES, RecurrentWorkload
from neocpu.schedules.tir.builder import build_kernel, for_vectors, span, splat, task_loop
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div


def lower_recurrent(workload: RecurrentWorkload) -> Any:
    """Scheduled ``PrimFunc`` of a recurrent layer, on `RecurrentWorkload.parameters`.

    A length beyond the tensor counts as the tensor's, one below zero as zero; the last state of a
    sequence of no step is zeros, as in ONNX Runtime.

    ::

        parallel direction · tile of a few sequences
          h, c = initial state
          for step
            for panel of the recurrent weights
              acc[rows, panel] = 0                                   # registers
              for k: acc[row, :] += broadcast(h[row, k]) * weights[panel, k, :]
              sums[rows, panel] = acc
            for row
              if the sequence goes on
                for vector of hidden units: h, c = cell(projected + sums, h, c)
                y[its time, row] = h
              else
                y[step, row] = 0
          y_h, y_c = h, c
    """
    w, tiles = workload, ceil_div(workload.batch, workload.rows)
    work = w.steps * w.batch * w.directions * w.columns * w.hidden // LANES

    def body(*arguments: Any) -> None:
        names = (name for name, _, _ in w.parameters)
        buffers = dict(zip(names, arguments, strict=True))
        with task_loop(w.directions * tiles, work) as number:
            direction, first = T.Bind(number // tiles), T.Bind(number % tiles * w.rows)
            states = _allocated(w)
            _emit_task(Task(w, buffers, direction, first, **states))

    return vectorize_calls(build_kernel(w.parameters, body))


def _allocated(w: RecurrentWorkload) -> Mapping[str, Any]:
    def buffer(columns: int, needed: bool = True) -> Any:
        shape = (w.rows, columns)
        return T.alloc_buffer(shape, "float32", layout=None) if needed else None

    return {
        "h": buffer(w.units),
        "c": buffer(w.units, w.cell == "LSTM"),
        "reset": buffer(w.units, len(w.products) > 1),
        "sums": buffer(w.columns),
    }


def _emit_task(task: Task) -> None:
    w = task.workload
    with T.serial(w.rows) as row:
        _begin(task, row)
    with T.serial(w.steps) as step:
        _product(task, 0, task.h, step)
        if task.reset is not None:
            with T.serial(w.rows) as row:
                place, _ = _place(task, _sequence(task, row), step)
                _each_unit(task, row, place, reset_state)
            _product(task, 1, task.reset, step)
        with T.serial(w.rows) as row:
            _advance(task, row, step)
    with T.serial(w.rows) as row:
        sequence = _sequence(task, row)
        for name, state in (("y_h", task.h), ("y_c", task.c)):
            if name in w.written:
                last = task.buffers[name]
                _copy(w, (state, [row]), (last, _of_state(task, sequence)))


def _sequence(task: Task, row: Any) -> Any:
    """Which of the batch a row is: the last task may compute the last one twice."""
    return T.Bind(T.min(task.first + row, task.workload.batch - 1))


def _of_state(task: Task, sequence: Any) -> list[Any]:
    if task.workload.batch_first:
        return [sequence, task.direction]
    return [task.direction, sequence]


def _length(task: Task, sequence: Any) -> Any:
    """Return a sequence's length within the tensor, or None if all have all its steps."""
    if "lengths" not in task.workload.given:
        return None
    given = task.buffers["lengths"][sequence]
    return T.Bind(T.max(T.min(given, task.workload.steps), 0))


def _begin(task: Task, row: Any) -> None:
    """Emit a row's initial state."""
    w, sequence = task.workload, _sequence(task, row)
    for state in (task.h, task.c):
        if state is not None:
            with T.serial(w.units // LANES) as i:
                T.buffer_store(state, _zeros(), [row, span(i * LANES, LANES)])
    length = _length(task, sequence) if w.given else None
    for name, state in (("initial_h", task.h), ("initial_c", task.c)):
        if name not in w.given:
            continue
        source, target = (task.buffers[name], _of_state(task, sequence)), (state, [row])
        if length is None:
            _copy(w, source, target)
            continue
        with T.If(length > 0), T.Then():
            _copy(w, source, target)


def _copy(w: RecurrentWorkload, source: Any, target: tuple[Any, list[Any]]) -> None:
    """Emit a copy of all hidden units between places; from None, of zeros."""

    def copy(unit: Any, lanes: int) -> None:
        with T.vectorized(lanes) as lane:
            value = tirx.const(0, "float32")
            if source is not None:
                value = source[0][(*source[1], unit + lane)]
            T.buffer_store(target[0], value, [*target[1], unit + lane])

    for_vectors(w.hidden, LANES, copy)


def _product(task: Task, number: int, state: Any, step: Any) -> None:
    """Emit the product of a state and recurrent weights, into the sums of their gates.

    Every other step goes through the panels from the last to the first: what the L2 cache still
    holds of them is then read before it is replaced.
    """
    w = task.workload
    name, gates = w.products[number]
    before = sum(count for _, count in w.products[:number]) * w.units
    weights = task.buffers[name]
    _, panels, _, panel = w.packed_shape(gates)
    vectors, every = range(panel // LANES), span(0, LANES)
    tile = [(row, v) for row in range(w.rows) for v in vectors]
    with T.serial(panels) as i:
        chosen = T.Bind(T.Select(step % 2 == 0, i, panels - 1 - i))
        shape = (w.rows, len(vectors), LANES)
        acc = T.alloc_buffer(shape, "float32", scope="local", layout=None)
        for row, v in tile:
            T.buffer_store(acc, _zeros(), [row, v, every])
        with T.serial(w.hidden) as k:
            loaded = [
                T.Bind(weights[task.direction, chosen, k, span(v * LANES, LANES)]) for v in vectors
            ]
            for row in range(w.rows):
                factor = T.Bind(splat(state[row, k], LANES))
                for v, weight in enumerate(loaded):
                    T.buffer_store(acc, acc[row, v, every] + factor * weight, [row, v, every])
        for row, v in tile:
            column = span(before + chosen * panel + v * LANES, LANES)
            T.buffer_store(task.sums, acc[row, v, every], [row, column])


def _zeros() -> Any:
    return splat(tirx.const(0, "float32"), LANES)


def _place(task: Task, sequence: Any, step: Any) -> tuple[tuple[Any, Any], Any]:
    """Return the indices of a sequence and its time, and whether it still goes on.

    The latter is None if all sequences do. One that does not is at the step itself.
    """
    w, length = task.workload, _length(task, sequence)
    goes_on = None if length is None else step < length
    time = step
    if any(w.reverse):
        backward = goes_on if all(w.reverse) else task.direction == 1
        if goes_on is not None and backward is not goes_on:
            backward = tirx.all(backward, goes_on)
        time = (w.steps if length is None else length) - 1 - step
        time = T.Bind(time if backward is None else T.Select(backward, time, step))
    return ((sequence, time) if w.batch_first else (time, sequence)), goes_on


def _advance(task: Task, row: Any, step: Any) -> None:
    """Emit a row's step: its new state, and its output."""
    w = task.workload
    place, goes_on = _place(task, _sequence(task, row), step)

    def write(source: Any) -> None:
        if "y" in w.written:
            _copy(w, source, (task.buffers["y"], [*place, task.direction]))

    def go_on() -> None:
        _each_unit(task, row, place, CELLS[w.cell])
        write((task.h, [row]))

    if goes_on is None:
        go_on()
        return
    with T.If(goes_on):
        with T.Then():
            go_on()
        with T.Else():
            write(None)


def _each_unit(task: Task, row: Any, place: tuple[Any, Any], cell: Cell) -> None:
    """Emit a cell for all units, and for each direction apart if their activations differ."""

    def emit(activations: Sequence[Activation]) -> None:
        with T.serial(task.workload.units // LANES) as i, T.vectorized(LANES) as lane:
            cell(Unit(task, row, place, i * LANES + lane), activations)

    kinds = task.workload.activations
    if len(set(kinds)) == 1:
        emit(kinds[0])
        return
    with T.If(task.direction == 0):
        with T.Then():
            emit(kinds[0])
        with T.Else():
            emit(kinds[1])
