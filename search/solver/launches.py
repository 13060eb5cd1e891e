"""Choice of the calls of a program that share a launch, by dynamic programming.

This follows the Inter-Operator Scheduler for GPUs (Ding et al., MLSys 2021). A state is the set of
calls that were made, a step is a set of calls that do not need each other, and the cheapest way to
each state is kept. Blocks of networks have few states, because most of their calls wait for each
other. If there are more than `BEAM` states of a size, the most promising are kept, and the plan may
not be the best one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

BEAM: Final = 24
"""The most states with equally many calls that are considered."""
ALL_SETS: Final = 5
"""The most ready calls for which every set is considered. Among more, sets grow by one call."""
LONGEST: Final = 40
"""The most calls that are planned at a time."""
SAME: Final = 1e-9
"""The relative difference between equal sums that are added up in another order."""

Cost = Callable[[tuple[int, ...]], float | None]


@dataclass(frozen=True, slots=True)
class CallNode:
    """A call, for the search."""

    # Numbers of calls that must end before it begins, all smaller than its own.
    needs: frozenset[int]
    follows: frozenset[int] = frozenset()  # numbers of calls that must not come after it
    joins: bool = True  # whether it may be launched with others
    size: int = 0  # bytes that it writes. They are in use until the calls that need it have ended.


@dataclass(frozen=True, slots=True)
class _Way:
    """The cheapest way to a state: its cost, the most bytes in use, and its last step."""

    cost: float
    most: int = 0
    before: int = 0
    step: tuple[int, ...] = ()

    def is_below(self, other: _Way | None) -> bool:
        if other is None or self.cost < other.cost * (1 - SAME):
            return True
        return self.cost <= other.cost * (1 + SAME) and self.most < other.most


def plan_launches(
    nodes: Sequence[CallNode], cost: Cost, most: int, growth: float = 1.0
) -> list[list[tuple[int, ...]]]:
    """Return the calls in an order, as steps of calls that share a launch. `cost` returns the cost
    of a launch of one call or more, given in ascending order; None for several that are not worth
    it. A launch has ``most`` calls at most. `growth` limits the bytes in use, as a multiple of
    those that the calls use one by one. The result has stretches of neighbouring calls, in order,
    each in steps. A stretch without a shared launch is unchanged.
    """
    stretches: list[list[tuple[int, ...]]] = []
    places = [*_stretches(nodes)]
    memory = [_Memory(nodes, first, end) for first, end in places]
    room = growth * max((each.in_order() for each in memory), default=0)
    for (first, end), used in zip(places, memory, strict=True):
        steps: list[tuple[int, ...]] = [(number,) for number in range(first, end)]
        if end - first > 1:
            found = _Search(nodes, first, end, cost, most, used, room).steps()
            steps = found if any(len(step) > 1 for step in found) else steps
        stretches.append(steps)
    return stretches


def _stretches(nodes: Sequence[CallNode]) -> Iterator[tuple[int, int]]:
    needed: list[int] = []  # the calls that each call needs, as bits
    for node in nodes:
        mask = 0
        for other in node.needs:
            mask |= needed[other] | 1 << other
        needed.append(mask)
    ends = [len(nodes)]
    common = -1
    for number in range(len(nodes) - 1, 0, -1):
        common &= needed[number]
        before = (1 << number) - 1
        if before & ~common == 0:
            ends.append(number)
    first = 0
    for end in reversed(ends):
        while first < end:
            yield first, min(end, first + LONGEST)
            first = min(end, first + LONGEST)


class _Memory:
    """Bytes in use in one stretch, by calls as bits of a number; bytes that stay in use count."""

    def __init__(self, nodes: Sequence[CallNode], first: int, end: int) -> None:
        self._count = end - first
        readers: dict[int, int] = {}
        for number, node in enumerate(nodes):
            for other in node.needs:
                last = min(number, end) - first
                readers[other] = readers.get(other, 0) | (1 << last if number >= first else 0)
        self._sizes = [node.size for node in nodes[first:end]]
        self._readers = [readers.get(number, 1 << self._count) for number in range(first, end)]
        outer = [(nodes[number].size, mask) for number, mask in readers.items() if number < first]
        self._outer = [(size, mask) for size, mask in outer if size and mask]

    def made_by(self, step: Sequence[int]) -> int:
        return sum(self._sizes[number] for number in step)

    def after(self, done: int) -> int:
        used = sum(size for size, readers in self._outer if readers & ~done)
        for number, size in enumerate(self._sizes):
            if done >> number & 1 and self._readers[number] & ~done:
                used += size
        return used

    def in_order(self) -> int:
        return max(
            self.after((1 << number) - 1) + self.made_by((number,)) for number in range(self._count)
        )


class _Search:
    def __init__(
        self,
        nodes: Sequence[CallNode],
        first: int,
        end: int,
        cost: Cost,
        most: int,
        memory: _Memory,
        room: float,
    ) -> None:
        self._memory, self._room = memory, room
        self._first, self._count, self._most = first, end - first, most
        inner = [nodes[number] for number in range(first, end)]
        self._needs = [self._mask(node.needs) for node in inner]
        self._follows = [self._mask(node.follows) for node in inner]
        self._joins = [node.joins for node in inner]
        self._cost = cost
        self._costs: dict[tuple[int, ...], float | None] = {}
        self._alone = [self._price((number,)) or 0.0 for number in range(self._count)]

    def _mask(self, numbers: frozenset[int]) -> int:
        return sum(1 << number - self._first for number in numbers if number >= self._first)

    def steps(self) -> list[tuple[int, ...]]:
        layers: list[dict[int, _Way]] = [{} for _ in range(self._count + 1)]
        layers[0][0] = _Way(0.0)
        for done, layer in enumerate(layers[:-1]):
            if len(layer) > BEAM:
                # By the cost saved so far: all states here have equally many calls.
                kept = sorted(layer, key=lambda state: layer[state].cost - self._spent(state))
                layers[done] = layer = {state: layer[state] for state in kept[:BEAM]}
            for state, way in layer.items():
                kept_bytes = self._memory.after(state)
                for step in self._ways(state):
                    price = self._price(step)
                    if price is None:
                        continue
                    used = kept_bytes + self._memory.made_by(step)
                    if len(step) > 1 and used > self._room:
                        continue
                    after = state | sum(1 << number for number in step)
                    found = _Way(way.cost + price, max(way.most, used), state, step)
                    if found.is_below(layers[done + len(step)].get(after)):
                        layers[done + len(step)][after] = found
        steps: list[tuple[int, ...]] = []
        state = (1 << self._count) - 1
        while state:
            way = layers[state.bit_count()][state]
            steps.append(tuple(self._first + number for number in way.step))
            state = way.before
        return steps[::-1]

    def _spent(self, state: int) -> float:
        return sum(alone for i, alone in enumerate(self._alone) if state >> i & 1)

    def _price(self, step: tuple[int, ...]) -> float | None:
        if step not in self._costs:
            self._costs[step] = self._cost(tuple(self._first + number for number in step))
        return self._costs[step]

    def _ways(self, state: int) -> Iterator[tuple[int, ...]]:
        ready = [
            number
            for number in range(self._count)
            if not state >> number & 1 and self._needs[number] & ~state == 0
        ]
        single = [number for number in ready if self._follows[number] & ~state == 0]
        waiting = [number for number in single if not self._joins[number]]
        if waiting:
            # It has to be made, and others lose no launch partner by coming after it.
            yield (waiting[0],)
            return
        for number in single:
            yield (number,)
        joining = [number for number in ready if self._joins[number]]
        for step in self._sets(joining):
            after = state | sum(1 << number for number in step)
            if all(self._follows[number] & ~after == 0 for number in step):
                yield step

    def _sets(self, ready: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if len(ready) <= ALL_SETS:
            for size in range(2, min(len(ready), self._most) + 1):
                yield from itertools.combinations(ready, size)
            return
        for number in ready:
            step: tuple[int, ...] = (number,)
            while len(step) < min(self._most, len(ready)):
                grown = [tuple(sorted((*step, more))) for more in ready if more not in step]
                priced = [(self._saved(each), each) for each in grown]
                saved, best = max(priced)
                if saved <= 0.0:
                    break
                step = best
                yield step

    def _saved(self, step: tuple[int, ...]) -> float:
        price = self._price(step)
        return 0.0 if price is None else sum(self._alone[i] for i in step) - price
