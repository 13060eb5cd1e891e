"""Convolutions with explicit padding on every side.

TVM's importer pads the data in an operator of its own for ``auto_pad`` and ignores
``output_shape``; later passes want the padding as an attribute of the convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import relax

from neocpu.frontend.converters.node import Node, per_channel

CONV = {
    2: (relax.op.nn.conv2d, "NCHW", "OIHW"),
    3: (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
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


def dimensions_of(node: Node) -> int:
    """Return how many dimensions images have."""
    dimensions = len(node.shape()) - 2
    if dimensions not in (1, *CONV):
        raise ValueError(f"only 1-D, 2-D and 3-D convolutions are supported, not {dimensions}-D")
    return dimensions


def add_bias(node: Node, result: relax.Expr) -> relax.Expr:
    """Add the third input, if there is one, to each channel."""
    bias = node.optional(2)
    if bias is None:
        return result
    return relax.op.add(node.emit(result), per_channel(bias, len(node.shape())))


def conv(node: Node) -> relax.Expr:
    """Conv: one Relax convolution, plus an addition for the bias."""
    dimensions = dimensions_of(node)
    if dimensions == 1:
        return _conv_of_rows(node)
    op, data_layout, kernel_layout = CONV[dimensions]
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
    return add_bias(node, result)


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
