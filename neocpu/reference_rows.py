"""Compare outputs whose rows are what a NonMaxSuppression selected, in whatever order.

Two correct implementations round differently. Where two scores are closer than that, their rows
change places; where a score or an overlap is that close to its threshold, a row appears or not, and
with it what it suppresses. So rows are matched, each with one that is equal within the tolerance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from neocpu.tolerance import within

Array: TypeAlias = npt.NDArray[Any]

#: Share of the rows that may be without a partner on the other side.
UNMATCHED_ROWS = 0.01

#: Elements from which a row is more than a score and what it stands for.
WIDE_ROW = 3


def match_rows(
    actual: Mapping[str, Array], expected: Mapping[str, Array], tolerance: Mapping[str, Array]
) -> tuple[Array, Array]:
    """Pair the rows of several outputs that describe the same detections.

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
    exact = [name for name, array in expected.items() if array.dtype.kind != "f"]
    mine, theirs = (_buckets(side, exact) for side in (actual, expected))
    pairs: list[tuple[int, int]] = []
    for key, rows in mine.items():
        left = np.array(theirs.get(key, []), np.int64)
        for row in rows:
            if not left.size:
                break
            equal = np.ones(len(left), bool)
            for name, array in expected.items():
                if name not in exact:
                    near = within(actual[name][row], array[left], tolerance[name][left])
                    equal &= near.reshape(len(left), -1).all(axis=1)
            found = np.flatnonzero(equal)
            if found.size:
                pairs.append((row, int(left[found[0]])))
                left = np.delete(left, found[0])
    paired = np.array(pairs, np.int64).reshape(-1, 2)
    return paired[:, 0], paired[:, 1]


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
    if not len(others):
        return False
    wrong = np.zeros(len(others), np.int64)
    for name, array in expected.items():
        exact = array.dtype.kind != "f"
        bound = np.zeros(1) if exact else tolerance[name][others]
        near = within(actual[name][row], array[others], bound)
        wrong += (~near).reshape(len(others), -1).sum(axis=1)
    elements = sum(math.prod(array.shape[1:]) for array in expected.values())
    return elements >= WIDE_ROW and bool((wrong == 1).any())


def row_count(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> int:
    """Return how many rows the longer side has."""
    return max(len(next(iter(side.values()))) for side in (actual, expected))


def _buckets(side: Mapping[str, Array], exact: Sequence[str]) -> dict[bytes, list[int]]:
    """Group the rows by the values that have to be equal."""
    buckets: dict[bytes, list[int]] = defaultdict(list)
    for row in range(len(next(iter(side.values())))):
        buckets[b"".join(side[name][row].tobytes() for name in exact)].append(row)
    return buckets
