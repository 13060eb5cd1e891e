"""What calls of a set's plans take where it is compiled, by which batches are done from then on."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import Final

from neocpu.runtime.composed.batch_plans import Run, inputs_by_rows
from neocpu.tensor_spec import TensorSpec

TURNS: Final = 2
"""Of each plan at least."""
MOST_TURNS: Final = 25
"""Of each plan, and no more than `SECONDS` allow."""
SECONDS: Final = 8.0
"""For more turns than the least."""


def quickest_seconds(
    run: Run, inputs: Sequence[TensorSpec], sizes: Collection[int]
) -> dict[int, float]:
    """Return the seconds of a call in the quickest turn of each plan, by the plan's rows.

    A machine that others use is slower for seconds at a time, and then other plans may take the
    least by the row: medians of some turns tell by chance which. Quickest turns are of one state.
    Plans do about as many rows in each, or the quickest would flatter plans of few rows: a short
    turn more likely finds the machine to itself.

    Parameters
    ----------
    inputs : sequence of TensorSpec
        Of any number of rows.
    sizes : collection of int
        The rows of the plans.
    """
    given = inputs_by_rows(inputs, sizes)
    for rows in given.values():
        run(rows)
    quickest = dict.fromkeys(given, math.inf)
    end = time.perf_counter() + SECONDS
    for turn in range(MOST_TURNS):
        if turn >= TURNS and time.perf_counter() > end:
            break
        for size, rows in given.items():
            calls = round(max(given) / size)
            start = time.perf_counter()
            for _ in range(calls):
                run(rows)
            quickest[size] = min(quickest[size], (time.perf_counter() - start) / calls)
    return quickest
