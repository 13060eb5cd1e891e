"""Schemes of depthwise and grouped convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.scheme import StoreFold


@dataclass(frozen=True, slots=True)
class GroupScheme(StoreFold):
    """Base class of schemes for grouped convolutions in NCHW[oc_bn]c, one vector lane per channel.

    - `oc_bn`: the channel block of the input layout, and of the output layout if ``out_bn`` is 0.
    - `reg_n`: the number of output columns of one register tile, which holds one vector of channels
      for each.
    - `unroll_ker`: whether the loop over the rows of the kernel window is unrolled; the loop over
      its columns always is.
    - `out_bn`: the channel block of the output layout if it differs from ``oc_bn``; otherwise 0.
    """

    oc_bn: int
    reg_n: int
    unroll_ker: bool
    out_bn: int = 0

    @property
    def in_layout(self) -> DataLayout:
        return DataLayout(self.oc_bn)


@dataclass(frozen=True, slots=True)
class DepthwiseScheme(GroupScheme):
    """Depthwise convolution: each input channel makes one output channel."""

    template: ClassVar[str] = "conv2d_depthwise"
    words: ClassVar[str] = "Each channel by itself, a vector lane per channel."


@dataclass(frozen=True, slots=True)
class GroupedScheme(GroupScheme):
    """Grouped convolution whose groups have as many output channels as input channels."""

    template: ClassVar[str] = "conv2d_grouped"
    words: ClassVar[str] = "Each group of channels by itself, a vector lane per output channel."
