"""Data and kernel layouts: NCHW, NCHW[x]c and OIHW[x]i[y]o (paper §3.1).

A blocked layout splits the channels into ``ceil(C / x)`` chunks of ``x``. When ``x`` does not
divide ``C`` the last chunk is padded, so prime channel counts keep full vectors. Padded channels of
an activation hold unspecified but finite values; packed weights hold zeros there, so these values
never contribute.

A format, which plans choose, is a layout and an element type.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.dtypes import bytes_of


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def channel_blocks(channels: int, lanes: int) -> list[int]:
    """Return the channel blocks worth trying: 1, 2 and 4 vectors, fewer if mostly padding."""
    if channels < lanes:
        return [1 << (channels - 1).bit_length()]  # 3 -> 4, 5 -> 8
    waste = {b: ceil_div(channels, b) * b / channels for b in (lanes, 2 * lanes, 4 * lanes)}
    return [b for b, factor in waste.items() if b == lanes or factor <= 1.15]


@dataclass(frozen=True, slots=True, order=True)
class DataLayout:
    """Layout of a rank-4 feature map: ``NCHW`` (``block == 1``) or ``NCHW[block]c``. ``NCHW`` and
    ``NCHW1c`` are the same bytes, so they are the same layout here.
    """

    block: int = 1

    def __post_init__(self) -> None:
        assert self.block >= 1, self.block

    def __str__(self) -> str:
        return "NCHW" if self.block == 1 else f"NCHW{self.block}c"

    @classmethod
    def parse(cls, text: str) -> DataLayout:
        """Parse ``NCHW`` or ``NCHW16c``. Raises ValueError if ``text`` is not such a layout."""
        match = re.fullmatch(r"NCHW(?:(\d+)c)?", text)
        if match is None or match.group(1) == "0":
            raise ValueError(f"not a data layout: {text!r}; expected NCHW or NCHW[x]c")
        return cls(int(match.group(1) or 1))

    def shape(self, nchw: tuple[int, ...]) -> tuple[int, ...]:
        """Return the physical shape of a feature map whose logical shape is ``(N, C, H, W)``."""
        n, c, h, w = nchw
        return nchw if self.block == 1 else (n, ceil_div(c, self.block), h, w, self.block)

    def divides(self, channels: int) -> bool:
        """Return whether ``channels`` need no padding in this layout."""
        return channels % self.block == 0

    def pack(self, nchw: NDArray[np.generic]) -> NDArray[np.generic]:
        """Convert an NCHW array to this layout, with zeros in padded channels."""
        if self.block == 1:
            return nchw
        n, c, h, w = nchw.shape
        chunks = ceil_div(c, self.block)
        padded = np.pad(nchw, ((0, 0), (0, chunks * self.block - c), (0, 0), (0, 0)))
        blocked = padded.reshape(n, chunks, self.block, h, w).transpose(0, 1, 3, 4, 2)
        return np.ascontiguousarray(blocked)

    def unpack(self, data: NDArray[np.generic], channels: int) -> NDArray[np.generic]:
        """Convert back to NCHW without padded channels; the inverse of `pack`."""
        if self.block == 1:
            return data
        n, chunks, h, w, block = data.shape
        nchw = data.transpose(0, 1, 4, 2, 3).reshape(n, chunks * block, h, w)
        return np.ascontiguousarray(nchw[:, :channels])

    def pack_channels(self, vector: NDArray[np.generic]) -> NDArray[np.generic]:
        """Lay out a per-channel vector ``(C,)`` to broadcast against this layout, padded with 0:
        ``(1, C, 1, 1)`` or ``(1, ceil(C/block), 1, 1, block)``.
        """
        return self.pack(vector.reshape(1, -1, 1, 1))


NCHW = DataLayout(1)


@dataclass(frozen=True, slots=True, order=True)
class KernelLayout:
    """Layout of convolution weights: ``OIHW[x]i[oc_bn]o``, or ``OIHW[x]i[oc_bn]o[dot]i``.

    The physical shape is ``(ceil(O/oc_bn), ceil(I/ic_bn), KH, KW, ic_bn, oc_bn)``, and one vector
    load takes the innermost ``oc_bn`` (paper Figure 1), or, for instructions that add ``dot``
    products to each sum, ``(…, KH, KW, ic_bn/dot, oc_bn, dot)`` with ``x = ic_bn/dot``.
    """

    ic_bn: int
    oc_bn: int
    dot: int = 1

    def __post_init__(self) -> None:
        assert self.ic_bn % self.dot == 0, self

    def __str__(self) -> str:
        inner = f"{self.dot}i" if self.dot > 1 else ""
        return f"OIHW{self.ic_bn // self.dot}i{self.oc_bn}o{inner}"

    @classmethod
    def parse(cls, text: str) -> KernelLayout:
        """Parse ``OIHW16i32o`` or ``OIHW4i16o4i``; ValueError if ``text`` is not such a layout."""
        match = re.fullmatch(r"OIHW([1-9]\d*)i([1-9]\d*)o(?:([1-9]\d*)i)?", text)
        if match is None:
            raise ValueError(
                f"not a kernel layout: {text!r}; expected OIHW[x]i[y]o or OIHW[x]i[y]o[z]i"
            )
        outer, oc_bn, dot = (int(group or 1) for group in match.groups())
        return cls(outer * dot, oc_bn, dot)

    def shape(self, oihw: tuple[int, ...]) -> tuple[int, ...]:
        """Return the physical shape of weights whose logical shape is ``(O, I, KH, KW)``."""
        o, i, kh, kw = oihw
        outer = (ceil_div(o, self.oc_bn), ceil_div(i, self.ic_bn), kh, kw)
        if self.dot == 1:
            return (*outer, self.ic_bn, self.oc_bn)
        return (*outer, self.ic_bn // self.dot, self.oc_bn, self.dot)

    def pack(self, oihw: NDArray[np.generic]) -> NDArray[np.generic]:
        """Convert OIHW weights to this layout, with zeros in padded channels."""
        o, i, kh, kw = oihw.shape
        oc, ic, *_ = physical = self.shape(oihw.shape)
        pad_o, pad_i = oc * self.oc_bn - o, ic * self.ic_bn - i
        if pad_o or pad_i:
            oihw = np.pad(oihw, ((0, pad_o), (0, pad_i), (0, 0), (0, 0)))
        blocked = oihw.reshape(oc, self.oc_bn, ic, self.ic_bn // self.dot, self.dot, kh, kw)
        inner_last = blocked.transpose(0, 2, 5, 6, 3, 1, 4)
        return np.ascontiguousarray(inner_last.reshape(physical))

    def unpack(self, data: NDArray[np.generic], out_ch: int, in_ch: int) -> NDArray[np.generic]:
        """Convert back to OIHW weights of ``out_ch`` by ``in_ch`` channels: inverse of `pack`."""
        oc, ic, kh, kw = data.shape[:4]
        blocked = data.reshape(oc, ic, kh, kw, self.ic_bn // self.dot, self.oc_bn, self.dot)
        outer_first = blocked.transpose(0, 5, 1, 4, 6, 2, 3)
        oihw = outer_first.reshape(oc * self.oc_bn, ic * self.ic_bn, kh, kw)
        return np.ascontiguousarray(oihw[:out_ch, :in_ch])


@dataclass(frozen=True, slots=True, order=True)
class WinogradLayout:
    """Weights transformed for Winograd's convolution: ``(points, O/oc_bn, I, oc_bn)``, for `tile`
    outputs along a dimension of several taps, with channels padded to `ic_bn` and `oc_bn`.
    """

    tile: int
    stride: tuple[int, int]
    ic_bn: int
    oc_bn: int


@dataclass(frozen=True, slots=True, order=True)
class StrassenLayout:
    """Sums of weights for Strassen's 1x1 convolution: ``(O / 2 oc_bn, rows, oc_bn)``, with `half`
    of the input channels in each half, and two register tiles of `oc_bn` outputs in a block.
    """

    half: int
    oc_bn: int


WeightLayout: TypeAlias = KernelLayout | WinogradLayout | StrassenLayout
"""A layout in which kernels read weights: rearranged, or also transformed."""


ALIGNMENT = 64
"""The alignment of feature maps that kernels rely on, in bytes: TVM's ``kAllocAlignment``."""


@dataclass(frozen=True, slots=True, order=True)
class Format:
    """A layout and a key of `DTYPES`; the search takes changes of either for layout transforms."""

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
