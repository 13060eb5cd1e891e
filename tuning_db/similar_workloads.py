"""Similar convolutions: the records of one serve another that differs in what hardly costs.

A bias, an activation, a residual or a pixel of padding is a few per cent of a convolution's time
and slows all schemes alike, so the fastest scheme with one is the fastest without it.
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
"""The largest difference in the padding of a side."""


def shape_of(workload: Workload) -> Hashable:
    """Return a value that similar workloads share; None for a workload that has no similar ones.

    Others may share it too: see `similar_workloads`.
    """
    if not isinstance(workload, Conv2dWorkload):
        return None
    return replace(workload, padding=(0, 0, 0, 0), epilogue=_costly_steps(workload))


def similar_workloads(workload: Workload, present: Iterable[Workload]) -> list[Workload]:
    """Return those of ``present`` that are similar to a convolution, the closest first.

    The convolution itself is left out.
    """
    if not isinstance(workload, Conv2dWorkload):
        return []
    similar = [
        (_distance(workload, other), other)
        for other in present
        if isinstance(other, Conv2dWorkload) and other != workload
        if shape_of(other) == shape_of(workload)
        if _padding_difference(workload, other) <= PIXELS
    ]
    return [other for _, other in sorted(similar, key=lambda pair: pair[0])]


def _costly_steps(workload: Conv2dWorkload) -> tuple[EpilogueOp, ...]:
    return tuple(step for step in workload.epilogue if step.kind not in CHEAP_STEPS)


def _padding_difference(one: Conv2dWorkload, other: Conv2dWorkload) -> int:
    return max(abs(a - b) for a, b in zip(one.padding, other.padding, strict=True))


def _distance(one: Conv2dWorkload, other: Conv2dWorkload) -> tuple[int, int, str]:
    mine, theirs = (Counter(step.kind for step in each.epilogue) for each in (one, other))
    different_steps = ((mine - theirs) + (theirs - mine)).total()
    return _padding_difference(one, other), different_steps, str(other)
