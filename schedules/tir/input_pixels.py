"""The input of a convolution in TE, as windows find it: as it is stored, or with padding."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from neocpu.schedules.vocabulary.frame_reads import place_of
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def stored_pixels(data: te.Tensor, workload: Conv2dWorkload, each: int) -> Any:
    """Return what windows read that do not reach beyond the input.

    Parameters
    ----------
    each : int
        Channels of a frame's group, or chunks.

    Returns
    -------
    callable
        ``pixel(b, c, h, w, *lane)``: of the output's image, of a channel, or chunk, of all that
        windows read, and of a row and column.
    """
    if workload.frames is None:
        return data

    def pixel(b: Any, c: Any, *place: Any) -> Any:
        image, channel, _ = place_of(workload, b, c, each)
        return data(image, channel, *place)

    return pixel


def padded_pixels(data: te.Tensor, workload: Conv2dWorkload, each: int) -> Any:
    """Return `stored_pixels` with zeros around them: rows and columns are of the padded image."""
    top, left = workload.padding[:2]

    def pixel(b: Any, c: Any, h: Any, w: Any, *lane: Any) -> Any:
        image, channel, inside = place_of(workload, b, c, each)
        inside = (*inside, h >= top, h < workload.height + top)
        inside = (*inside, w >= left, w < workload.width + left)
        value = data(image, channel, h - top, w - left, *lane)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, data.dtype))

    return pixel
