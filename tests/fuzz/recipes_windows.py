"""Convolutions, poolings, resizing: operators whose windows must fit their images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.fuzz.graph_builder import GraphBuilder, Value

Results = tuple[Value, ...] | None


@dataclass(frozen=True, slots=True)
class _Window:
    """The attributes of one window, those at their defaults left out."""

    kernel: list[int]
    attributes: dict[str, object]


def _image(b: GraphBuilder) -> Value:
    rank = b.rng.weighted([3, 4, 5], [2, 16, 1])
    image = b.choose(lambda v: v.rank == rank and v.dtype == np.float32 and 0 not in v.shape)
    return image if image and b.chance(0.85) else b.new_input(rank=rank)


def _window(b: GraphBuilder, extents: Sequence[int], *, dilated: bool = True) -> _Window:
    kernel, strides, dilations, begin, end = [], [], [], [], []
    square = b.rng.choice([1, 1, 2, 3, 3, 3, 5, 7])
    uneven = b.chance(0.2)
    for extent in extents:
        taps = b.rng.randint(1, 5) if uneven else square
        dilation = b.rng.weighted([1, 2, 3], [8, 1, 1]) if dilated else 1
        pads = [b.rng.randint(0, taps // 2 + uneven) for _ in range(2)]
        if not uneven:
            pads[1] = pads[0]
        while (taps - 1) * dilation + 1 > extent + sum(pads) and taps > 1:
            taps -= 1
        pads = [min(pad, taps - 1) for pad in pads]
        kernel.append(taps)
        dilations.append(dilation)
        strides.append(b.rng.weighted([1, 2, 3], [6, 3, 1]))
        begin.append(pads[0])
        end.append(pads[1])
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if b.chance(0.5):
        attributes["strides"] = strides
    if b.chance(0.12):
        attributes["auto_pad"] = b.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif b.chance(0.7):
        attributes["pads"] = begin + end
    if any(d > 1 for d in dilations) and "auto_pad" not in attributes:
        attributes["dilations"] = dilations
    return _Window(kernel, attributes)


def _groups(b: GraphBuilder, channels: int) -> int:
    if b.chance(0.7):
        return 1
    if (root := math.isqrt(channels)) ** 2 == channels and b.chance(0.3):
        return root  # as many groups as channels of each
    return b.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])


def conv(b: GraphBuilder, op: str) -> Results:
    """A convolution, often depthwise or grouped, with or without a bias."""
    x = _image(b)
    if 0 in x.shape:
        return None
    window = _window(b, x.shape[2:])
    group = _groups(b, x.shape[1])
    outs = group * b.count([1, 1, 2, 3, 5, 8, 16]) if group > 1 else max(b.extent(), 1)
    weight = b.weight(outs, x.shape[1] // group, *window.kernel)
    bias = b.weight(outs) if b.chance(0.5) else None
    return b.add(op, x, weight, bias, group=group, **window.attributes)


def conv_transpose(b: GraphBuilder, op: str) -> Results:
    """A transposed convolution with output padding or a wanted output shape."""
    x = _image(b)
    if 0 in x.shape:
        return None
    window = _window(b, x.shape[2:])
    group = _groups(b, x.shape[1])
    weight = b.weight(x.shape[1], b.count([1, 2, 3, 5]), *window.kernel)
    bias = b.weight(group * weight.shape[1]) if b.chance(0.4) else None
    strides = window.attributes.get("strides", [1] * len(window.kernel))
    assert isinstance(strides, list)
    more = {"output_padding": [s - 1 for s in strides]} if b.chance(0.2) else {}
    if b.chance(0.05):
        more["output_shape"] = [n * s + 1 for n, s in zip(x.shape[2:], strides, strict=True)]
    return b.add(op, x, weight, bias, group=group, **window.attributes, **more)


def pool(b: GraphBuilder, op: str) -> Results:
    """A pooling, in floor or ceil mode."""
    x = _image(b)
    window = _window(b, x.shape[2:], dilated=b.chance(0.3))
    more: dict[str, object] = {}
    if b.chance(0.3):
        more["ceil_mode"] = 1
    if op == "AveragePool" and b.chance(0.4):
        more["count_include_pad"] = 1
    if op == "LpPool" and b.chance(0.5):
        more["p"] = b.rng.choice([1, 2, 3])
    outputs = 2 if op == "MaxPool" and b.chance(0.05) else 1
    return b.add(op, x, outputs=outputs, **window.attributes, **more)


def resize(b: GraphBuilder, op: str) -> Results:
    """Resize by scales or to sizes, in any mode and coordinates; mostly of height and width."""
    x = _image(b)
    if 0 in x.shape:
        return None
    factors = [0.5, 0.6, 1.0, 1.5, 2.0, 2.0, 3.0]
    scales = [1.0, 1.0] + [b.rng.choice(factors) for _ in x.shape[2:]]
    if b.chance(0.1):
        scales = [b.rng.choice(factors) for _ in x.shape]
    if op == "Upsample":
        scales = [max(scale, 1.0) for scale in scales]
    if op == "Upsample" or b.opset < 11:
        return b.add(op, x, scales=scales, mode=b.rng.choice(["nearest", "linear"]))
    return b.add(op, x, **_resize_modes(b), **_resize_extents(b, x, scales))


def _resize_modes(b: GraphBuilder) -> dict[str, object]:
    more: dict[str, object] = {"mode": b.rng.choice(["nearest", "linear", "cubic"])}
    if b.chance(0.6):
        modes = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
        more["coordinate_transformation_mode"] = b.rng.choice([*modes, "half_pixel_symmetric"])
    if b.chance(0.3):
        rounding = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        more["nearest_mode"] = b.rng.choice(rounding)
    if b.chance(0.1):
        more["antialias"] = 1
    if more["mode"] == "cubic" and b.chance(0.2):
        more["exclude_outside"] = 1
    return more


def _resize_extents(b: GraphBuilder, x: Value, scales: list[float]) -> dict[str, object]:
    nothing = np.zeros(0, np.float32) if b.opset < 13 else None
    if b.chance(0.5):
        return {"roi": nothing, "scales": np.array(scales, np.float32)}
    sizes = [max(1, int(n * s)) for n, s in zip(x.shape, scales, strict=True)]
    return {"roi": nothing, "scales": nothing, "sizes": sizes}


def local_response(b: GraphBuilder, op: str) -> Results:
    """LRN over an odd number of channels."""
    more = {"alpha": 0.01, "beta": b.rng.choice([0.5, 0.75, 1.0])} if b.chance(0.5) else {}
    return b.add(op, _image(b), size=b.rng.choice([1, 3, 5, 7]), **more)


def of_image(b: GraphBuilder, op: str) -> Results:
    """An operator of an image and nothing else."""
    return b.add(op, _image(b))


def blocks(b: GraphBuilder, op: str) -> Results:
    """SpaceToDepth and DepthToSpace, of images that divide."""
    size = b.rng.choice([2, 2, 3])
    n, c, h, w = (max(extent, 1) for extent in b.shape(4))
    shape = (n, c, h * size, w * size) if op == "SpaceToDepth" else (n, c * size**2, h, w)
    fits = b.choose(
        lambda v: (
            v.rank == 4
            and v.dtype == np.float32
            and (v.shape[1] % size**2 == 0)
            and (op == "DepthToSpace" or (v.shape[2] % size == 0 and v.shape[3] % size == 0))
        )
    )
    shape = (shape[0], min(shape[1], 45 // size**2 * size**2), min(h, 12) * size, min(w, 12) * size)
    x = fits or b.feed(b.array(shape))
    mode = {"mode": b.rng.choice(["DCR", "CRD"])} if b.chance(0.5) else {}
    return b.add(op, x, blocksize=size, **mode)


def grid_sample(b: GraphBuilder, op: str) -> Results:
    """GridSample at positions in and a little outside the image."""
    x = _image(b)
    if x.rank != 4:
        return None
    h, w = b.near(1, 9), b.near(1, 9)
    grid = b.feed(b.array((x.shape[0], h, w, 2)) / np.float32(1.5))
    modes = ["bilinear", "nearest", "bicubic"] if b.opset < 20 else ["linear", "nearest", "cubic"]
    return b.add(
        op,
        x,
        grid,
        mode=b.rng.choice(modes),
        padding_mode=b.rng.choice(["zeros", "border", "reflection"]),
        align_corners=b.rng.randint(0, 1),
    )


def roi_align(b: GraphBuilder, op: str) -> Results:
    """RoiAlign of a few regions."""
    x = _image(b)
    if x.rank != 4 or 0 in x.shape:
        return None
    count = b.near(1, 5)
    corners = np.sort(np.abs(b.array((count, 2, 2))), axis=1).reshape(count, 4)
    batch = np.arange(count) % x.shape[0]
    return b.add(
        op,
        x,
        b.feed(corners * 3) if b.chance(0.7) else corners,
        batch,
        output_height=b.near(1, 5),
        output_width=b.near(1, 5),
        sampling_ratio=b.rng.randint(0, 2),
        spatial_scale=b.rng.choice([0.5, 1.0]),
    )


def quantised_conv(b: GraphBuilder, op: str) -> Results:
    """ConvInteger or QLinearConv."""
    n, c, h, w = (max(extent, 1) for extent in b.shape(4))
    window = _window(b, (h, w), dilated=False)
    outs = b.count([1, 2, 5, 8])
    unsigned = np.dtype(np.uint8)
    x = b.feed(b.array((n, c, h, w), unsigned))
    weight = b.weight(outs, c, *window.kernel, dtype=unsigned)
    zero, scale = np.uint8(3), np.float32(0.05)
    if op == "ConvInteger":
        return b.add(op, x, weight, np.array(zero), **window.attributes)
    quantised = [np.array(scale), np.array(zero)]
    bias = b.weight(outs, dtype=np.dtype(np.int32)) if b.chance(0.5) else None
    return b.add(
        op, x, *quantised, weight, *quantised, np.array(scale * 4), np.array(zero), bias,
        **window.attributes,
    )  # fmt: skip


RECIPES = {
    **dict.fromkeys("SpaceToDepth DepthToSpace".split(), blocks),
    **dict.fromkeys("Resize Upsample".split(), resize),
    **dict.fromkeys("GlobalAveragePool GlobalMaxPool GlobalLpPool".split(), of_image),
    **dict.fromkeys("MaxPool AveragePool LpPool".split(), pool),
    **dict.fromkeys("ConvInteger QLinearConv".split(), quantised_conv),
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "LRN": local_response,
    "GridSample": grid_sample,
    "RoiAlign": roi_align,
}
