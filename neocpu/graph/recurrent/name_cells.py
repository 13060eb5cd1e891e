"""Find layers in the cells of LSTM and GRU that are written out step by step.

::

    h1, c1 = cell(x[:, 0], h0, c0)
    h2, c2 = cell(x[:, 1], h1, c1)   ->  h = lstm(x, h0, c0)
    h3, c3 = cell(x[:, 2], h2, c2)

A loop over time in PyTorch, or Keras with ``unroll``, is exported as some twenty operators for each
step. A layer is one product of all inputs, and one kernel that keeps the state in L1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Var

from neocpu.graph.recurrent.cells import Cell, bound, cell_of
from neocpu.graph.redundancy.axis_parts import Step, step_of
from neocpu.graph.rule import FunctionRule, Kind
from neocpu.ir.constants import Array, constant_value, make_const
from neocpu.ir.expressions import Expr, known_shape, static_shape
from neocpu.ir.recurrent_calls import layer, workload_of
from neocpu.ir.rewriting import Rewrite, rewrite_function
from neocpu.ir.uses import consumers, definitions, used_vars


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """The weights and biases of a cell's gates."""

    inputs: tuple[Array, ...]  # (width, hidden)
    states: tuple[Array, ...]  # (width, hidden); a state of zeros has none
    biases: tuple[Array, ...]  # (hidden,); a GRU's last one is of the state's part of the candidate

    def is_like(self, other: _Weights) -> bool:
        """Whether these are the same weights, except for rounding in biases that were added up."""
        pairs = [*zip(self.inputs, other.inputs, strict=True)]
        if self.states:
            pairs += zip(self.states, other.states, strict=True)
        return all(np.array_equal(one, two) for one, two in pairs) and all(
            np.allclose(one, two, 1e-5, 1e-6)
            for one, two in zip(self.biases, other.biases, strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Layer:
    """Cells that follow each other, and read the steps of one tensor."""

    cells: tuple[Cell, ...]
    source: Var  # (batch, time, width), or with time first
    axis: int
    reverse: bool  # whether the first cell reads the last step
    weights: _Weights
    initial: Mapping[str, Expr]  # states before the first cell that are not zeros


def _name_cells(func: relax.Function) -> relax.Function:
    """Find layers, and the layers above them, whose steps are the states of others."""
    while not (found := _named_once(func)).same_as(func):
        func = found
    return func


def _named_once(func: relax.Function) -> relax.Function:
    known = definitions(func)
    cells = {c.h: c for var, value in known.items() if (c := cell_of(var, value, known))}
    if len(cells) < 2:
        return func
    readers, results = consumers(func), frozenset(used_vars(func.body.body))
    layers = [
        found
        for chain in _chains(cells)
        if (found := _layer_of(chain, known)) is not None and _is_closed(found, readers, results)
    ]
    places = {cell.h: (each, i) for each in layers for i, cell in enumerate(each.cells)}
    made: dict[int, Expr] = {}

    def apply(expr: Expr, rewrite: Rewrite) -> Expr | None:
        found = places.pop(rewrite.current, None) if rewrite.current is not None else None
        if found is None:
            return None
        each, number = found
        if id(each) not in made:
            made[id(each)] = rewrite.emit(_emitted(each, rewrite))
        step = len(each.cells) - 1 - number if each.reverse else number
        state = relax.op.strided_slice(made[id(each)], [each.axis], [step], [step + 1])
        return relax.op.reshape(rewrite.emit(state), static_shape(expr))

    return rewrite_function(func, apply) if layers else func


def _chains(cells: Mapping[Var, Cell]) -> Iterator[list[Cell]]:
    by_state = {cell.c if cell.kind == "LSTM" else cell.h: cell for cell in cells.values()}
    follows = {id(by_state[c.before]): c for c in cells.values() if c.before in by_state}
    for cell in cells.values():
        if cell.before not in by_state:
            chain = [cell]
            while id(chain[-1]) in follows:
                chain.append(follows[id(chain[-1])])
            if len(chain) > 1:
                yield chain


def _layer_of(chain: Sequence[Cell], known: Mapping[Var, Expr]) -> _Layer | None:
    found = [_step_and_weights(cell, known) for cell in chain]
    parts = [each for each in found if each is not None]
    if len(parts) < len(found):
        return None
    steps = [step for step, _, _ in parts]
    *_, (first, weights, _) = parts
    shape, indices = static_shape(first.source), [step.index for step in steps]
    if shape is None or len(shape) != 3 or first.axis > 1 or shape[first.axis] != len(steps):
        return None
    if any(s.axis != first.axis or not s.source.same_as(first.source) for s in steps):
        return None
    rising = list(range(len(steps)))
    if indices not in (rising, rising[::-1]):
        return None
    for number, (_, own, state) in enumerate(parts):
        if number and (state is None or not state.same_as(chain[number - 1].h)):
            return None
        if not own.is_like(weights):
            return None
    initial = _initial(chain[0], parts[0][2])
    size = shape[1 - first.axis] * weights.inputs[0].shape[1]
    states = [*(cell.h for cell in chain), *(initial or {}).values()]
    if initial is None or any(math.prod(static_shape(each) or ()) != size for each in states):
        return None
    return _Layer(
        cells=tuple(chain),
        source=first.source,
        axis=first.axis,
        reverse=indices != rising,
        weights=weights,
        initial=initial,
    )


def _step_and_weights(
    cell: Cell, known: Mapping[Var, Expr]
) -> tuple[Step, _Weights, Var | None] | None:
    rows = list(cell.gates[0].terms)
    found = [(row, step_of(known.get(row), partial(bound, known=known))) for row in rows]
    inputs = [(row, step) for row, step in found if step is not None]
    others = [row for row, step in found if step is None]
    if len(inputs) != 1 or len(others) > 1:
        return None
    ((row, step),) = inputs
    state = others[0] if others else None
    for number, gate in enumerate(cell.gates):
        wanted = {row} if state is None else {row, state}
        if cell.kind == "GRU" and number > 1:  # a candidate has separate parts for input and state
            wanted = {row} if number == 2 else wanted - {row}
        if set(gate.terms) != wanted:
            return None
    return step, _weights(cell, row, state), state


def _weights(cell: Cell, row: Var, state: Var | None) -> _Weights:
    *most, last = cell.gates
    gates = most if cell.kind == "GRU" else cell.gates
    of_state = [*most[:-1], last] if cell.kind == "GRU" else cell.gates
    return _Weights(
        tuple(gate.terms[row] for gate in gates),
        () if state is None else tuple(gate.terms[state] for gate in of_state),
        tuple(gate.bias for gate in cell.gates),
    )


def _initial(cell: Cell, state: Var | None) -> Mapping[str, Expr] | None:
    """Return the states before the first cell that are not zeros; None if they do not fit."""
    before = constant_value(cell.before)
    is_zero = before is not None and not before.any()
    if cell.kind == "GRU":
        if state is None:
            return {} if is_zero else None
        return {"initial_h": state} if cell.before.same_as(state) else None
    found = {} if state is None else {"initial_h": state}
    return found if is_zero else {**found, "initial_c": cell.before}


def _is_closed(
    found: _Layer, readers: Mapping[Var, Sequence[Var]], results: frozenset[Var]
) -> bool:
    last = len(found.cells) - 1
    return all(
        cell.c is None
        or (cell.c not in results and len(readers[cell.c]) == (1 if number == last else 2))
        for number, cell in enumerate(found.cells)
    )


def _emitted(found: _Layer, rewrite: Rewrite) -> Expr:
    """Return the states of all steps, ``(batch, time, hidden)`` or with time first."""
    shape, weights = known_shape(found.source), found.weights
    kind, batch_first = found.cells[0].kind, found.axis == 1
    steps, batch = len(found.cells), shape[1 - found.axis]
    hidden = weights.inputs[0].shape[1]
    workload = workload_of(
        kind,
        steps,
        batch,
        hidden,
        reverse=found.reverse,
        reset_after=kind == "GRU",
        batch_first=batch_first,
        given=tuple(found.initial),
    )
    of_input, recurrent = [*weights.biases], [np.zeros(hidden)] * len(weights.states)
    if kind == "GRU":
        recurrent[-1] = of_input.pop()
    inputs = {
        "x": found.source,
        "w": _stacked([gate.T for gate in weights.inputs]),
        "r": _stacked([gate.T for gate in weights.states]),
        "bias": _stacked([*of_input, *recurrent]),
    }
    for name, state in found.initial.items():
        inputs[name] = rewrite.emit(relax.op.reshape(state, workload.state_shape))
    made = rewrite.emit(layer(rewrite.emit, workload, inputs))
    return relax.op.reshape(made, workload.sequence_shape(hidden))


def _stacked(parts: Sequence[Array]) -> Expr:
    return make_const(np.concatenate(parts).astype(np.float32)[None])


NAME_CELLS: Final = FunctionRule(
    "name-cells",
    Kind.REPLACEMENT,
    "Cells of LSTM and GRU that are written out step by step become a layer.",
    rewrite=_name_cells,
)
