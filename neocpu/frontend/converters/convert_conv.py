"""Convolutions with explicit padding on every side.

TVM's importer pads the data in an operator of its own for ``auto_pad`` and ignores
``output_shape``; later passes want the padding as an attribute of the convolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import Node, const, constant_value, per_channel

_CONV = {
    2: (relax.op.nn.conv2d, "NCHW", "OIHW"),
    3: (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
}
_CONV_TRANSPOSE = {
    1: (relax.op.nn.conv1d_transpose, "NCW", "IOW"),
    2: (relax.op.nn.conv2d_transpose, "NCHW", "IOHW"),
    3: (relax.op.nn.conv3d_transpose, "NCDHW", "IODHW"),
}


def split_evenly(totals: Sequence[int], auto_pad: str) -> list[int]:
    """Return begin and end pads from their sums, the odd one where ``auto_pad`` wants it."""
    smaller = [total // 2 for total in totals]
    larger = [total - half for total, half in zip(totals, smaller, strict=True)]
    return smaller + larger if auto_pad == "SAME_UPPER" else larger + smaller


def resolve_pads(node: Node, kernel: Sequence[int]) -> list[int]:
    """Return a convolution's or pooling's begin and end pads, ``auto_pad`` resolved."""
    spatial = node.shape()[2:]
    auto_pad = node.string("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return [0] * (2 * len(spatial))
    if auto_pad == "NOTSET":
        return node.ints("pads", [0] * (2 * len(spatial)))
    strides = node.ints("strides", [1] * len(spatial))
    dilations = node.ints("dilations", [1] * len(spatial))
    totals = [
        max((-(-extent // stride) - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        for extent, stride, k, dilation in zip(spatial, strides, kernel, dilations, strict=True)
    ]
    return split_evenly(totals, auto_pad)


def _dimensions(node: Node) -> int:
    dimensions = len(node.shape()) - 2
    if dimensions not in _CONV_TRANSPOSE:
        raise ValueError(f"only 1-D, 2-D and 3-D convolutions are supported, not {dimensions}-D")
    return dimensions


def _add_bias(node: Node, result: relax.Expr) -> relax.Expr:
    bias = node.optional(2)
    if bias is None:
        return result
    return relax.op.add(node.emit(result), per_channel(bias, len(node.shape())))


def conv(node: Node) -> relax.Expr:
    """Conv: one Relax convolution, plus an addition for the bias."""
    dimensions = _dimensions(node)
    if dimensions == 1:
        return _conv_of_rows(node)
    op, data_layout, kernel_layout = _CONV[dimensions]
    result = op(
        node.inputs[0],
        node.inputs[1],
        strides=node.ints("strides", [1] * dimensions),
        padding=resolve_pads(node, node.shape(1)[2:]),
        dilation=node.ints("dilations", [1] * dimensions),
        groups=int(node.attrs.get("group", 1)),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    return _add_bias(node, result)


def _conv_of_rows(node: Node) -> relax.Expr:
    """Return a convolution of one dimension as one of images of one row, whose templates it gets.

    The bias is added to the image, for it to become a part of the convolution.
    """
    data, weights, *bias = node.inputs
    first, last = resolve_pads(node, node.shape(1)[2:])
    image = replace(
        node,
        inputs=[
            node.emit(relax.op.expand_dims(data, 2)),
            node.emit(relax.op.expand_dims(weights, 2)),
            *bias,
        ],
        attrs={
            "group": node.attrs.get("group", 1),
            "strides": (1, *node.ints("strides", [1])),
            "dilations": (1, *node.ints("dilations", [1])),
            "pads": (0, first, 0, last),
        },
    )
    return relax.op.squeeze(node.emit(conv(image)), [2])


def conv_transpose(node: Node) -> relax.Expr:
    """ConvTranspose, with ``auto_pad`` and ``output_shape`` turned into pads."""
    dimensions = _dimensions(node)
    op, data_layout, kernel_layout = _CONV_TRANSPOSE[dimensions]
    strides = node.ints("strides", [1] * dimensions)
    dilations = node.ints("dilations", [1] * dimensions)
    output_padding = node.ints("output_padding", [0] * dimensions)
    pads = _transpose_pads(node, strides, dilations, output_padding)
    # A negative pad would be more output: that is what output padding means at the end.
    for axis in range(dimensions):
        end = pads[dimensions + axis]
        if end < 0:
            output_padding[axis] -= end
            pads[dimensions + axis] = 0
        if pads[axis] < 0:
            raise ValueError("output_shape is larger than the convolution's full output")
    if (subpixel := _subpixel(node, strides, dilations, pads, output_padding)) is not None:
        return subpixel
    result = op(
        node.inputs[0],
        node.inputs[1],
        strides=strides,
        padding=pads,
        output_padding=output_padding,
        dilation=dilations,
        groups=int(node.attrs.get("group", 1)),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    return _add_bias(node, result)


def _subpixel(
    node: Node,
    strides: list[int],
    dilations: list[int],
    pads: list[int],
    output_padding: list[int],
) -> relax.Expr | None:
    """Return a transposed convolution as a convolution and a shuffle of pixels, or None.

    Of the outputs ``q * stride + r``, those of one remainder ``r`` are a convolution with the taps
    ``r, r + stride, ...`` (Shi et al., CVPR 2016). All remainders together are one convolution with
    that many times the channels, which the layout search knows how to compute fast.
    """
    weights, rank = constant_value(node.inputs[1]), len(strides)
    if weights is None or rank not in _CONV or int(node.attrs.get("group", 1)) != 1:
        return None
    data, kernel = node.shape(), weights.shape[2:]
    taps = [-(-k // stride) for k, stride in zip(kernel, strides, strict=True)]
    sizes = [
        (extent - 1) * stride + k - pads[axis] - pads[rank + axis] + output_padding[axis]
        for axis, (extent, stride, k) in enumerate(zip(data[2:], strides, kernel, strict=True))
    ]
    rows = [extent + tap - 1 for extent, tap in zip(data[2:], taps, strict=True)]
    ends = [pads[axis] + sizes[axis] for axis in range(rank)]
    if set(dilations) != {1} or any(
        end > count * stride for end, count, stride in zip(ends, rows, strides, strict=True)
    ):
        return None
    padding = [tap - 1 for tap in (*taps, *taps)]
    kernels = const(_by_remainder(weights, strides, taps))
    convolution, *_ = _CONV[rank]
    result = node.emit(convolution(node.inputs[0], kernels, padding=padding))
    bias = node.optional(2)
    if bias is not None and (values := constant_value(bias)) is not None:
        each = const(np.tile(values, math.prod(strides)))
        result = node.emit(relax.op.add(result, per_channel(each, 2 + rank)))
    outs = weights.shape[1]
    split = relax.op.reshape(result, [data[0], *strides, outs, *rows])
    axes = [place for axis in range(1, 1 + rank) for place in (1 + rank + axis, axis)]
    order = node.emit(relax.op.permute_dims(split, [0, 1 + rank, *axes]))
    extents = [count * stride for count, stride in zip(rows, strides, strict=True)]
    result = node.emit(relax.op.reshape(order, [data[0], outs, *extents]))
    if any(pads[:rank]) or ends != extents:
        result = relax.op.strided_slice(result, [*range(2, 2 + rank)], pads[:rank], ends)
    if bias is not None and constant_value(bias) is None:
        return _add_bias(node, result)
    return result


def _by_remainder(weights: np.ndarray, strides: Sequence[int], taps: Sequence[int]) -> np.ndarray:
    """Return IOHW weights as one OIHW kernel per remainder and output, missing taps zero."""
    ins, outs, *kernel = weights.shape
    missing = [tap * stride - k for tap, stride, k in zip(taps, strides, kernel, strict=True)]
    padded = np.pad(weights, ((0, 0), (0, 0), *((0, more) for more in missing)))
    pairs = [size for pair in zip(taps, strides, strict=True) for size in pair]
    split = padded.reshape(ins, outs, *pairs)
    tap_axes, remainders = range(2, split.ndim, 2), range(3, split.ndim, 2)
    # A transposed convolution runs through its taps backwards.
    ordered = np.flip(split, (*tap_axes,)).transpose(*remainders, 1, 0, *tap_axes)
    return np.ascontiguousarray(ordered.reshape(-1, ins, *taps))


def _transpose_pads(
    node: Node, strides: list[int], dilations: list[int], output_padding: list[int]
) -> list[int]:
    auto_pad = node.string("auto_pad", "NOTSET")
    spatial, kernel = node.shape()[2:], node.shape(1)[2:]
    wanted = node.ints("output_shape", [])
    if not wanted and auto_pad in ("NOTSET", "VALID"):
        zeros = [0] * (2 * len(spatial))
        return zeros if auto_pad == "VALID" else node.ints("pads", zeros)
    if not wanted:
        wanted = [extent * stride for extent, stride in zip(spatial, strides, strict=True)]
    totals = [
        stride * (extent - 1) + extra + (k - 1) * dilation + 1 - output
        for extent, stride, extra, k, dilation, output in zip(
            spatial,
            strides,
            output_padding,
            kernel,
            dilations,
            wanted[-len(spatial) :],
            strict=True,
        )
    ]
    negative = [min(total, 0) for total in totals]
    pads = split_evenly([max(total, 0) for total in totals], auto_pad)
    for axis, missing in enumerate(negative):
        pads[len(spatial) + axis] += missing
    return pads
