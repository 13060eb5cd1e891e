"""The loop over time of LSTM, GRU and RNN layers, serial, because each step depends on the state
after the last one. Directions and a batch's sequences run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.either import either
from neocpu.schedules.recurrent.cells import Cell, Task, Unit, cells
from neocpu.schedules.recurrent.workload import LANES, Activation, Product, RecurrentWorkload
from neocpu.schedules.tir.builder import build_kernel, for_vectors, span, splat, task_loop
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.traced_sizes import for_any_size


def lower_recurrent(workload: RecurrentWorkload) -> Any:
    """Return the scheduled ``PrimFunc`` of a recurrent layer, on `RecurrentWorkload.parameters`.

    A length beyond the tensor counts as the tensor's, one below zero as zero; the last state of a
    sequence of no step is zeros, as in ONNX Runtime::

        parallel direction · tile of a few sequences
          h, c = initial state
          for step
            for block of hidden units              # parallel, if all of this is one large task
              for panel of the weights of its gates
                acc[rows, panel] = 0                                  # registers
                for k: acc[row, :] += broadcast(h[row, k]) * weights[panel, k, :]
              for row
                if the sequence goes on
                  new h, c = cell(projected + acc, h, c)
            for row: y[its time, row] = h, or zeros
          y_h, y_c = h, c

    A GRU that resets the state before its candidate's product has two such loops over blocks.
    """
    w = workload
    work = w.steps * w.batch * w.directions * w.columns * w.hidden // LANES

    def body(*arguments: Any) -> None:
        names = (name for name, _, _ in w.parameters)
        buffers = dict(zip(names, arguments, strict=True))
        tiles = w.tasks // w.directions
        with task_loop(w.tasks, work) as number:
            direction, first = T.Bind(number // tiles), T.Bind(number % tiles * w.rows)
            _emit_task(
                Task(workload=w, buffers=buffers, direction=direction, first=first, **_allocated(w))
            )

    return vectorize_calls(build_kernel(w.parameters, body))


def _allocated(w: RecurrentWorkload) -> Mapping[str, Any]:
    def buffer(*shape: int) -> Any:
        return T.alloc_buffer((*shape, w.rows, w.units), "float32", layout=None)

    resets_first = len(w.products) > 1
    return {
        "h": buffer(2),
        "c": buffer() if w.cell == "LSTM" else None,
        "update": buffer() if resets_first else None,
        "reset": buffer() if resets_first else None,
    }


def _emit_task(task: Task) -> None:
    w = task.workload
    with T.serial(w.rows) as row:
        _begin(task, row)
    with T.serial(w.steps) as step:
        for product, cell in zip(w.products, cells(w), strict=True):
            _emit_blocks(task, product, cell, step)
        with T.serial(w.rows) as row:
            _write(task, row, step)
    with T.serial(w.rows) as row:
        _end(task, row)


def _emit_blocks(task: Task, product: Product, cell: Cell, step: Any) -> None:
    """Emit a product of a step, and the cells that use it.

    Every other step goes from the last block to the first, so that weights still in the caches are
    read before they are replaced. Threads that share them keep their own parts.
    """
    w = task.workload
    blocks = w.packed_shape(product)[1]
    with T.parallel(blocks) if w.shares_steps else T.serial(blocks) as number:
        block = number
        if not w.shares_steps:
            block = T.Bind(T.Select(step % 2 == 0, number, blocks - 1 - number))
        sums = _sums(task, product, block, step)
        with T.serial(w.rows) as row:
            _advance(task, product, cell, (block, row, step), sums)


def _advance(task: Task, product: Product, cell: Cell, at: tuple[Any, Any, Any], sums: Any) -> None:
    """Emit the units of a block of a row; those of a sequence that has ended stay unchanged."""
    block, row, step = at
    place, goes_on = _place(task, _sequence(task, row), step)

    def units(v: int, lane: Any) -> Unit:
        own = {product.first + gate: sums[row, gate, v, lane] for gate in range(product.gates)}
        number = (block * product.vectors + v) * LANES + lane
        return Unit(task=task, old=step % 2, row=row, place=place, number=number, sums=own)

    each = partial(_each_direction, task, product, units)
    either(goes_on, lambda: each(cell), lambda: each(lambda unit, _: unit.write(unit.state)))


def _sums(task: Task, product: Product, block: Any, step: Any) -> Any:
    """Emit the product of a state and the weights of a block: ``(rows, gate, vector, lane)``."""
    w = task.workload
    shape = (w.rows, product.gates, product.vectors, LANES)
    sums = T.alloc_buffer(shape, "float32", scope="local", layout=None)
    weights, every = task.buffers[product.name], span(0, LANES)
    for panel in range(product.gates // product.panel_gates):
        gates = range(panel * product.panel_gates, (panel + 1) * product.panel_gates)
        columns = [(g, v) for g in gates for v in range(product.vectors)]
        tile = [(row, *column) for row in range(w.rows) for column in columns]
        for place in tile:
            T.buffer_store(sums, splat(tirx.const(0, "float32"), LANES), [*place, every])
        with T.serial(w.hidden) as k:
            loaded = [
                T.Bind(weights[task.direction, block, panel, k, span(i * LANES, LANES)])
                for i in range(len(columns))
            ]
            for row in range(w.rows):
                state = task.h[step % 2, row, k] if product.first == 0 else task.reset[row, k]
                factor = T.Bind(splat(state, LANES))
                for column, weight in zip(columns, loaded, strict=True):
                    total = sums[row, *column, every] + factor * weight
                    T.buffer_store(sums, total, [row, *column, every])
    return sums


def _each_direction(
    task: Task, product: Product, units: Callable[[int, Any], Unit], cell: Cell
) -> None:
    """Emit a cell for the units of a block, separately for directions with other activations."""

    def emit(activations: Sequence[Activation]) -> None:
        for v in range(product.vectors):
            with T.vectorized(LANES) as lane:
                cell(units(v, lane), activations)

    kinds = task.workload.activations
    is_first = task.direction == 0 if len(set(kinds)) > 1 else None
    either(is_first, lambda: emit(kinds[0]), lambda: emit(kinds[1]))


def _sequence(task: Task, row: Any) -> Any:
    """Return the sequence of a row; the last task may compute the last sequence twice."""
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


def _place(task: Task, sequence: Any, step: Any) -> tuple[tuple[Any, Any], Any]:
    """Return the indices of a sequence and its time, and whether it goes on (None if all do)."""
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


def _begin(task: Task, row: Any) -> None:
    w, sequence = task.workload, _sequence(task, row)
    h, c = (task.h, [0, row]), (task.c, [row])
    for buffer, lead in (h, c) if task.c is not None else (h,):
        with T.serial(w.units // LANES) as i:
            zero = splat(tirx.const(0, "float32"), LANES)
            T.buffer_store(buffer, zero, [*lead, span(i * LANES, LANES)])
    length = _length(task, sequence)
    for name, state in (("initial_h", h), ("initial_c", c)):
        if name in w.given:
            source = (task.buffers[name], _of_state(task, sequence))
            either(None if length is None else length > 0, partial(_copy, w, source, state))


def _write(task: Task, row: Any, step: Any) -> None:
    w = task.workload
    if "y" not in w.written:
        return
    place, goes_on = _place(task, _sequence(task, row), step)
    output = (task.buffers["y"], [*place, task.direction])
    state = (task.h, [1 - step % 2, row])
    either(goes_on, partial(_copy, w, state, output), partial(_copy, w, None, output))


def _end(task: Task, row: Any) -> None:
    w, sequence = task.workload, _sequence(task, row)
    last: Any = w.steps % 2
    if for_any_size():
        last = tirx.FloorMod(tirx.const(w.steps, "int32"), tirx.const(2, "int32"))
    for name, state in (("y_h", (task.h, [last, row])), ("y_c", (task.c, [row]))):
        if name in w.written:
            _copy(w, state, (task.buffers[name], _of_state(task, sequence)))


def _copy(w: RecurrentWorkload, source: Any, target: tuple[Any, list[Any]]) -> None:
    """Emit a copy of all hidden units between places; None stands for zeros."""

    def copy(unit: Any, lanes: int) -> None:
        with T.vectorized(lanes) as lane:
            value = tirx.const(0, "float32")
            if source is not None:
                value = source[0][(*source[1], unit + lane)]
            T.buffer_store(target[0], value, [*target[1], unit + lane])

    for_vectors(w.hidden, LANES, copy)
