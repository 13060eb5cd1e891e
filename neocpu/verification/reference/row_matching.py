"""Compare outputs whose rows are what a NonMaxSuppression selected, in whatever order.

Two correct implementations round differently. Where two scores are closer than that, their rows
change places; where a score or an overlap is that close to its threshold, a row appears or not, and
with it what it suppresses. So rows are matched, each with one that is equal within the tolerance.
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

#: Share of the rows that may be without a partner on the other side.
UNMATCHED_ROWS = 0.01

#: Elements from which a row is more than a score and what it stands for.
WIDE_ROW = 3

#: Rows that one is compared with at a time: its partner is nearly always among the first ones left.
PIECE = 512


def match_rows(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    tolerance: Mapping[str, Array],
    unmatched: float = UNMATCHED_ROWS,
) -> tuple[Array, Array]:
    """Pair the rows of several outputs that describe the same detections.

    Rows in the same place are compared first. Once a larger share of the rows than ``unmatched``
    lacks a partner, the search is given up: each has been compared with all that are left.

    Parameters
    ----------
    actual, expected : mapping of str to array
        By output name; the first axes of one side's arrays have one length, trailing shapes agree.
    tolerance : mapping of str to array
        How far from those of ``expected`` elements may be; integers must be equal.

    Returns
    -------
    array, array
        Rows of ``actual`` and the rows of ``expected`` they were paired with.
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
        pieces = _pieces(theirs.get(key, []))
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
    """Pair rows as `match_rows`; None if rows differ in shape, or if that does not explain all.

    Too many may have no partner, or one may lack it for a single element: it is not another
    detection, but the same one with a wrong number.
    """
    if any(actual[name].shape[1:] != value.shape[1:] for name, value in expected.items()):
        return None
    mine, theirs = match_rows(actual, expected, tolerance)
    rows = row_count(actual, expected)
    if rows - len(mine) > UNMATCHED_ROWS * rows:
        return None
    left, other = (_rest(side, paired) for side, paired in ((actual, mine), (expected, theirs)))
    if any(_one_wrong(actual, expected, tolerance, row, other) for row in left):
        return None
    return mine, theirs


def _rest(side: Mapping[str, Array], paired: Array) -> Array:
    return np.setdiff1d(np.arange(len(next(iter(side.values())))), paired)


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
    """Return how many rows the longer side has."""
    return max(len(next(iter(side.values()))) for side in (actual, expected))


def _buckets(
    side: Mapping[str, Array], exact: Sequence[str], rows: Array
) -> dict[bytes, list[int]]:
    """Group rows by the values that have to be equal."""
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
    """Whether rows have what others have, to which they are broadcast: (others, elements)."""
    right = []
    for name, array in expected.items():
        mine, theirs = actual[name][rows], array[others]
        exact = array.dtype.kind != "f"
        one = mine == theirs if exact else within(mine, theirs, tolerance[name][others])
        right.append(one.reshape(len(others), math.prod(array.shape[1:])))
    return np.concatenate(right, axis=1)


def _pieces(rows: Sequence[int]) -> list[Array]:
    return [np.array(rows[i : i + PIECE], np.int64) for i in range(0, len(rows), PIECE)]


def _take(pieces: list[Array], right: Callable[[Array], Array]) -> int | None:
    """Take the first row that is right as a whole out of the pieces, and return it."""
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
