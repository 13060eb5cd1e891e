"""Match the rows of outputs that a NonMaxSuppression selected, in any order.

Correct implementations round differently. Rows with scores that close may change places; one whose
score or overlap is that close to its threshold may appear or disappear, and with it the rows that
it suppresses. So each row is matched with one that is equal within the tolerance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from neocpu.verification.reference.tolerance import within

Array: TypeAlias = npt.NDArray[Any]

UNMATCHED_ROWS = 0.01  # the largest share of rows that may lack a partner on the other side
WIDE_ROW = 3  # elements from which a row is more than a score and its index
PIECE = 512  # rows that one is compared with at a time: its partner is usually among the first


def match_rows(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerance: Mapping[str, Array],
    unmatched: float = UNMATCHED_ROWS,
) -> tuple[Array, Array]:
    """Return the rows of ``actual``, and those of ``expected`` that they are paired with.

    The outputs describe the same detections, by row. The search for partners is expensive, and ends
    once a larger share of the rows than ``unmatched`` lacks one. ``tolerance`` has the largest
    differences from the elements of ``expected``; integers must be equal.
    """
    right = partial(_right, actual, expected, tolerance)
    exact = [name for name, array in expected.items() if array.dtype.kind != "f"]
    counts = [len(next(iter(side.values()))) for side in (actual, expected)]
    places = np.arange(min(counts))
    placed = places[right(places, places).all(axis=1)]
    unplaced = (np.setdiff1d(np.arange(count), placed) for count in counts)
    mine, theirs = map(_buckets, (actual, expected), (exact, exact), unplaced)
    pairs = [(row, row) for row in placed.tolist()]
    missing = unmatched * max(counts)
    for key, rows in mine.items():
        others = theirs.get(key, [])
        pieces = [np.array(others[i : i + PIECE], int) for i in range(0, len(others), PIECE)]
        for row in rows:
            partner = _take(pieces, partial(right, np.array([row])))
            if partner is not None:
                pairs.append((row, partner))
            elif (missing := missing - 1) < 0:
                return _columns(pairs)
    return _columns(pairs)


def pair_rows(
    actual: Mapping[str, Array], expected: Mapping[str, Array], tolerance: Mapping[str, Array]
) -> tuple[Array, Array] | None:
    """Pair rows like `match_rows`; None if rows differ in shape, or if the pairs are no match.

    They are no match if too many rows lack a partner, or if a single element keeps a row from
    having one: it is then the same detection with a wrong number, and not another detection.
    """
    if any(actual[name].shape[1:] != value.shape[1:] for name, value in expected.items()):
        return None
    mine, theirs = match_rows(actual, expected, tolerance)
    rows = row_count(actual, expected)
    if rows - len(mine) > UNMATCHED_ROWS * rows:
        return None
    left, other = (
        np.setdiff1d(np.arange(len(next(iter(side.values())))), paired)
        for side, paired in ((actual, mine), (expected, theirs))
    )
    if any(_one_wrong(actual, expected, tolerance, row, other) for row in left):
        return None
    return mine, theirs


def _one_wrong(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerance: Mapping[str, Array],
    row: int,
    others: Array,
) -> bool:
    """Whether a row differs from one of ``others`` in one of three elements or more."""
    wrong = ~_right(actual, expected, tolerance, np.array([row]), others)
    return wrong.shape[1] >= WIDE_ROW and bool((wrong.sum(axis=1) == 1).any())


def row_count(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> int:
    """Return the number of rows of the longer side."""
    return max(len(next(iter(side.values()))) for side in (actual, expected))


def _buckets(
    side: Mapping[str, Array], exact: Sequence[str], rows: Array
) -> dict[bytes, list[int]]:
    buckets: dict[bytes, list[int]] = defaultdict(list)
    for row in rows.tolist():
        buckets[b"".join(side[name][row].tobytes() for name in exact)].append(row)
    return buckets


def _right(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerance: Mapping[str, Array],
    rows: Array,
    others: Array,
) -> Array:
    """Whether elements of rows equal those of others, broadcast: of shape (others, elements)."""
    right = []
    for name, array in expected.items():
        mine, theirs = actual[name][rows], array[others]
        exact = array.dtype.kind != "f"
        one = mine == theirs if exact else within(mine, theirs, tolerance[name][others])
        right.append(one.reshape(len(others), math.prod(array.shape[1:])))
    return np.concatenate(right, axis=1)


def _take(pieces: list[Array], right: Callable[[Array], Array]) -> int | None:
    """Remove the first row that matches as a whole from the pieces, and return it."""
    for number, piece in enumerate(pieces):
        found = np.flatnonzero(right(piece).all(axis=1))
        if found.size:
            pieces[number] = np.delete(piece, found[0])
            if not pieces[number].size:
                del pieces[number]
            return int(piece[found[0]])
    return None


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    paired = np.array(pairs, np.int64).reshape(-1, 2)
    return paired[:, 0], paired[:, 1]
