"""The elementwise operators that a 1x1 convolution applies to its input while it packs it.

Examples are DenseNet's batch normalisation and ReLU before its 1x1 convolutions, and the gate of
squeeze and excitation. The chain before the convolution is followed as long as each value has a
single reader, so that nothing is computed twice. Operators in the producer's epilogue stay there.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from tvm.ir import Var

from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.planning.epilogues import MAX_STEPS, match_step
from neocpu.schedules.vocabulary.steps import STEP_KINDS
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

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
