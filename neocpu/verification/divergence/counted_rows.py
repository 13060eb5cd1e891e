"""Outputs with as many valid rows as a run selects, such as those of a NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.foundation.arrays import Arrays
from neocpu.verification.reference.row_matching import pair_rows
from neocpu.verification.reference.tolerance import tolerances


def rows_in_order(actual: Arrays, expected: Arrays, groups: Sequence[Sequence[str]]) -> Arrays:
    """Return outputs of selected rows, in the expected order of these rows.

    Scores may be so close that rounding exchanges two rows, or that only one side selects a row.
    Such rows count as right, as `neocpu.verification.reference.row_matching.pair_rows` allows.
    Outputs of a group describe the same selection; those whose rows do not match keep their order.
    """
    ordered = dict(actual)
    for group in filter(None, groups):
        mine, theirs = ({name: side[name] for name in group} for side in (actual, expected))
        pairs = pair_rows(mine, theirs, {name: tolerances(right) for name, right in theirs.items()})
        for name, right in theirs.items() if pairs is not None else ():
            assert pairs is not None
            ordered[name] = right.astype(mine[name].dtype)
            ordered[name][pairs[1]] = mine[name][pairs[0]]
    return ordered
