"""What the calls of a model's kernels are: their operators, and the bytes they take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.header_parts import Placement


@dataclass(frozen=True, slots=True)
class DescribedCall:
    """A call of a kernel.

    Attributes
    ----------
    name : str
        Of the plan's operator, or the kernel's where the plan has none.
    kernel : str
        Equal operators share one.
    weights, others : int
        Bytes of the weights it reads, and of the other tensors it reads or writes.
    """

    name: str
    kernel: str
    weights: int
    others: int


def describe_calls(header: ArtifactHeader) -> tuple[DescribedCall, ...]:
    """Return the calls of a model, in turn: of a set of shapes, those of each signature."""
    return tuple(call for each in header.each for call in _calls_of(each))


def _calls_of(header: ArtifactHeader) -> Iterator[DescribedCall]:
    first, end = len(header.inputs), len(header.inputs) + len(header.weights)
    inputs = (Placement(0, spec.dtype, spec.shape) for spec in header.inputs)
    slices = (Placement(0, one.dtype, one.shape) for one in header.slices)
    places = (*inputs, *header.weights, *header.activations, *slices)
    sizes = [one.end - one.offset for one in places]
    operators = operators_in_turn(header.plan, (kernel for kernel, _ in header.calls))
    for (kernel, tensors), operator in zip(header.calls, operators, strict=True):
        yield DescribedCall(
            str(operator.get("name", kernel)),
            kernel,
            sum(sizes[tensor] for tensor in tensors if first <= tensor < end),
            sum(sizes[tensor] for tensor in tensors if not first <= tensor < end),
        )


def operators_in_turn(
    plan: Mapping[str, Any], kernels: Iterable[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield the plan's operator of each call; an empty one where the plan has none.

    Equal operators share a kernel, and are called in the plan's order.

    Parameters
    ----------
    plan : mapping
        What ``neocpu explain --json`` prints; of a header, which anybody may have written.
    kernels : iterable of str
        In calling order.
    """
    waiting: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    operators = plan.get("ops")
    for operator in operators if isinstance(operators, list) else ():
        if isinstance(operator, Mapping):
            waiting[str(operator.get("kernel"))].append(operator)
    for kernel in kernels:
        known = waiting.get(kernel, [])
        yield known[0] if known else {}
        if len(known) > 1:
            del known[0]
