"""Outputs of which only so many rows matter as a run selects, as after a NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.foundation.arrays import Arrays
from neocpu.verification.reference.row_matching import pair_rows
from neocpu.verification.reference.tolerance import tolerances


def rows_in_order(actual: Arrays, expected: Arrays, groups: Sequence[Sequence[str]]) -> Arrays:
    """Return outputs of selected rows, in the order in which these are expected.

    Where scores are as close as rounding, rows change places, or one side alone has one: such are
    taken to be right, as `neocpu.verification.reference.row_matching.pair_rows` allows.

    Parameters
    ----------
    actual, expected : mapping of str to array
        By name, of the rows that count.
    groups : sequence of sequence of str
        Outputs whose rows describe the same selection.

    Returns
    -------
    mapping of str to array
        As they are where rows do not match.
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
