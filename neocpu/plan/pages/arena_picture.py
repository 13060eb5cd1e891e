"""The tensors in an artifact's arena: their places, and the times at which they are there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from neocpu.runtime.header import ArtifactHeader


class Contents:
    """The last writer of each byte of the arena."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, int]] = []

    def write(self, place: tuple[int, int], writer: int) -> None:
        """Record the writer of a range of bytes, whose end is exclusive."""
        begin, end = place
        rest = [
            (first, last, other)
            for a, b, other in self._parts
            for first, last in ((a, min(b, begin)), (max(a, end), b))
            if first < last
        ]
        self._parts = sorted([*rest, (begin, end, writer)])

    def writers(self, place: tuple[int, int]) -> list[int]:
        begin, end = place
        return sorted({writer for a, b, writer in self._parts if a < end and begin < b})

    def hold(self, place: tuple[int, int]) -> bool:
        """Whether the bytes lie within one write, or are exactly several whole writes."""
        begin, end = place
        parts = [(a, b) for a, b, _ in self._parts if a < end and begin < b]
        if any(a <= begin and end <= b for a, b in parts):
            return True
        inside = all(begin <= a and b <= end for a, b in parts)
        return inside and sum(b - a for a, b in parts) == end - begin


@dataclass(frozen=True, slots=True)
class Use:
    """The tensors that a call reads, and the bytes that it writes."""

    reads: tuple[int, ...]  # numbers of tensors
    writes: tuple[tuple[int, int], ...]  # ranges of bytes of the arena; their ends are exclusive


def uses_of(header: ArtifactHeader, contents: Contents) -> Iterator[Use]:
    """Yield each call's use of tensors. The caller adds its writes to ``contents`` each time."""
    seen: set[int] = set()
    for _, tensors in header.calls:
        owners = [owner(header, tensor) for tensor in tensors]
        split = len(owners) - _results(header, owners, seen, contents)
        places = (place_of(header, tensor) for tensor in owners[split:])
        yield Use(tuple(owners[:split]), tuple(place for place in places if place))
        seen.update(owners)


def _results(
    header: ArtifactHeader, owners: Sequence[int], seen: Collection[int], contents: Contents
) -> int:
    """Return how many of a call's last tensors it writes, which the header does not say.

    It writes the last one, and each before it up to one that a call has used, or that is a part of
    earlier writes or consists of them.
    """
    count = min(1, len(owners))
    for tensor in owners[-2::-1]:
        place = place_of(header, tensor)
        if place is None or tensor in seen or contents.hold(place):
            break
        count += 1
    return count


def place_of(header: ArtifactHeader, tensor: int) -> tuple[int, int] | None:
    """Return the bytes of the arena that a tensor takes; None for inputs, weights and extents."""
    number = tensor - len(header.inputs) - len(header.weights)
    if not 0 <= number < len(header.activations):
        return None
    place = header.activations[number]
    return place.offset, place.end


def owner(header: ArtifactHeader, tensor: int) -> int:
    """Return the number of the tensor that a slice is a part of, or its own number."""
    first = len(header.inputs) + len(header.weights) + len(header.activations)
    is_slice = first <= tensor < first + len(header.slices)
    return header.slices[tensor - first].tensor if is_slice else tensor


@dataclass(frozen=True, slots=True)
class Block:
    """A range of the arena that a call writes."""

    offset: int  # first byte
    size: int
    first: int  # position of the call that writes it
    last: int  # position of the last call that reads it

    def to_json(self) -> list[int]:
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
