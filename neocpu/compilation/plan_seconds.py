"""What calls of a set's plans take where it is compiled, by which batches are done from then on."""

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
"""Of each plan at least."""
MOST_TURNS: Final = 100
"""Of each plan, and no more than `SECONDS` allow."""
SECONDS: Final = 12
"""For more turns than the least."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Plans that differ in their rows alone.

    Attributes
    ----------
    inputs : sequence of TensorSpec
        Of any number of rows.
    plans : mapping
        Their numbers by their rows.
    """

    inputs: Sequence[TensorSpec]
    plans: Mapping[int, int]


def quickest_seconds(
    run: Run, every: Sequence[Batches], report: ProgressCallback = silent
) -> dict[int, float]:
    """Return the seconds of a call in the quickest turn of each plan, by the plan's number.

    A machine that others use is slower for seconds at a time, and then other plans may take the
    least by the row: medians of some turns tell by chance which. Quickest turns are of one state.
    Plans do about as many rows in each, or the quickest would flatter plans of few rows: a short
    turn more likely finds the machine to itself.
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
