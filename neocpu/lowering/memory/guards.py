"""Which calls a run need not make, because what they compute is selected against."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that has to have a value for a call to be made.

    Attributes
    ----------
    condition : hashable
        A tensor of one bool.
    value : bool
    """

    condition: Hashable
    value: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A call: the tensors that it reads and writes.

    Attributes
    ----------
    reads, writes : tuple of hashable
        Nothing is written twice.
    selects : bool
        Whether it is ``select(condition, then, other)``, which looks at one of the two alone.
    """

    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]
    selects: bool = False


_Guards: TypeAlias = frozenset[Guard]


def guards_of(steps: Sequence[Step], kept: Iterable[Hashable]) -> list[tuple[Guard, ...]]:
    """Return under which conditions each call has to be made.

    A call need not be made if all that comes of it is read on one side of selections whose
    conditions are known before it, and choose the other side.

    Parameters
    ----------
    steps : sequence of Step
        In the order in which they are made.
    kept : iterable of hashable
        What is read after them.

    Returns
    -------
    list of tuple of Guard
        Those of a call that makes a condition are among those of the calls which that guards, and
        come before it: a condition that nobody has computed is not looked at.
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
