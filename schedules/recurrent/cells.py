"""What one hidden unit of each kind of cell computes at a step, given the sums of its gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.recurrent.activations import Activation
from neocpu.schedules.recurrent.workload import RecurrentWorkload


@dataclass(frozen=True, slots=True)
class Task:
    """What a task computes with: a direction of the layer, for a few sequences, its rows.

    Attributes
    ----------
    workload : RecurrentWorkload
    buffers : mapping of str to buffer
        The kernel's parameters.
    direction : expression
    first : expression
        The first of its sequences.
    h, c, reset : buffer
        ``(rows, units)``: the state, an LSTM's cell state, and what a GRU's candidate multiplies.
    sums : buffer
        ``(rows, columns)``: the products of the state and the recurrent weights.
    """

    workload: RecurrentWorkload
    buffers: Mapping[str, Any]
    direction: Any
    first: Any
    h: Any
    c: Any
    reset: Any
    sums: Any


@dataclass(frozen=True, slots=True)
class Unit:
    """A hidden unit at a step of a row.

    Attributes
    ----------
    task : Task
    row : expression
    place : tuple of expression
        Indices of the sequence and its time, in the order that tensors have them.
    number : expression
        Which unit.
    """

    task: Task
    row: Any
    place: tuple[Any, Any]
    number: Any

    @property
    def at(self) -> list[Any]:
        """Index into states."""
        return [self.row, self.number]

    def input(self, gate: int) -> Any:
        """Return the input's share of a gate."""
        w = self.task.workload
        column = self.task.direction * w.columns + gate * w.units + self.number
        return self.task.buffers["projected"][(*self.place, column)]

    def product(self, gate: int) -> Any:
        """Return the last state's share of a gate."""
        return self.task.sums[self.row, gate * self.task.workload.units + self.number]

    def gate(self, gate: int) -> Any:
        """Return what a gate's activation reads."""
        return self.clipped(self.input(gate) + self.product(gate))

    def peephole_gate(self, gate: int, number: int, cell: Any) -> Any:
        """Return what a gate's activation reads if the gate may look at a cell state."""
        if "peepholes" not in self.task.workload.given:
            return self.gate(gate)
        weight = self.task.buffers["peepholes"][self.task.direction, number, self.number]
        return self.clipped(self.input(gate) + self.product(gate) + weight * cell)

    def clipped(self, value: Any) -> Any:
        """Return a value within the bound that there may be."""
        clip = self.task.workload.clip
        return value if clip is None else T.max(_f(-clip), T.min(_f(clip), value))

    def kept(self, value: Any) -> Any:
        """Return a value that is needed twice: written where the sum of the first gate was."""
        T.buffer_store(self.task.sums, value, self.at)
        return self.task.sums[self.row, self.number]


Cell = Callable[[Unit, Sequence[Activation]], None]


def _lstm(unit: Unit, activations: Sequence[Activation]) -> None:
    f, g, h = activations
    c = unit.task.c
    old = c[unit.row, unit.number]
    write = f(unit.peephole_gate(0, 0, old))
    if unit.task.workload.coupled:
        write = unit.kept(write)
        forget = _f(1) - write
    else:
        forget = f(unit.peephole_gate(2, 2, old))
    T.buffer_store(c, forget * old + write * g(unit.gate(3)), unit.at)
    new = c[unit.row, unit.number]
    T.buffer_store(unit.task.h, f(unit.peephole_gate(1, 1, new)) * h(new), unit.at)


def _gru(unit: Unit, activations: Sequence[Activation]) -> None:
    f, g = activations
    task = unit.task
    if task.workload.reset_after:
        bias = task.buffers["candidate_bias"][task.direction, unit.number]
        reset = f(unit.gate(1))
        candidate = unit.clipped(unit.input(2) + reset * (unit.product(2) + bias))
    else:
        candidate = unit.gate(2)
    update = unit.kept(f(unit.gate(0)))
    old = task.h[unit.row, unit.number]
    T.buffer_store(task.h, (_f(1) - update) * g(candidate) + update * old, unit.at)


def _rnn(unit: Unit, activations: Sequence[Activation]) -> None:
    T.buffer_store(unit.task.h, activations[0](unit.gate(0)), unit.at)


def reset_state(unit: Unit, activations: Sequence[Activation]) -> None:
    """Emit what a GRU's candidate multiplies: the state, by the reset gate."""
    value = activations[0](unit.gate(1)) * unit.task.h[unit.row, unit.number]
    T.buffer_store(unit.task.reset, value, unit.at)


CELLS: Final[Mapping[str, Cell]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
"""Each emits the new state of a unit, where the old one was."""


def _f(value: float) -> Any:
    return tirx.const(value, "float32")
