"""Formats: how a feature map lies in memory and what of, which is what plans choose."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout

ALIGNMENT = 64
"""Bytes that kernels take feature maps to be aligned to: TVM's ``kAllocAlignment``."""


@dataclass(frozen=True, slots=True, order=True)
class Format:
    """A layout and an element type.

    A change of either is a layout transform to the search: of blocks, of precision, or of both.

    Attributes
    ----------
    layout : DataLayout
    dtype : str
        A key of `neocpu.foundation.dtypes.DTYPES`.
    """

    layout: DataLayout
    dtype: str

    def __str__(self) -> str:
        return f"{self.layout} {self.dtype}"

    @property
    def plain(self) -> Format:
        """NCHW of the same elements."""
        return Format(NCHW, self.dtype)

    def shape(self, nchw: tuple[int, ...]) -> tuple[int, ...]:
        """Physical shape of a feature map whose logical shape is ``(N, C, H, W)``."""
        return self.layout.shape(nchw)

    def bytes(self, nchw: tuple[int, ...]) -> int:
        """Bytes of a feature map whose logical shape is ``(N, C, H, W)``, padded lanes included."""
        return math.prod(self.shape(nchw)) * bytes_of(self.dtype)

    def strides(self, nchw: tuple[int, ...]) -> tuple[int, ...]:
        """Bytes between neighbours along each axis of the physical shape."""
        shape, element = self.shape(nchw), bytes_of(self.dtype)
        return tuple(element * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

    def pack(self, nchw: NDArray[np.generic]) -> NDArray[np.generic]:
        """Bring an NCHW array of `dtype` into this format, padded lanes zero."""
        assert nchw.dtype == self.dtype, (nchw.dtype, self.dtype)
        return self.layout.pack(nchw)

    def unpack(self, data: NDArray[np.generic], channels: int) -> NDArray[np.generic]:
        """Inverse of `pack`."""
        return self.layout.unpack(data, channels)
