"""The schemes of 1x1 convolutions that are worth measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from neocpu.schedules.vocabulary.layout import channel_blocks
from neocpu.schedules.vocabulary.scheme import BlockedScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

Found = TypeVar("Found", bound=BlockedScheme)

# Candidates whose estimates are slower than the best by this factor are not worth measuring.
WORTH: Final = 1.1


def scheme_space(
    workload: Conv2dWorkload,
    target: CpuTarget,
    variants: Iterable[Found],
    estimate: Callable[[Conv2dWorkload, Found, CpuTarget, int], float],
    threads: int,
) -> tuple[Found, ...]:
    """Return schemes for every pair of input and output blocks, best estimate first.

    ``variants`` have blocks of one vector, and are compared for ``threads``. The speed of a scheme
    hardly depends on its layouts. The smallest blocks therefore get all variants within a factor of
    `WORTH` of the best, and other pairs of blocks of up to two vectors get the best variant. The
    templates' ``fold`` adapts any of them to wider blocks.
    """
    lanes = target.dot_unit(workload.numerics).lanes
    ranked = sorted(
        ((estimate(workload, scheme, target, threads), scheme) for scheme in variants),
        key=lambda pair: pair[0],
    )
    found = [scheme for seconds, scheme in ranked if seconds <= WORTH * ranked[0][0]]
    for ic_bn in channel_blocks(workload.image_channels, lanes) if found else ():
        for oc_bn in channel_blocks(workload.out_channels, lanes):
            if lanes < max(ic_bn, oc_bn) <= 2 * lanes:
                found.append(replace(found[0], ic_bn=ic_bn, oc_bn=oc_bn))
    return tuple(sorted(found, key=lambda scheme: estimate(workload, scheme, target, 1)))
