"""Delta debugging: shrink a sequence that fails to a small part that fails too.

It knows nothing of models. Parts keep the order of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

Part: TypeAlias = tuple[int, ...]
Fails: TypeAlias = Callable[[Part], bool]


def shrink(whole: Sequence[int], fails: Fails) -> Iterator[Part]:
    """Yield smaller and smaller parts of a sequence that fails; each of them fails.

    The search takes halves as long as one fails, because each costs half as much as the previous
    one. Then it cuts both ends by bisection, and then pieces in between, which get smaller. No
    single element can be left out of the last part, but perhaps several at once. An error that
    ``fails`` raises ends the search.
    """
    kept = tuple(whole)
    while (half := _failing_half(kept, fails)) is not None:
        kept = half
        yield kept
    for bisect in (_without_end, _without_start):
        part = bisect(kept, fails)
        if len(part) < len(kept):
            kept = part
            yield kept
    yield from _without_pieces(kept, fails)


def _failing_half(kept: Part, fails: Fails) -> Part | None:
    """Return the first, last or middle half if it fails; None if none does."""
    size = (len(kept) + 1) // 2
    if size == len(kept):
        return None
    starts = dict.fromkeys((0, len(kept) - size, (len(kept) - size) // 2))
    halves = (kept[start : start + size] for start in starts)
    return next((half for half in halves if fails(half)), None)


def _without_end(kept: Part, fails: Fails) -> Part:
    """Return a shortest beginning that fails, assuming that all longer ones fail too."""
    passing, failing = 0, len(kept)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if fails(kept[:middle]):
            failing = middle
        else:
            passing = middle
    return kept[:failing]


def _without_start(kept: Part, fails: Fails) -> Part:
    """Return a shortest end that fails, assuming that all longer ones fail too."""
    failing, passing = 0, len(kept)
    while passing - failing > 1:
        middle = (passing + failing) // 2
        if fails(kept[middle:]):
            failing = middle
        else:
            passing = middle
    return kept[failing:]


def _without_pieces(kept: Part, fails: Fails) -> Iterator[Part]:
    """Leave out pieces of half the length, of a quarter, and so on, until none can be left out."""
    size = len(kept) // 2
    while size:
        at, before = 0, kept
        while at < len(kept):
            rest = kept[:at] + kept[at + size :]
            if rest and fails(rest):
                kept = rest
                yield kept
            else:
                at += size
        # An element that was necessary may no longer be, once others are left out.
        size = size // 2 if size > 1 or kept == before else 1
