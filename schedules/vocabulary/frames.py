"""Depth slices: how a convolution's window reaches through the depth of a volume.

A feature map of volumes ``(V, C, D, H, W)`` is stored as images ``(V * D, C, H, W)``, one a depth
slice. A convolution over volumes is then one over images, in any layout, whose input channels are
those of all slices under the window: only the place where a kernel finds them differs.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EXTENT = 1 << 31
"""The largest extent of an axis: far more than a tensor that fits in memory has."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The windows along the depth of volumes: depth slices of an input volume, of the window, and
    of zeros before and after a volume.
    """

    depth: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int] = (0, 0)

    @property
    def out_depth(self) -> int:
        span = self.dilation * (self.kernel - 1) + 1
        return (self.depth + sum(self.padding) - span) // self.stride + 1

    @property
    def reads_outside(self) -> bool:
        last = (self.out_depth - 1) * self.stride + (self.kernel - 1) * self.dilation
        return self.padding[0] > 0 or last - self.padding[0] >= self.depth

    def to_json(self) -> list[int]:
        return [self.depth, self.kernel, self.stride, self.dilation, *self.padding]

    @classmethod
    def from_json(cls, data: list[int]) -> Frames:
        """Invert `to_json`; ValueError or TypeError if ``data`` describes no such windows."""
        if any(type(size) is not int or not 0 <= size <= MAX_EXTENT for size in data):
            raise ValueError(f"not the windows along a depth: {data!r}")
        depth, kernel, stride, dilation, before, after = data
        found = cls(depth, kernel, stride, dilation, (before, after))
        if min(depth, kernel, stride, dilation, found.out_depth) <= 0:
            raise ValueError(f"impossible windows along a depth: {data!r}")
        return found
