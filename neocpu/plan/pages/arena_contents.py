"""The bytes of an artifact's arena that each call reads and writes.

Tensors that are concatenated or split in place have several numbers. So a read is matched with the
call that wrote its bytes last.
"""

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
        """Return the writers of any of these bytes."""
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
    """Yield the use of tensors of each call, in order.

    contents: writers of the bytes so far. The caller adds the writes of each use that it gets.
    """
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

    The last one is written. So are those before it that no call has used yet, unless they are parts
    of earlier writes or consist of such.
    """
    count = min(1, len(owners))
    for tensor in owners[-2::-1]:
        place = place_of(header, tensor)
        if place is None or tensor in seen or contents.hold(place):
            break
        count += 1
    return count


def place_of(header: ArtifactHeader, tensor: int) -> tuple[int, int] | None:
    """Return the bytes of the arena that a tensor takes; None for inputs and weights."""
    number = tensor - len(header.inputs) - len(header.weights)
    if number < 0:
        return None
    place = header.activations[number]
    return place.offset, place.end


def owner(header: ArtifactHeader, tensor: int) -> int:
    """Return the number of the tensor that a slice is a part of, or its own number."""
    first = len(header.inputs) + len(header.weights) + len(header.activations)
    return header.slices[tensor - first].tensor if tensor >= first else tensor
