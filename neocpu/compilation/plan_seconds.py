"""Time calls of the plans of a set where it is compiled, to choose plans for batches later."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import Run, inputs_by_rows

TURNS: Final = 2
"""Least number of turns of each plan."""
MOST_TURNS: Final = 100
"""Largest number of turns of each plan, if `SECONDS` allow as many."""
SECONDS: Final = 12
"""Time limit after which no turns beyond `TURNS` begin."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Plans that differ only in their number of rows."""

    inputs: Sequence[TensorSpec]
    plans: Mapping[int, int]


def quickest_seconds(
    run: Run, every: Sequence[Batches], report: ProgressCallback = silent
) -> dict[int, float]:
    """Return the seconds of a call in the quickest turn of each plan, by the plan's number.

    A shared machine is slower for seconds at a time, and another plan may then take the least time
    a row, so that medians of a few turns depend on chance. The quickest turns of all plans come
    from the same state of the machine. All plans compute about the same number of rows in a turn.
    Otherwise plans of few rows would look too fast, because a short turn is more likely to have the
    machine to itself.
    """
    given = [(batches.plans, inputs_by_rows(batches.inputs, batches.plans)) for batches in every]
    for _, inputs in given:
        for rows in inputs.values():
            run(rows)
    quickest = {number: math.inf for plans, _ in given for number in plans.values()}
    is_choice = any(len(plans) > 1 for plans, _ in given)
    begun = time.perf_counter()
    for turn in range(MOST_TURNS if is_choice else TURNS):
        spent = time.perf_counter() - begun
        if turn >= TURNS and spent > SECONDS:
            break
        if is_choice:
            report(Progress("time batches", min(int(spent), SECONDS), SECONDS))
        for plans, inputs in given:
            for size, rows in inputs.items():
                calls = round(max(plans) / size)
                start = time.perf_counter()
                for _ in range(calls):
                    run(rows)
                took = (time.perf_counter() - start) / calls
                quickest[plans[size]] = min(quickest[plans[size]], took)
    return quickest
