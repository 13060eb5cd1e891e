"""Rows of a batch, done in runs of the sizes that there are plans for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

TABLE: Final = 128
"""Rows of which all compositions are considered; what is more has the plan of the most a second."""

Runs: TypeAlias = tuple[int, ...]
"""How many rows the plan of each run takes, most first; the last may have some to spare."""


def compositions(
    seconds: Mapping[int, float], most: int, *, spare: bool = True
) -> tuple[Runs, ...]:
    """Return the runs that take least time together, for every number of rows from 0 to ``most``.

    Of five rows, with plans of 1, 4 and 8, these may be a run of 4 and one of 1, or one of 8 with
    three rows to spare. A dynamic program over what is left after the first run. Of compositions
    that take equally long it is one of the fewest runs.

    Parameters
    ----------
    seconds : mapping of int to float
        What a run takes, by the rows of its plan: above 0, and so are the rows. Not empty.
    most : int
        Rows.
    spare : bool
        Whether runs may have rows to spare; if not, there is a plan of one.

    Returns
    -------
    tuple of tuple of int
        At position n the runs for n rows; every one of them has a row to do.
    """
    assert seconds
    assert spare or 1 in seconds
    assert all(rows > 0 and time > 0 for rows, time in seconds.items()), seconds
    totals: list[tuple[float, int]] = [(0.0, 0)]
    found: list[Runs] = [()]
    for rows in range(1, most + 1):
        rests = {size: max(0, rows - size) for size in seconds if spare or size <= rows}
        time, runs, first = min(
            (totals[rest][0] + seconds[size], totals[rest][1] + 1, size)
            for size, rest in rests.items()
        )
        totals.append((time, runs))
        found.append(tuple(sorted((first, *found[rests[first]]), reverse=True)))
    return tuple(found)


class FastestRuns:
    """The runs for any number of rows: see `TABLE`.

    Beyond it, a batch that has a plan of its own is done by that unless others take less.

    Parameters
    ----------
    seconds, spare
        As of `compositions`.
    """

    def __init__(self, seconds: Mapping[int, float], *, spare: bool = True) -> None:
        # Without rows to spare what is left of the fastest runs is at least theirs.
        self._most = TABLE if spare else max(TABLE, *seconds)
        self._table = compositions(seconds, self._most, spare=spare)
        self._seconds = seconds
        self._fastest = min(seconds, key=lambda rows: seconds[rows] / rows)

    def all(self, rows: int) -> Runs:
        """Return the runs that a batch is done by."""
        many = max(0, -(-(rows - self._most) // self._fastest))
        rest = max(0, rows - many * self._fastest)
        runs = (*(self._fastest for _ in range(many)), *self._table[rest])
        own = self._seconds.get(rows, math.inf)
        return (rows,) if own <= math.fsum(self._seconds[size] for size in runs) else runs

    def first(self, rows: int) -> int:
        """Return the first of them, for at least one row."""
        return self.all(rows)[0]
