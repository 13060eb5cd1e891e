"""Convolutions whose records serve another: they differ in what hardly costs.

A bias, an activation, a residual or a pixel of padding is a few per cent of a convolution's time,
much the same of every scheme, so that what was the fastest with one is without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Final

from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp, Workload

CHEAP_STEPS: Final = frozenset(
    """
    add bias_add clip exp gelu gelu_tanh hard_swish leaky_relu mish prelu relu sigmoid silu tanh
    """.split()
)
"""Steps of an epilogue that are a bias, an activation or a residual."""

PIXELS: Final = 1
"""By how much each side's padding may differ."""


def shape_of(workload: Workload) -> Hashable:
    """Return what cousins have in common, if not they alone; None for what has none."""
    if not isinstance(workload, Conv2dWorkload):
        return None
    return replace(workload, padding=(0, 0, 0, 0), epilogue=_dear(workload))


def cousins(workload: Workload, present: Iterable[Workload]) -> list[Workload]:
    """Return those of ``present`` that are cousins of a convolution, the closest first.

    It is none of its own.
    """
    if not isinstance(workload, Conv2dWorkload):
        return []
    found = [
        (*_distance(workload, other), str(other), other)
        for other in present
        if isinstance(other, Conv2dWorkload) and other != workload
        if shape_of(other) == shape_of(workload)
        if _pixels(workload, other) <= PIXELS
    ]
    return [other for *_, other in sorted(found, key=lambda each: each[:-1])]


def _dear(workload: Conv2dWorkload) -> tuple[EpilogueOp, ...]:
    return tuple(step for step in workload.epilogue if step.kind not in CHEAP_STEPS)


def _pixels(one: Conv2dWorkload, other: Conv2dWorkload) -> int:
    return max(abs(a - b) for a, b in zip(one.padding, other.padding, strict=True))


def _distance(one: Conv2dWorkload, other: Conv2dWorkload) -> tuple[int, int]:
    mine, theirs = (Counter(step.kind for step in each.epilogue) for each in (one, other))
    return _pixels(one, other), ((mine - theirs) + (theirs - mine)).total()
