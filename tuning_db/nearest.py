"""Records that stand in where a CPU has none: those of related CPUs, and of similar convolutions.

What makes one scheme faster than another is foremost how many accumulators fit the vector registers
and how wide these are; caches and clocks come after. So a relative is a CPU with the same
registers, and records of any other say nothing. A bias, an activation, a residual or a pixel of
padding is a few per cent of a convolution's time and slows all schemes alike, so the fastest scheme
with one is the fastest without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Final

from neocpu.foundation.cpus import CACHES, DEFAULT_CACHES
from neocpu.schedules.vocabulary.target import TRIPLES, CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp, Workload
from neocpu.tuning_db.record import TargetKey


def cpu_target(key: TargetKey) -> CpuTarget:
    """Return the CPU of ``key`` as far as its name and features tell, without asking LLVM."""
    switched_off = tuple(name for name in key.features if name.startswith("-"))
    features = tuple(name for name in key.features if name not in switched_off)
    l1d, l2, l3 = CACHES.get(key.mcpu, DEFAULT_CACHES)
    return CpuTarget(
        triple=TRIPLES["aarch64" if "neon" in features else "x86_64"],
        mcpu=key.mcpu,
        mattr=switched_off,
        features=features,
        l1d=l1d,
        l2=l2,
        l3=l3,
    )


def relatives(wanted: TargetKey, present: Iterable[TargetKey]) -> tuple[TargetKey, ...]:
    """Return those of ``present`` that are related to ``wanted``, the closest first.

    Related are targets of the same instruction set, vector width and number of vector registers.
    The same CPU with another thread count is closest; then come CPUs by how many instruction-set
    features they share, by how few they have besides, and by how near their thread count is.
    ``wanted`` itself is none.
    """
    registers = _registers(wanted)
    found = [key for key in present if key != wanted and _registers(key) == registers]
    return tuple(sorted(found, key=lambda key: _distance(wanted, key)))


def _registers(key: TargetKey) -> tuple[str, int, int]:
    cpu = cpu_target(key)
    return cpu.machine, cpu.vector_bytes, cpu.vector_registers


def _distance(wanted: TargetKey, key: TargetKey) -> tuple[bool, int, int, float, TargetKey]:
    shared = len({*wanted.compared} & {*key.compared})
    return (
        key.mcpu != wanted.mcpu,
        -shared,
        len(key.compared) - shared,
        abs(math.log(key.threads / wanted.threads)),
        key,  # one order, whatever the order of the files
    )


CHEAP_STEPS: Final = frozenset(
    """
    add bias_add clip exp gelu gelu_tanh hard_swish leaky_relu mish prelu relu sigmoid silu tanh
    """.split()
)
"""Steps of an epilogue that are a bias, an activation or a residual."""

PIXELS: Final = 1
"""The largest difference in the padding of a side."""


def shape_of(workload: Workload) -> Hashable:
    """Return a value that similar workloads share, and perhaps others; None if there are none."""
    if not isinstance(workload, Conv2dWorkload):
        return None
    return replace(workload, padding=(0, 0, 0, 0), epilogue=_costly_steps(workload))


def similar_workloads(workload: Workload, present: Iterable[Workload]) -> list[Workload]:
    """Return those of ``present`` that are similar to a convolution, not itself, closest first."""
    if not isinstance(workload, Conv2dWorkload):
        return []
    similar = [
        (_difference(workload, other), other)
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


def _difference(one: Conv2dWorkload, other: Conv2dWorkload) -> tuple[int, int, str]:
    mine, theirs = (Counter(step.kind for step in each.epilogue) for each in (one, other))
    different_steps = ((mine - theirs) + (theirs - mine)).total()
    return _padding_difference(one, other), different_steps, str(other)
