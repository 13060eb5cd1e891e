"""Which schemes of 1x1 convolutions are worth measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from neocpu.schedules.vocabulary.layout import channel_blocks
from neocpu.schedules.vocabulary.scheme import BlockedScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

Found = TypeVar("Found", bound=BlockedScheme)

# Candidates slower than the best by this factor, by their estimates, are not worth measuring.
WORTH: Final = 1.1


def scheme_space(
    workload: Conv2dWorkload,
    target: CpuTarget,
    variants: Iterable[Found],
    estimate: Callable[[Conv2dWorkload, Found, CpuTarget, int], float],
    threads: int,
) -> tuple[Found, ...]:
    """Return schemes for every pair of input and output blocks, best estimate first.

    How fast a scheme is hardly depends on its layouts. So the smallest blocks get all variants that
    are within a factor of `WORTH` of the best, and pairs of blocks of up to two vectors the best
    one; the templates' ``fold`` brings any to wider blocks.

    Parameters
    ----------
    variants : iterable of BlockedScheme
        Of blocks of one vector; perhaps none.
    estimate : callable
        The template's.
    threads : int
        What variants are compared for.
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
