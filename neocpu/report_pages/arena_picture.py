"""Who lies where in an artifact's arena, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neocpu.report_pages.program_graph import owner
from neocpu.runtime.header import ArtifactHeader


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor of the arena.

    Attributes
    ----------
    offset, size : int
        In bytes.
    first, last : int
        Positions of the calls that use it first and last.
    """

    offset: int
    size: int
    first: int
    last: int

    def to_json(self) -> list[int]:
        """Return the JSON form."""
        return [self.offset, self.size, self.first, self.last]


def arena_blocks(header: ArtifactHeader) -> tuple[Block, ...]:
    """Return the tensors between an artifact's kernels, in the order in which they are made."""
    return tuple(sorted(_blocks(header), key=lambda block: (block.first, block.offset)))


def _blocks(header: ArtifactHeader) -> Iterator[Block]:
    uses: dict[int, list[int]] = {}
    for i, (_, tensors) in enumerate(header.calls):
        for tensor in tensors:
            uses.setdefault(owner(header, tensor), []).append(i)
    returned = {owner(header, tensor) for tensor in header.returns}
    begin = len(header.inputs) + len(header.weights)
    for number, place in enumerate(header.activations, begin):
        if number not in uses:
            continue
        first, last = uses[number][0], uses[number][-1]
        # Inner repeats come after outer ones, and what they extend may reach into these.
        for repeat in (*header.repeats, *header.repeats[::-1]):
            if first < repeat.first <= last < repeat.end:
                last = repeat.end - 1
            elif repeat.first <= first < repeat.end <= last:
                first = repeat.first
        if number in returned:
            last = len(header.calls) - 1
        yield Block(place.offset, place.end - place.offset, first, last)
