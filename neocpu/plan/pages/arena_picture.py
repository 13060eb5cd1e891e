"""The tensors in an artifact's arena: their places, and the times at which they are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neocpu.plan.pages.arena_contents import Contents, owner, place_of, uses_of
from neocpu.runtime.header import ArtifactHeader


@dataclass(frozen=True, slots=True)
class Block:
    """A range of the arena that a call writes."""

    # First byte, and number of bytes.
    offset: int
    size: int
    # Positions of the call that writes it, and of the last one that reads it.
    first: int
    last: int

    def to_json(self) -> list[int]:
        """Return the JSON form."""
        return [self.offset, self.size, self.first, self.last]


def arena_blocks(header: ArtifactHeader) -> tuple[Block, ...]:
    """Return all that an artifact's calls write into the arena, in the order of these calls."""
    return tuple(sorted(_blocks(header), key=lambda block: (block.first, block.offset)))


def _blocks(header: ArtifactHeader) -> Iterator[Block]:
    contents = Contents()
    places: list[tuple[int, int]] = []
    first: list[int] = []
    last: list[int] = []

    def read(tensor: int, call: int) -> None:
        if place := place_of(header, tensor):
            for block in contents.writers(place):
                last[block] = call

    for i, use in enumerate(uses_of(header, contents)):
        for tensor in use.reads:
            read(tensor, i)
        for place in use.writes:
            contents.write(place, len(places))
            places.append(place)
            first.append(i)
            last.append(i)
    for tensor in header.returns:
        read(owner(header, tensor), len(header.calls) - 1)
    for (begin, end), since, until in zip(places, first, last, strict=True):
        # A loop needs the tensors that it reads until it ends. Inner repeats follow outer ones.
        for repeat in header.repeats[::-1]:
            if since < repeat.first <= until < repeat.end:
                until = repeat.end - 1
        # A launch needs its tensors from its first call to its last.
        for launch, count in header.launches:
            since = launch if launch <= since < launch + count else since
            until = launch + count - 1 if launch <= until < launch + count else until
        yield Block(begin, end - begin, since, until)
