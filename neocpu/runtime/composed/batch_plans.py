"""Find out whether the plans of a batch may be composed, and choose the fastest runs of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from neocpu.foundation.tensor_spec import TensorSpec, random_inputs
from neocpu.runtime.array_types import AnyArray

if TYPE_CHECKING:
    from neocpu.runtime.header import ArtifactHeader

Run: TypeAlias = Callable[[Mapping[str, AnyArray]], Mapping[str, AnyArray]]
"""Returns outputs by name from inputs by name. The number of their rows selects the plan."""

CALLS: Final = 3
"""Timed calls of each plan, while a batch waits."""


def mixing(plans: Sequence[ArtifactHeader]) -> str | None:
    """Return why not every plan may compute the rows of a batch; None if every one may."""
    for each in plans:
        if each.rows_mixed is not None:
            return each.rows_mixed
    functions = {each.row_function for each in plans}
    if None in functions:
        return "it was compiled before that was looked for: compile it again"
    return (
        None if len(functions) == 1 else "what is computed of a row depends on how many there are"
    )


def recorded_seconds(plans: Mapping[int, ArtifactHeader]) -> dict[int, float]:
    """Return the recorded seconds of a call of each plan, by its rows; empty if any has none."""
    known = {rows: each.call_seconds for rows, each in plans.items()}
    seconds = {rows: taken for rows, taken in known.items() if taken is not None}
    return seconds if len(seconds) == len(plans) else {}


def time_plans(run: Run, inputs: Sequence[TensorSpec], sizes: Collection[int]) -> dict[int, float]:
    """Return the seconds that a run of each plan takes on random inputs, by its rows.

    Plans are called in turns, after one call of each. The seconds are medians: minima would favour
    short runs, because a short run is more likely to have the machine to itself.
    """
    from statistics import median  # here, because that takes 3 ms

    given = inputs_by_rows(inputs, sizes)
    times: dict[int, list[float]] = {size: [] for size in given}
    for _ in range(1 + CALLS):
        for size, rows in given.items():
            start = time.perf_counter()
            run(rows)
            times[size].append(time.perf_counter() - start)
    return {size: median(took[1:]) for size, took in times.items()}


def inputs_by_rows(
    inputs: Sequence[TensorSpec], sizes: Collection[int]
) -> dict[int, dict[str, AnyArray]]:
    """Return random inputs by name for each number of rows in ``sizes``, fewest rows first."""
    arrays = random_inputs([spec.with_rows(max(sizes)) for spec in inputs], seed=0)
    return {size: {name: array[:size] for name, array in arrays.items()} for size in sorted(sizes)}


TABLE: Final = 128
"""The most rows for which all compositions are considered.

Rows beyond them are computed by the plan that does most rows a second.
"""

Runs: TypeAlias = tuple[int, ...]
"""The rows of each run's plan, most first. The last run may have rows to spare."""


def compositions(
    seconds: Mapping[int, float], most: int, *, spare: bool = True
) -> tuple[Runs, ...]:
    """Return the fastest runs for every number of rows from 0 to ``most``.

    With plans of 1, 4 and 8, five rows may be a run of 4 and one of 1, or one of 8 with three rows
    to spare. This is a dynamic program over the rows left after the first run. Among compositions
    of equal time, it takes one with the fewest runs.

    `seconds`: seconds of a run, by the rows of its plan. All are above 0, and there is at least
    one. `spare`: whether runs may have rows to spare. If not, there must be a plan of one row.
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

    A larger batch with a plan of its own uses that plan unless other plans take less time.
    """

    def __init__(self, seconds: Mapping[int, float], *, spare: bool = True) -> None:
        # Without spare rows, runs of the fastest plan must not exceed a batch: see `all`.
        self._most = TABLE if spare else max(TABLE, *seconds)
        self._table = compositions(seconds, self._most, spare=spare)
        self._seconds = seconds
        self._fastest = min(seconds, key=lambda rows: seconds[rows] / rows)

    def all(self, rows: int) -> Runs:
        """Return the runs that compute a batch."""
        many = max(0, -(-(rows - self._most) // self._fastest))
        rest = max(0, rows - many * self._fastest)
        runs = (*(self._fastest for _ in range(many)), *self._table[rest])
        own = self._seconds.get(rows, math.inf)
        return (rows,) if own <= math.fsum(self._seconds[size] for size in runs) else runs

    def first(self, rows: int) -> int:
        """Return the rows of a batch's first run; the batch has at least one row."""
        return self.all(rows)[0]
