"""Progress of a tuning run, for people who watch it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from neocpu.foundation.progress import Progress
from neocpu.foundation.units import plural
from neocpu.search.budget import Budget
from neocpu.search.tuner import Stage, TuneProgress
from neocpu.search.tuning_state import LayerProgress

SHOWN: Final = 10
"""Layers below the live line, the costliest."""

_STAGES: Final = {
    "estimate": "estimating the schemes of {}",
    "choose": "choosing among {}",
    "build": "building {}",
}


def stage_progress(stage: Stage) -> Progress:
    """Return what is begun, while there is nothing to count."""
    counted = plural(stage.count, "layer" if stage.doing == "estimate" else "scheme")
    detail = _STAGES[stage.doing].format(counted)
    return Progress("tune", stage.trials, stage.total, detail)


def tuning_progress(state: TuneProgress, budget: Budget) -> Progress:
    """Return how far a run is: in one line, and below it the costliest layers."""
    if state.doing == "measure":
        doing = f"at most {_time_left(state, budget)} left"  # strategies may be content before
    else:
        doing = f"{state.doing} winners"
    gain = "" if state.gain_left is None else f", about {state.gain_left:.1%} to gain"
    failed = f", {state.failed} failed" if state.failed else ""
    best = f"best {state.best * 1e6:.0f} us" if state.best < math.inf else "none works yet"
    detail = f"{doing}{gain}; {state.workload}: {best}{failed}"
    return Progress("tune", state.trials, state.total, detail, _table(state.layers))


def _time_left(state: TuneProgress, budget: Budget) -> str:
    """Return what the measurements to come will take, at the speed of those so far."""
    seconds = state.seconds / state.trials * (state.total - state.trials)
    if budget.seconds is not None:
        seconds = max(0.0, min(seconds, budget.seconds - state.seconds))
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _table(layers: Sequence[LayerProgress]) -> tuple[str, ...]:
    """Return a line for each of the costliest layers: what it took, takes, and what was tried."""
    if not layers:
        return ()
    rows = [("times", "before us", "now us", "tried", "left", "layer"), *map(_row, layers[:SHOWN])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([*(cell.rjust(w) for cell, w in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in rows
    ]
    rest = len(layers) - SHOWN
    return (*lines, *([f"and {plural(rest, 'layer')} that cost less"] if rest > 0 else []))


def _row(layer: LayerProgress) -> tuple[str, ...]:
    now = "-" if layer.now is None else f"{layer.now * 1e6:.1f}"
    before = f"{'~' if layer.now is None else ''}{layer.before * 1e6:.1f}"
    times, tried, left = map(str, (layer.count, layer.tried, layer.left))
    return times, before, now, tried, left, str(layer.workload)
