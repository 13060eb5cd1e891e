"""Grouped convolution in NCHW[x]c: the depthwise kernel with a loop over input channels.

A lane is still an output channel, so groups narrower than a vector waste no lanes: a vector of
outputs reads the same lanes of the input, and one shuffle spreads a channel of each group over its
group. Each spread pixel serves every column whose window contains it.

Bytes of groups narrower than a vector are spread four at a time, for instructions that add up four
products (VPDPBUSD). This is done a row at a time, once for all output rows that read it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from neocpu.schedules.convolutions.in_groups import conv2d_depthwise
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.scheme import GroupedScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def applies(workload: Conv2dWorkload, target: CpuTarget) -> bool:
    """Return whether groups have equally many inputs and outputs, in whole or partial vectors."""
    numerics = workload.numerics
    unit = target.find_dot_unit(numerics)
    if unit is None or workload.prologue:
        return False
    width, lanes = workload.image_channels // workload.groups, unit.lanes
    if not numerics.computes_in_float32 and not _adds_products(workload, unit):
        return False
    if width >= lanes and not numerics.reads_float32:
        return False
    return (
        workload.groups > 1 < width
        and workload.image_channels == workload.out_channels
        and (width % lanes == 0 or lanes % width == 0)
    )


def _adds_products(workload: Conv2dWorkload, unit: DotUnit) -> bool:
    """Return whether x86 adds up products of whole words of a group; left-out pixels must be 0."""
    return (
        unit.group == 4
        and bool(unit.intrinsic)
        and not unit.by_lane
        and workload.image_channels // workload.groups % unit.group == 0
        and workload.image_channels >= unit.lanes
        and workload.frames is None
        and not workload.pads_with_zero_point
    )


TEMPLATE = replace(
    conv2d_depthwise.TEMPLATE,
    scheme=GroupedScheme,
    version=1,
    applies=applies,
    space=partial(conv2d_depthwise.schemes_of, GroupedScheme),
)
