"""Matching the steps of one artifact with those of another one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neocpu.plan.changes.steps import Step
from neocpu.plan.kernels import OTHER, RUNTIME, TRANSFORM

UNPLANNED: Final = (TRANSFORM, OTHER, RUNTIME)
"""Kinds of steps that do not identify a model."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A step of one artifact and its counterpart in the other; None where there is none."""

    before: Step | None
    after: Step | None
    # The thing that they have in common: ``tensor``, ``workload``, ``operator`` (the workload
    # without fused operators) or ``name``; empty if there is no counterpart.
    by: str = ""


def pair_up(before: Sequence[Step], after: Sequence[Step]) -> tuple[Pair, ...]:
    """Return all steps of both, in the order of ``after``; removed steps keep their old places.

    Steps that make the same tensor of the model are paired first, then steps that compute the
    same, in order.
    """
    rules: tuple[tuple[str, Callable[[Step], Iterable[Hashable]]], ...] = (
        ("tensor", lambda step: step.values[::-1]),
        ("workload", lambda step: [(step.kind, step.workload)] if step.workload else []),
        ("operator", lambda step: [(step.kind, bare(step.workload))] if step.workload else []),
        ("name", lambda step: [(step.kind, step.name)]),
    )
    partner: dict[int, tuple[int, str]] = {}
    taken: set[int] = set()
    for by, keys in rules:
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for place, step in enumerate(after):
            if place not in taken:
                for key in keys(step):
                    waiting[key].append(place)
        for place, step in enumerate(before):
            if place in partner:
                continue
            free = (i for key in keys(step) for i in waiting[key] if i not in taken)
            found = next((i for i in free if _may_pair(step, after[i])), None)
            if found is not None:
                partner[place] = found, by
                taken.add(found)
    return _in_order(before, after, partner)


def bare(workload: str) -> str:
    """Return a workload without fused operators and without element types.

    >>> bare("relu+ 1x64x56x56 -> 64, 3x3 /2 +bias_add +relu")
    '1x64x56x56 -> 64, 3x3 /2'
    """
    size, *more = workload.split(", ")
    # Convolutions have their window next. Element types follow.
    kept = ", ".join([size, *(text for text in more[:1] if text[:1].isdigit())])
    return " ".join(word for word in kept.split() if not re.match(r"\+|\S*\+$", word))


def planned(steps: Iterable[Step]) -> int:
    """Return the number of steps that a plan has operators for."""
    return sum(step.kind not in UNPLANNED for step in steps)


def _may_pair(one: Step, other: Step) -> bool:
    """Whether both compute or neither does: a transform may make the same tensor as an operator."""
    return (one.kind in (TRANSFORM, RUNTIME)) == (other.kind in (TRANSFORM, RUNTIME))


def _in_order(
    before: Sequence[Step], after: Sequence[Step], partner: dict[int, tuple[int, str]]
) -> tuple[Pair, ...]:
    placed: list[tuple[float, Pair]] = []
    last = -1.0
    for place, step in enumerate(before):
        if place in partner:
            at, by = partner[place]
            placed.append((at, Pair(step, after[at], by)))
            last = at
        else:
            placed.append((last + 0.5, Pair(step, None)))
    taken = {at for at, _ in partner.values()}
    placed += [(at, Pair(None, step)) for at, step in enumerate(after) if at not in taken]
    return tuple(pair for _, pair in sorted(placed, key=lambda each: each[0]))
