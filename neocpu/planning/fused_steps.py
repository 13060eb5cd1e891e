"""The elementwise operators that a convolution or a dense layer takes into its kernel.

The chain after the operator is followed as long as each value has a single reader, and this reader
is a step that `neocpu.schedules.operators.epilogue` knows. A residual add is such a step: its other
operand is read while the accumulators are stored. A 1x1 convolution also applies the chain before
it while it packs its input: DenseNet's batch normalisation and ReLU, or the gate of squeeze and
excitation. Its values have single readers too, so that nothing is computed twice, and operators in
the producer's epilogue stay there.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from tvm.ir import Var

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, dtype_of, is_op, op_name, static_shape
from neocpu.planning.quantised.grids import Grid, grid_of, quantised_by
from neocpu.planning.quantised.quantised_steps import Step
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL, STEP_KINDS, TENSOR, find_kind
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

# A chain longer than this is rare, and the registers its operands take are not free.
MAX_STEPS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """A matched chain: its steps, and its variables, the operator's own first."""

    steps: tuple[Step, ...]
    chain: tuple[Var, ...]


def match_epilogue(
    start: Var,
    shape: tuple[int, ...],
    vector_shape: tuple[int, ...],
    readers: dict[Var, list[Var]],
    definitions: dict[Var, Expr],
    claimed: Container[Var],
    result: Container[Var],
) -> Epilogue:
    """Follow the elementwise chain after a convolution or dense layer.

    `start` is the operator's own result, of ``shape``; a constant per channel broadcasts with it in
    ``vector_shape``. `claimed` holds the variables of other epilogues. `result` holds those that
    the function returns: they end a chain.
    """
    steps: list[Step] = []
    chain = [start]
    while len(steps) < MAX_STEPS and chain[-1] not in result:
        users = readers.get(chain[-1], [])
        if len(users) != 1 or users[0] in claimed:
            break
        if (rounded := _match_grid(users[0], readers, definitions, claimed, result)) is not None:
            grid, last = rounded
            steps.append((grid, None))
            chain += [users[0], last]
            continue
        matched = match_step(definitions[users[0]], chain[-1], shape, vector_shape)
        if matched is None:
            break
        steps.append(matched)
        chain.append(users[0])
    return Epilogue(tuple(steps), tuple(chain))


def _match_grid(
    stored: Var,
    readers: dict[Var, list[Var]],
    definitions: dict[Var, Expr],
    claimed: Container[Var],
    result: Container[Var],
) -> tuple[Grid, Var] | None:
    """Return the grid of a quantisation and the variable of its inverse, its only reader."""
    grid, users = grid_of(definitions[stored]), readers.get(stored, [])
    if grid is None or stored in result or len(users) != 1 or users[0] in claimed:
        return None
    inverse = quantised_by(definitions[users[0]], definitions)
    return None if inverse is None else (grid, users[0])


def match_step(
    call: Expr, value: Var, shape: tuple[int, ...], vector_shape: tuple[int, ...]
) -> tuple[EpilogueOp, Any | None] | None:
    """Return ``call`` on ``value`` as an epilogue step and its operand; None if it is no step."""
    name = op_name(call)
    if name is None or static_shape(call) != shape:
        return None
    if (kind := find_kind(name, NO_OPERAND)) is not None:
        return EpilogueOp(kind, STEP_KINDS[kind].arguments(call)), None
    if len(call.args) != 2:
        return None
    other = call.args[1] if call.args[0].same_as(value) else call.args[0]
    constant = constant_value(other)
    if constant is not None:
        kind = find_kind(name, PER_CHANNEL)
        fits = _is_per_channel(call, other, constant, vector_shape)
        return (EpilogueOp(kind), constant.reshape(-1)) if kind is not None and fits else None
    kind = find_kind(name, TENSOR)
    fits = isinstance(other, Var) and not other.same_as(value) and static_shape(other) == shape
    return (EpilogueOp(kind), other) if kind is not None and fits else None


def _is_per_channel(call: Expr, other: Expr, constant: Any, vector_shape: tuple[int, ...]) -> bool:
    if is_op(call, "relax.nn.prelu"):  # its slopes are a vector along an axis that it names
        along_channels = vector_shape == (1, constant.size, 1, 1) and int(call.attrs.axis) == 1
        return along_channels and bool(other.same_as(call.args[1]))
    return bool(constant.shape == vector_shape and constant.dtype == dtype_of(call))


# The kernel computes with whole vectors of channels; the widest vectors have sixteen.
MIN_CHANNELS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Prologue:
    """A matched chain: its source, its steps, the operands of these, and its variables."""

    source: Any
    steps: tuple[EpilogueOp, ...]
    operands: tuple[Any, ...]
    chain: tuple[Var, ...]


def match_prologue(
    source: Expr,
    workload: Conv2dWorkload,
    readers: dict[Var, list[Var]],
    definitions: dict[Var, Expr],
    taken: Container[Var],
) -> Prologue:
    """Follow the elementwise chain before a convolution; it may be empty. `source` is the
    convolution's data. `taken` has variables that epilogues have taken, and the function's results,
    which must exist.
    """
    steps: list[EpilogueOp] = []
    operands: list[Any] = []
    chain: list[Var] = []
    while _is_pointwise(workload) and len(steps) < MAX_STEPS and isinstance(source, Var):
        if source in taken or source not in definitions or len(readers[source]) != 1:
            break
        matched = _match(definitions[source], workload.input_shape)
        if matched is None:
            break
        value, step, operand = matched
        steps.insert(0, step)
        if operand is not None:
            operands.insert(0, operand)
        chain.append(source)
        source = value
    return Prologue(source, tuple(steps), tuple(operands), tuple(chain))


def _is_pointwise(workload: Conv2dWorkload) -> bool:
    channels = min(workload.in_channels, workload.out_channels)
    whole = workload.groups == 1 and workload.frames is None
    return workload.kernel == (1, 1) and whole and channels >= MIN_CHANNELS


def _match(
    call: Expr, shape: tuple[int, int, int, int]
) -> tuple[Var, EpilogueOp, Any | None] | None:
    """Return the value that ``call`` changes, the step that it is, and the step's operand."""
    gate = (*shape[:2], 1, 1)
    values = [arg for arg in getattr(call, "args", ()) if isinstance(arg, Var)]
    if is_op(call, "relax.multiply") and len(values) == 2:
        for value, other in (values, reversed(values)):
            if static_shape(value) == shape and static_shape(other) == gate:
                return value, EpilogueOp("gate"), other
        return None
    if len(values) != 1:
        return None
    matched = match_step(call, values[0], shape, (1, shape[1], 1, 1))
    if matched is None or not STEP_KINDS[matched[0].kind].before:
        return None
    return values[0], *matched
