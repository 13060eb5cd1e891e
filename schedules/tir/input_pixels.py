"""The pixels and depth slices that windows of a convolution read."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.frames import Frames
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def stored_pixels(data: te.Tensor, workload: Conv2dWorkload, each: int) -> Any:
    """Return the reader ``pixel(b, c, h, w, *lane)`` for windows within the input, of the output's
    image, the channel or chunk among all that windows read, row and column. `each` counts channels
    or chunks in one group of one depth slice.
    """
    if workload.frames is None:
        return data

    def pixel(b: Any, c: Any, *place: Any) -> Any:
        image, channel, _ = place_of(workload, b, c, each)
        return data(image, channel, *place)

    return pixel


def padded_pixels(data: te.Tensor, workload: Conv2dWorkload, each: int) -> Any:
    """Return `stored_pixels` with zeros around them, indexed by rows and columns with padding."""
    top, left = workload.padding[:2]

    def pixel(b: Any, c: Any, h: Any, w: Any, *lane: Any) -> Any:
        image, channel, inside = place_of(workload, b, c, each)
        inside = (*inside, h >= top, h < workload.height + top)
        inside = (*inside, w >= left, w < workload.width + left)
        value = data(image, channel, h - top, w - left, *lane)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, data.dtype))

    return pixel


def taps_inside(frames: Frames, start: Any) -> tuple[Any, Any]:
    """Return the first tap of a window with a slice of the volume, and the number of such taps,
    from slice `start` on, which may lie before the volume.
    """
    first = T.Bind(T.max((frames.dilation - 1 - start) // frames.dilation, 0))
    ahead = (frames.depth - start + frames.dilation - 1) // frames.dilation
    return first, T.Bind(T.max(T.min(ahead, frames.kernel) - first, 0))
