"""Find out whether the plans of a batch may be composed, and how long each takes."""

from __future__ import annotations

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
    """Return why not every plan may compute the rows of a batch; None if every one may.

    That is proven when the plans are compiled.
    """
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
    """Return the seconds of a call of each plan where it was compiled, by its rows.

    The result is empty if there is no plan, or one has no such record.
    """
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
