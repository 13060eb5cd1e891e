"""Formats: the layout and element type of a feature map, which plans choose."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout

ALIGNMENT = 64
"""The alignment of feature maps that kernels rely on, in bytes: TVM's ``kAllocAlignment``."""


@dataclass(frozen=True, slots=True, order=True)
class Format:
    """A layout and an element type.

    The search treats a change of either as a layout transform: of blocks, of precision, or of both.

    `dtype` is a key of `neocpu.foundation.dtypes.DTYPES`.
    """

    layout: DataLayout
    dtype: str

    def __str__(self) -> str:
        return f"{self.layout} {self.dtype}"

    @property
    def plain(self) -> Format:
        return Format(NCHW, self.dtype)

    def shape(self, nchw: tuple[int, ...]) -> tuple[int, ...]:
        """Return the physical shape of a feature map whose logical shape is ``(N, C, H, W)``."""
        return self.layout.shape(nchw)

    def bytes(self, nchw: tuple[int, ...]) -> int:
        """Return the bytes of a feature map of shape ``(N, C, H, W)``, with padded channels."""
        return math.prod(self.shape(nchw)) * bytes_of(self.dtype)

    def strides(self, nchw: tuple[int, ...]) -> tuple[int, ...]:
        """Return the bytes between neighbours along each axis of the physical shape."""
        shape, element = self.shape(nchw), bytes_of(self.dtype)
        return tuple(element * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

    def pack(self, nchw: NDArray[np.generic]) -> NDArray[np.generic]:
        """Convert an NCHW array of `dtype` to this format, with zeros in padded channels."""
        assert nchw.dtype == self.dtype, (nchw.dtype, self.dtype)
        return self.layout.pack(nchw)

    def unpack(self, data: NDArray[np.generic], channels: int) -> NDArray[np.generic]:
        """Convert back from this format; the inverse of `pack`."""
        return self.layout.unpack(data, channels)
