"""The conditions of calls: a run skips a call if a selection does not choose its result."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition, and the value that it must have for a call to be made.

    `condition` is a tensor with one bool.
    """

    condition: Hashable
    value: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A call: the tensors that it reads and writes.

    No tensor is written twice. `selects` says whether it is ``select(condition, then, other)``,
    which reads only one of the two.
    """

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    selects: bool = False


_Guards: TypeAlias = frozenset[Guard]


def guards_of(steps: Sequence[Step], kept: Iterable[Hashable]) -> list[tuple[Guard, ...]]:
    """Return the conditions under which each call has to be made.

    A call is skipped if its results are only needed for sides of selections that are not chosen.
    The conditions of these selections must be known before the call.

    `kept` are the tensors that are read after all calls.

    The result is the guards of each call. If a call makes the condition of a guard, its own guards
    are in the same tuple before that guard, so that no run reads a condition that was not computed.
    """
    made = {tensor: number for number, step in enumerate(steps) for tensor in step.writes}
    places: dict[Hashable, int] = {}
    for step in steps:
        for tensor in step.reads:
            places.setdefault(tensor, len(places))
    needed: dict[Hashable, _Guards] = {tensor: frozenset() for tensor in kept}
    result: list[tuple[Guard, ...]] = []
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        read = [needed[tensor] for tensor in step.writes if tensor in needed]
        wanted: _Guards = frozenset.intersection(*read) if read else frozenset()
        known = [guard for guard in wanted if made.get(guard.condition, -1) < number]
        known.sort(key=lambda g: (made.get(g.condition, -1), places[g.condition], g.value))
        result.append(tuple(known))
        for place, tensor in enumerate(step.reads):
            own = frozenset(known)
            if step.selects and place > 0:
                own |= {Guard(step.reads[0], place == 1)}
            needed[tensor] = needed[tensor] & own if tensor in needed else own
    return result[::-1]
