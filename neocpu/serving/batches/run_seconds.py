"""Measure a model's runs on a busy server, and select the runs that are worth making."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Final

from neocpu import Module
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import time_plans
from neocpu.serving.on_each import on_each

BESIDE: Final = 0.0002
"""Seconds of a run besides its call: to queue it, begin it, and notify the clients that wait."""
WORTH: Final = 1.03
"""The factor by which a larger run must raise the rows a second to be made, or waited for."""


def run_seconds(
    modules: Sequence[Module], inputs: Sequence[TensorSpec], sizes: Collection[int]
) -> dict[int, float]:
    """Return the seconds of a run by the rows of its plan, while every worker makes one.

    Workers share caches and memory. A run of few rows reads all weights for them, so it is faster
    alone than next to others.
    """
    found = on_each(modules, lambda module: time_plans(module.run, inputs, sizes))
    return {size: BESIDE + fmean(each[size] for each in found) for size in found[0]}


def worthwhile(seconds: Mapping[int, float]) -> dict[int, float]:
    """Leave out runs that do hardly more rows a second than smaller ones.

    Requests wait longer for larger runs, and their rows must be copied into one array.
    """
    kept: dict[int, float] = {}
    best = 0.0
    for rows in sorted(seconds):
        rate = rows / seconds[rows]
        if rate >= WORTH * best:
            kept[rows] = seconds[rows]
            best = rate
    return kept
