"""Volumes as the frames that they are made of: how a window reaches through the depth.

A feature map of volumes ``(V, C, D, H, W)`` is kept as one of images ``(V * D, C, H, W)``, frame by
frame. A convolution over volumes is then one over images, in any of their layouts, whose input
channels are those of all frames under the window: only where a kernel finds them differs.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EXTENT = 1 << 31
"""Pixels, channels or frames along an axis: far more than a tensor that fits a memory has."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The windows along the depth of volumes.

    Attributes
    ----------
    depth : int
        Frames of a volume that is read.
    kernel : int
        Frames under the window.
    padding : tuple of int
        Frames of zeros before and after a volume.
    """

    depth: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int] = (0, 0)

    @property
    def out_depth(self) -> int:
        """Frames of a volume that is written."""
        span = self.dilation * (self.kernel - 1) + 1
        return (self.depth + sum(self.padding) - span) // self.stride + 1

    @property
    def reads_outside(self) -> bool:
        """Whether a window reaches beyond a volume."""
        last = (self.out_depth - 1) * self.stride + (self.kernel - 1) * self.dilation
        return self.padding[0] > 0 or last - self.padding[0] >= self.depth

    def to_json(self) -> list[int]:
        """JSON form."""
        return [self.depth, self.kernel, self.stride, self.dilation, *self.padding]

    @classmethod
    def from_json(cls, data: list[int]) -> Frames:
        """Inverse of `to_json`.

        Raises
        ------
        ValueError, TypeError
            If ``data`` are not such windows.
        """
        if any(type(size) is not int or not 0 <= size <= MAX_EXTENT for size in data):
            raise ValueError(f"not the windows along a depth: {data!r}")
        depth, kernel, stride, dilation, before, after = data
        found = cls(depth, kernel, stride, dilation, (before, after))
        if min(depth, kernel, stride, dilation, found.out_depth) <= 0:
            raise ValueError(f"impossible windows along a depth: {data!r}")
        return found
