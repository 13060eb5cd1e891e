"""The windows of convolutions and pools."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.errors import UsageError

Extents = int | tuple[int, int]
"""The height and width, or one number for both."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The positions to which a kernel is applied; each field is (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(
        cls, kernel: Extents, stride: Extents, padding: Extents, dilation: Extents = 1
    ) -> Windows:
        """Return windows from extents that may be single numbers."""
        return cls(*(_pair(extents) for extents in (kernel, stride, padding, dilation)))

    def over(self, image: tuple[int, int], ceil_mode: bool = False) -> tuple[int, ...]:
        """Return the number of windows of an image, by height and width, each at least 1."""
        counts = []
        for size, kernel, stride, padding, dilation in zip(
            image, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            span = size + 2 * padding - dilation * (kernel - 1) - 1
            count = (ceil(span / stride) if ceil_mode else span // stride) + 1
            # The last window must not lie in the padding alone.
            if ceil_mode and (count - 1) * stride >= size + padding:
                count -= 1
            if count < 1:
                raise UsageError(
                    f"the image is too small: a window of {kernel} does not fit {size} pixels"
                )
            counts.append(count)
        return tuple(counts)


def _pair(extents: Extents) -> tuple[int, int]:
    return extents if isinstance(extents, tuple) else (extents, extents)


def adaptive_windows(size: int, count: int) -> NDArray[np.float32]:
    """Return the ``(count, size)`` matrix of PyTorch's adaptive average over ``size`` pixels."""
    windows = np.zeros((count, size), np.float32)
    for i in range(count):
        start, stop = i * size // count, -(-(i + 1) * size // count)
        windows[i, start:stop] = 1 / (stop - start)
    return windows
