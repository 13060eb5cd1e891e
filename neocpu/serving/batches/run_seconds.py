"""The time of a model's runs on a busy server, and the runs that are worth making."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Final

from neocpu import Module
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import time_plans
from neocpu.serving.on_each import on_each

BESIDE: Final = 0.0002
"""Seconds that a run takes beside its call: to be queued, to begin, and to tell who waits."""
WORTH: Final = 1.03
"""How many times as many rows a second a larger run must make to be made, or waited for."""


def run_seconds(
    modules: Sequence[Module], inputs: Sequence[TensorSpec], sizes: Collection[int]
) -> dict[int, float]:
    """Return the seconds of a run by the rows of its plan, while each lane makes one.

    Lanes share caches and memory: by itself, a run of few rows, which reads all weights for them,
    is faster than beside others.

    Parameters
    ----------
    modules : sequence of Module
        One for each lane.
    inputs, sizes
        See `time_plans`.
    """
    found = on_each(modules, lambda module: time_plans(module.run, inputs, sizes))
    return {size: BESIDE + fmean(each[size] for each in found) for size in found[0]}


def worthwhile(seconds: Mapping[int, float]) -> dict[int, float]:
    """Leave out runs that make hardly more rows a second than smaller ones.

    Requests wait longer for those, and their rows are copied to one place.
    """
    kept: dict[int, float] = {}
    best = 0.0
    for rows in sorted(seconds):
        rate = rows / seconds[rows]
        if rate >= WORTH * best:
            kept[rows] = seconds[rows]
            best = rate
    return kept
