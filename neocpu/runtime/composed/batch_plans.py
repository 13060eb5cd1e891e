"""Whether plans of a batch may be put together, and what they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from neocpu.foundation.tensor_spec import TensorSpec, random_inputs
from neocpu.runtime.array_types import AnyArray

if TYPE_CHECKING:
    from neocpu.runtime.header import ArtifactHeader

Run: TypeAlias = Callable[[Mapping[str, AnyArray]], Mapping[str, AnyArray]]
"""Returns outputs by name, of inputs by name, whose rows tell the plan."""

CALLS: Final = 3
"""Of each plan, where a batch waits for what they tell."""


def mixing(plans: Sequence[ArtifactHeader]) -> str | None:
    """Return why rows of batches may not be computed by whichever plans; None if they may.

    That was proven when they were compiled.
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


def seconds_told(plans: Mapping[int, ArtifactHeader]) -> dict[int, float]:
    """Return what a call of each plan took where it was compiled, by its rows.

    Empty if one of them does not tell, or they are none.
    """
    known = {rows: each.call_seconds for rows, each in plans.items()}
    seconds = {rows: taken for rows, taken in known.items() if taken is not None}
    return seconds if len(seconds) == len(plans) else {}


def time_plans(run: Run, inputs: Sequence[TensorSpec], sizes: Collection[int]) -> dict[int, float]:
    """Return the seconds that a run takes, on random inputs, by the rows of its plan.

    Medians of calls in turns, after one of each: the fastest would flatter short ones, of which one
    more likely finds the machine to itself.

    Parameters
    ----------
    inputs : sequence of TensorSpec
        Of any number of rows.
    sizes : collection of int
        The rows of the plans.
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
    """Return random inputs of so many rows each, by name, by the rows, fewest first."""
    arrays = random_inputs([spec.with_rows(max(sizes)) for spec in inputs], seed=0)
    return {size: {name: array[:size] for name, array in arrays.items()} for size in sorted(sizes)}
