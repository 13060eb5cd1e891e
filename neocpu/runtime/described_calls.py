"""The calls of a model's kernels: their operators, and the bytes they read and write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from neocpu.plan.operators import PlannedOperator
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.header_parts import Placement


@dataclass(frozen=True, slots=True)
class DescribedCall:
    """A call of a kernel."""

    name: str  # of the plan's operator, or of the kernel where the plan has none
    kernel: str
    weights: int  # bytes of the weights it reads
    others: int  # bytes of the other tensors it reads or writes


def describe_calls(header: ArtifactHeader) -> tuple[DescribedCall, ...]:
    """Return the calls of a model in order; for a set of shapes, those of each signature."""
    return tuple(call for each in header.each for call in _calls_of(each))


def _calls_of(header: ArtifactHeader) -> Iterator[DescribedCall]:
    first, end = len(header.inputs), len(header.inputs) + len(header.weights)
    inputs = (Placement(0, spec.dtype, spec.shape) for spec in header.inputs)
    slices = (Placement(0, one.dtype, one.shape) for one in header.slices)
    places = (*inputs, *header.weights, *header.activations, *slices)
    sizes = [one.end - one.offset for one in places]
    if header.sized is not None:
        sizes += [0] * len(header.sized.extents)  # their tensors have no data
    plan = header.known_plan
    known = () if plan is None else plan.ops
    operators = operators_in_turn(known, (kernel for kernel, _ in header.calls))
    for (kernel, tensors), operator in zip(header.calls, operators, strict=True):
        yield DescribedCall(
            kernel if operator is None else operator.name,
            kernel,
            sum(sizes[tensor] for tensor in tensors if first <= tensor < end),
            sum(sizes[tensor] for tensor in tensors if not first <= tensor < end),
        )


def operators_in_turn(
    operators: Sequence[PlannedOperator], kernels: Iterable[str]
) -> Iterator[PlannedOperator | None]:
    """Yield the plan's operator for each call; None where the plan has none.

    Equal operators share a kernel, and are called in the plan's order.
    """
    waiting: dict[str | None, list[PlannedOperator]] = defaultdict(list)
    for operator in operators:
        waiting[operator.kernel].append(operator)
    for kernel in kernels:
        known = waiting.get(kernel, [])
        yield known[0] if known else None
        if len(known) > 1:
            del known[0]
