"""Which bytes of an artifact's arena each call reads and writes.

Tensors that are joined or cut where they lie have several numbers, so what counts is who wrote the
bytes last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from neocpu.runtime.header import ArtifactHeader


class Contents:
    """Who wrote each byte of the arena last."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, int]] = []

    def write(self, place: tuple[int, int], writer: int) -> None:
        """Say who writes the bytes from a first one to before another."""
        begin, end = place
        rest = [
            (first, last, other)
            for a, b, other in self._parts
            for first, last in ((a, min(b, begin)), (max(a, end), b))
            if first < last
        ]
        self._parts = sorted([*rest, (begin, end, writer)])

    def writers(self, place: tuple[int, int]) -> list[int]:
        """Return who wrote some of the bytes."""
        begin, end = place
        return sorted({writer for a, b, writer in self._parts if a < end and begin < b})

    def hold(self, place: tuple[int, int]) -> bool:
        """Whether the bytes are a part of what one wrote, or made of all that some wrote."""
        begin, end = place
        parts = [(a, b) for a, b, _ in self._parts if a < end and begin < b]
        if any(a <= begin and end <= b for a, b in parts):
            return True
        inside = all(begin <= a and b <= end for a, b in parts)
        return inside and sum(b - a for a, b in parts) == end - begin


@dataclass(frozen=True, slots=True)
class Use:
    """What a call does with tensors.

    Attributes
    ----------
    reads : tuple of int
        Numbers of tensors.
    writes : tuple of (int, int)
        Bytes of the arena, from a first one to before another.
    """

    reads: tuple[int, ...]
    writes: tuple[tuple[int, int], ...]


def uses_of(header: ArtifactHeader, contents: Contents) -> Iterator[Use]:
    """Yield what each call does, in turn.

    Parameters
    ----------
    contents : Contents
        What the calls wrote that were yielded: who asks for them writes it there.
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
    """Return how many of a call's tensors, the last ones, it writes: the header does not say.

    One is written, and others before it that nobody used before, unless they are parts of what was
    written or made of such.
    """
    count = min(1, len(owners))
    for tensor in owners[-2::-1]:
        place = place_of(header, tensor)
        if place is None or tensor in seen or contents.hold(place):
            break
        count += 1
    return count


def place_of(header: ArtifactHeader, tensor: int) -> tuple[int, int] | None:
    """Return the bytes of the arena that a tensor takes; None of inputs and weights."""
    number = tensor - len(header.inputs) - len(header.weights)
    if number < 0:
        return None
    place = header.activations[number]
    return place.offset, place.end


def owner(header: ArtifactHeader, tensor: int) -> int:
    """Return the number of the tensor that one is a part of, or its own."""
    first = len(header.inputs) + len(header.weights) + len(header.activations)
    return header.slices[tensor - first].tensor if tensor >= first else tensor
