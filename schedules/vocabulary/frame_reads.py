"""Indices into the depth slices of a volume, for convolutions over volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def reads_outside(workload: Conv2dWorkload) -> bool:
    """Return whether windows reach beyond the first or the last depth slice of a volume."""
    return workload.frames is not None and workload.frames.reads_outside


def frame_of(workload: Conv2dWorkload, image: Any, tap: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return slice ``tap``'s image of output `image`'s window, and conditions that it exists."""
    frames = workload.frames
    if frames is None:
        return image, ()
    place = image if workload.volumes == 1 else image % frames.out_depth
    depth = place * frames.stride + tap * frames.dilation - frames.padding[0]
    inside = (depth >= 0, depth < frames.depth) if frames.reads_outside else ()
    if workload.volumes == 1:
        return depth, inside
    return image // frames.out_depth * frames.depth + depth, inside


def place_of(
    workload: Conv2dWorkload, image: Any, channel: Any, each: int
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return the input image and channel of a window's channel, and conditions that it exists, for
    output `image`. `channel` counts all channels, or chunks, that a window reads, and `each` those
    in one group of one depth slice.
    """
    if workload.frames is None:
        return image, channel, ()
    group, own = 0, channel
    if workload.groups > 1:
        whole = each * workload.frames.kernel
        group, own = channel // whole * each, channel % whole
    found, inside = frame_of(workload, image, own // each)
    return found, group + own % each, inside


def in_whole_blocks(workload: Conv2dWorkload, scheme: Scheme) -> Conv2dWorkload:
    """Return a convolution over depth slices with whole blocks of channels in each slice; others
    unchanged, and those in groups, which would have to skip channels between slices.
    """
    frames, block = workload.frames, scheme.in_layout.block
    if frames is None or workload.groups > 1:
        return workload
    channels = ceil_div(workload.image_channels, block) * block
    return replace(workload, in_channels=channels * frames.kernel)


def weights_of(
    weights: NDArray[np.generic], workload: Conv2dWorkload, blocked: Conv2dWorkload
) -> NDArray[np.generic]:
    """Return OIHW weights of ``workload`` as those of `in_whole_blocks`, with zeros in between."""
    frames, more = workload.frames, blocked.image_channels - workload.image_channels
    if frames is None or more == 0:
        return weights
    outs, _, *taps = weights.shape
    apart = weights.reshape(outs, frames.kernel, workload.image_channels, *taps)
    padded = np.pad(apart, ((0, 0), (0, 0), (0, more), (0, 0), (0, 0)))
    return padded.reshape(outs, -1, *taps)


def turned(workload: Conv2dWorkload) -> Conv2dWorkload:
    """Return a convolution along depth alone as one along the rows of images, one a volume, with
    slices as rows and their pixels as columns; others unchanged.
    """
    frames, (height, width) = workload.frames, (workload.height, workload.width)
    within = (workload.kernel, workload.stride, workload.padding, workload.groups)
    if frames is None or frames.kernel == 1 or within != ((1, 1), (1, 1), (0, 0, 0, 0), 1):
        return workload
    return replace(
        workload,
        batch=workload.volumes,
        in_channels=workload.image_channels,
        height=frames.depth,
        width=height * width,
        kernel=(frames.kernel, 1),
        stride=(frames.stride, 1),
        padding=(frames.padding[0], 0, frames.padding[1], 0),
        dilation=(frames.dilation, 1),
        frames=None,
    )
