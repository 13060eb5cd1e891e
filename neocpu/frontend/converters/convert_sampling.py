"""Operators that sample images at computed positions: GridSample and pooling of regions.

The kernels of regions convert such positions to integers. NaN and positions far outside the image
would be undefined there, or take very long, so they are replaced before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_lookup import within
from neocpu.frontend.converters.node import Converters, Node, const, dtype_of, scalar
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.indexing.grid_sample import (
    LANES,
    GridSampleWorkload,
    lower_grid_sample,
)
from neocpu.schedules.operators.indexing.roi_align import LANES as REGION_LANES
from neocpu.schedules.operators.indexing.roi_align import RoiAlignWorkload, lower_roi_align

_MODES = {
    "nearest": "nearest",
    **dict.fromkeys(("linear", "bilinear"), "linear"),
    **dict.fromkeys(("cubic", "bicubic"), "cubic"),
}
# Images of many channels are transposed for GridSample if their pixels are at most this many times
# the points.
_OFTEN = 4
MAX_TAPS = 64  # the most pixels that a point is interpolated from: those of a cubic in a volume
# A region reaches at most this many image extents beyond the image, on each side. The first margin
# is for bins with as many samples as pixels; the second only keeps positions finite.
_MARGIN, _FAR_MARGIN = 2, 1 << 20
# Pixels beyond small images, because regions may be many times as large as these.
_LEAST_MARGIN = 64
MAX_SAMPLES = 256
"""The most samples of a bin in each dimension: the extent of the largest feature maps."""


def _grid_sample(node: Node) -> relax.Expr:
    """GridSample; a coordinate that is not a number counts as -1, as in PyTorch."""
    data, grid = node.inputs[:2]
    (images, channels, *extents), (*before, rank) = node.shape(), node.shape(1)
    if len(before) != len(extents) + 1 or (before[0], rank) != (images, len(extents)):
        raise ValueError(
            f"its grid {list(node.shape(1))} does not fit its data {list(node.shape())}"
        )
    padding, align = node.string("padding_mode", "zeros"), node.flag("align_corners")
    if padding == "reflection" and align and min(extents) < 2:
        raise ValueError("to reflect at the centres of pixels takes at least two of them")
    pixels, points, dtype = math.prod(extents), math.prod(before[1:]), dtype_of(data)
    if dtype in ("bool", "int64", "uint64"):
        raise ValueError(f"its data are {dtype}; numbers of up to 32 bits and floats are supported")
    workload = GridSampleWorkload(
        images=images,
        channels=channels,
        extents=tuple(extents),
        points=points,
        mode=_MODES[node.string("mode", "linear")],
        padding=padding,
        align_corners=align,
        channels_last=channels >= LANES and pixels <= _OFTEN * points,
        dtype=dtype,
        grid_dtype=dtype_of(grid),
    )
    if len(workload.taps) > MAX_TAPS:
        raise ValueError(f"each of its points is made of more than {MAX_TAPS} pixels")
    flat = node.op.reshape(data, (images, channels, pixels))
    if workload.channels_last:
        flat = node.op.permute_dims(flat, [0, 2, 1])
    places = node.op.reshape(grid, (images, points, rank))
    results = [(workload.shape(points), dtype)]
    batch_rows = KernelRows(workload.computes, [([0, 0], [0])])
    kernel = lower_grid_sample(workload)
    found = node.call("grid_sample", kernel, [flat, places], results, batch_rows)
    if workload.channels_last:
        found = node.op.permute_dims(found, [0, 2, 1])
    return relax.op.reshape(found, (images, channels, *before[1:]))


def aligned_regions(node: Node, count: Sequence[relax.Expr] = ()) -> relax.Expr:
    """Convert RoiAlign; images and corners outside move to the nearest, NaN to 0.

    If there is a ``count``, regions beyond it are zero.
    """
    workload, (data, *others) = _region_arguments(node, counted=bool(count))
    if workload.channels_last:
        data = node.op.permute_dims(data, [0, 2, 3, 1])
    results, args = [(workload.output, "float32")], [data, *others, *count]
    return node.call("roi_align", lower_roi_align(workload), args, results)


def _region_arguments(node: Node, *, counted: bool) -> tuple[RoiAlignWorkload, list[relax.Expr]]:
    """Return the workload of a RoiAlign, and its kernel's arguments: data, corners and images."""
    data, regions, images = node.inputs[:3]
    if {dtype_of(data), dtype_of(regions)} != {"float32"}:
        raise ValueError("only float32 data and regions are supported")
    samples = max(0, int(node.attrs.get("sampling_ratio", 0)))
    if samples > MAX_SAMPLES:
        raise ValueError(f"its sampling_ratio {samples} is more than {MAX_SAMPLES}")
    scale = _scale(node)
    half = node.string("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    workload = RoiAlignWorkload(
        data=node.shape(),
        regions=node.shape(1)[0],
        bins=(int(node.attrs.get("output_height", 1)), int(node.attrs.get("output_width", 1))),
        samples=samples,
        scale=scale,
        offset=0.5 if half else 0.0,
        least=None if half else 1.0,
        counted=counted,
        largest=node.string("mode", "avg").lower() == "max",
    )
    if len(workload.data) != 4 or node.shape(1) != (workload.regions, 4):
        raise ValueError(f"its regions {list(node.shape(1))} do not fit its data")
    if node.shape(2) != (workload.regions,):
        raise ValueError(f"its batch_indices {list(node.shape(2))} do not fit its regions")
    count, channels, *extents = workload.data
    often = count * math.prod(extents) <= _OFTEN * workload.regions * math.prod(workload.bins)
    workload = replace(workload, channels_last=often and channels >= REGION_LANES)
    margin = _FAR_MARGIN if samples else _MARGIN
    corners = _corners(node, numbers(node, regions, 0.0), scale, margin)
    return workload, [data, corners, within(node, images, workload.data[0])]


def _max_roi_pool(node: Node) -> relax.Expr:
    """MaxRoiPool; images and corners outside are moved to the nearest, NaN to 0."""
    data, regions = node.inputs[:2]
    clean = numbers(node, regions, 0.0)
    last = node.shape()[0] - 1
    image = relax.op.clip(node.op.strided_slice(clean, [1], [0], [1]), 0, last)
    corners = node.op.strided_slice(clean, [1], [1], [5])
    scaled = node.op.multiply(corners, scalar(_scale(node), corners))
    # Halves round away from zero. TVM rounds negative halves up.
    size = node.op.floor(relax.op.add(relax.op.abs(scaled), scalar(0.5, scaled)))
    pixels = node.op.multiply(relax.op.sign(scaled), size)
    both = [node.emit(image), _corners(node, pixels, 1.0, _MARGIN)]
    pooled = tuple(node.ints("pooled_shape", ()))
    return relax.op.vision.roi_pool(data, node.op.concat(both, axis=1), pooled, 1.0)


def numbers(node: Node, values: relax.Expr, otherwise: float) -> relax.Expr:
    """Return values with ``otherwise`` in place of NaN."""
    nothing = node.op.isnan(values)
    return node.op.where(nothing, scalar(otherwise, values), values)


def _scale(node: Node) -> float:
    scale = node.number("spatial_scale", 1.0)
    if not 0 < scale < math.inf:
        raise ValueError(f"its spatial_scale {scale:g} is not a positive number")
    return scale


def _corners(node: Node, regions: relax.Expr, scale: float, margin: int) -> relax.Expr:
    """Return the corners ``(x1, y1, x2, y2)`` of regions, at most ``margin`` images outside."""
    height, width = node.shape()[2:]
    extents = np.array([[width, height, width, height]])
    beyond = np.maximum(margin * extents, _LEAST_MARGIN)
    dtype = dtype_of(regions)
    low, high = (const((k / scale).astype(dtype)) for k in (-beyond, extents + beyond))
    return node.op.minimum(node.op.maximum(regions, low), high)


CONVERTERS: Converters = {
    "GridSample": _grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": aligned_regions,
}
