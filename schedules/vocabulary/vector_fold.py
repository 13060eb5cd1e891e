"""Layout transforms folded into kernels that load and store vectors of channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.scheme import PointwiseScheme, StrassenScheme, WinogradScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

_Scheme = TypeVar("_Scheme", PointwiseScheme, StrassenScheme, WinogradScheme)


def fold(
    workload: Conv2dWorkload,
    scheme: _Scheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> _Scheme | None:
    """Return the scheme with the same tiles for other layouts; None if there is none.

    The kernel can read each pixel's vector of input channels from any block, and store a vector of
    output channels to any block.
    """
    lanes = target.dot_unit(workload.numerics).lanes
    ic_bn, oc_bn = in_layout.block, out_layout.block
    if ic_bn % lanes or oc_bn % lanes:
        return None
    return replace(scheme, ic_bn=ic_bn, oc_bn=oc_bn)
