"""Who lies where in an artifact's arena, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neocpu.plan.pages.arena_contents import Contents, owner, place_of, uses_of
from neocpu.runtime.header import ArtifactHeader


@dataclass(frozen=True, slots=True)
class Block:
    """What a call writes into the arena.

    Attributes
    ----------
    offset, size : int
        In bytes.
    first, last : int
        Positions of the call that writes it, and of the last one that reads it.
    """

    offset: int
    size: int
    first: int
    last: int

    def to_json(self) -> list[int]:
        """Return the JSON form."""
        return [self.offset, self.size, self.first, self.last]


def arena_blocks(header: ArtifactHeader) -> tuple[Block, ...]:
    """Return what lies between an artifact's kernels, in the order in which it is made."""
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
        # What a loop reads is needed until it ends. Inner repeats come after outer ones.
        for repeat in header.repeats[::-1]:
            if since < repeat.first <= until < repeat.end:
                until = repeat.end - 1
        # And what a launch touches, for all of it.
        for launch, count in header.launches:
            since = launch if launch <= since < launch + count else since
            until = launch + count - 1 if launch <= until < launch + count else until
        yield Block(begin, end - begin, since, until)
