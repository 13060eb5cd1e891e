"""The computation of a hidden unit at a step, for each kind of cell, from its gates' sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.recurrent.workload import Activation, RecurrentWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The state of a task: one direction, for the rows, a few sequences from `first` on."""

    workload: RecurrentWorkload
    buffers: Mapping[str, Any]
    direction: Any
    first: Any
    h: Any  # the state, ``(2, rows, units)``: after even steps and after odd ones
    c: Any  # the cell state of an LSTM, ``(rows, units)``
    update: Any  # a GRU's update gate, ``(rows, units)``
    reset: Any  # and the factor of its candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A hidden unit of a row at a step."""

    task: Task
    old: Any  # the index of the last step's `state` in `Task.h`
    row: Any
    place: tuple[Any, Any]  # indices of the sequence and its time, in the order of tensors' axes
    number: Any
    sums: Mapping[int, Any]  # products of the last state and the recurrent weights, by gate

    @property
    def at(self) -> list[Any]:
        return [self.row, self.number]

    @property
    def state(self) -> Any:
        return self.task.h[self.old, self.row, self.number]

    def write(self, state: Any) -> None:
        T.buffer_store(self.task.h, state, [1 - self.old, *self.at])

    def input(self, gate: int) -> Any:
        w = self.task.workload
        column = self.task.direction * w.columns + gate * w.units + self.number
        return self.task.buffers["projected"][(*self.place, column)]

    def gate(self, gate: int) -> Any:
        """Return the argument of a gate's activation."""
        return self.clipped(self.input(gate) + self.sums[gate])

    def peephole_gate(self, gate: int, number: int, cell: Any) -> Any:
        if "peepholes" not in self.task.workload.given:
            return self.gate(gate)
        weight = self.task.buffers["peepholes"][self.task.direction, number, self.number]
        return self.clipped(self.input(gate) + self.sums[gate] + weight * cell)

    def clipped(self, value: Any) -> Any:
        clip = self.task.workload.clip
        return value if clip is None else T.max(_f(-clip), T.min(_f(clip), value))


Cell = Callable[[Unit, Sequence[Activation]], None]


def _lstm(unit: Unit, activations: Sequence[Activation]) -> None:
    f, g, h = activations
    c = unit.task.c
    old = c[unit.row, unit.number]
    write = f(unit.peephole_gate(0, 0, old))
    if unit.task.workload.coupled:
        write = T.Bind(write)
        forget = _f(1) - write
    else:
        forget = f(unit.peephole_gate(2, 2, old))
    T.buffer_store(c, forget * old + write * g(unit.gate(3)), unit.at)
    new = c[unit.row, unit.number]
    unit.write(f(unit.peephole_gate(1, 1, new)) * h(new))


def _reset(unit: Unit, activations: Sequence[Activation]) -> None:
    """Emit a GRU's update gate, and the factor of its candidate: the state times the reset gate."""
    f, task = activations[0], unit.task
    T.buffer_store(task.update, f(unit.gate(0)), unit.at)
    T.buffer_store(task.reset, f(unit.gate(1)) * unit.state, unit.at)


def _candidate(unit: Unit, activations: Sequence[Activation]) -> None:
    update = unit.task.update[unit.row, unit.number]
    unit.write((_f(1) - update) * activations[1](unit.gate(2)) + update * unit.state)


def _gru_reset_after(unit: Unit, activations: Sequence[Activation]) -> None:
    f, g = activations
    bias = unit.task.buffers["candidate_bias"][unit.task.direction, unit.number]
    candidate = unit.clipped(unit.input(2) + f(unit.gate(1)) * (unit.sums[2] + bias))
    update = T.Bind(f(unit.gate(0)))
    unit.write((_f(1) - update) * g(candidate) + update * unit.state)


def _rnn(unit: Unit, activations: Sequence[Activation]) -> None:
    unit.write(activations[0](unit.gate(0)))


def cells(workload: RecurrentWorkload) -> tuple[Cell, ...]:
    """Return the emitters of a unit after each product of `RecurrentWorkload.products`."""
    if workload.cell == "GRU":
        return (_gru_reset_after,) if workload.reset_after else (_reset, _candidate)
    return (_CELLS[workload.cell],)


_CELLS: Final[Mapping[str, Cell]] = {"LSTM": _lstm, "RNN": _rnn}


def _f(value: float) -> Any:
    return tirx.const(value, "float32")
