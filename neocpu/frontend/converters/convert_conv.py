"""Convolutions with explicit padding on every side, and Col2Im, for which TVM has no kernel.

TVM's importer pads the data with a separate operator for ``auto_pad`` and ignores
``output_shape``; our later passes need the padding as an attribute of the convolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tvm import relax

from neocpu.frontend.checks.model_limits import MAX_PARTS
from neocpu.frontend.converters.node import (
    Converters,
    Node,
    depends_on_inputs,
    dtype_of,
    per_channel,
)
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.movement.columns import (
    ColumnsWorkload,
    lower_columns_to_image,
    lower_image_to_columns,
)

MOST_COLUMNS = 1 << 24  # the most elements of a copy of the data with one for each tap: 64 MiB

CONV = {2: (relax.op.nn.conv2d, "NCHW", "OIHW"), 3: (relax.op.nn.conv3d, "NCDHW", "OIDHW")}


def split_evenly(totals: Sequence[int], auto_pad: str) -> list[int]:
    """Return begin and end pads from their sums, the odd one on the side that ``auto_pad`` says."""
    smaller = [total // 2 for total in totals]
    larger = [total - half for total, half in zip(totals, smaller, strict=True)]
    return smaller + larger if auto_pad == "SAME_UPPER" else larger + smaller


def resolve_pads(node: Node, kernel: Sequence[int]) -> list[int]:
    """Return the begin and end pads of a convolution or pooling, with ``auto_pad`` resolved."""
    spatial = node.shape()[2:]
    auto_pad = node.string("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return [0] * (2 * len(spatial))
    if auto_pad == "NOTSET":
        return node.ints("pads", [0] * (2 * len(spatial)))
    strides, dilations = node.steps(len(spatial))
    totals = [
        max((-(-extent // stride) - 1) * stride + (k - 1) * dilation + 1 - extent, 0)
        for extent, stride, k, dilation in zip(spatial, strides, kernel, dilations, strict=True)
    ]
    return split_evenly(totals, auto_pad)


def dimensions_of(node: Node) -> int:
    dimensions = len(node.shape()) - 2
    if dimensions not in (1, *CONV):
        raise ValueError(f"only 1-D, 2-D and 3-D convolutions are supported, not {dimensions}-D")
    return dimensions


def add_bias(node: Node, result: relax.Expr) -> relax.Expr:
    """Add the third input to each channel, if there is one."""
    bias = node.optional(2)
    if bias is None:
        return result
    return relax.op.add(node.emit(result), per_channel(bias, len(node.shape())))


def conv(node: Node) -> relax.Expr:
    """Conv: one Relax convolution, plus an addition for the bias."""
    dimensions = dimensions_of(node)
    if dimensions == 1:
        return _conv_of_rows(node)
    if dimensions == 2 and is_product(node):
        return add_bias(node, _product(node))
    op, data_layout, kernel_layout = CONV[dimensions]
    strides, dilations = node.steps(dimensions)
    result = op(
        node.data,
        node.inputs[1],
        strides=strides,
        padding=resolve_pads(node, node.shape(1)[2:]),
        dilation=dilations,
        groups=int(node.attrs.get("group", 1)),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    return add_bias(node, result)


def is_product(node: Node) -> bool:
    """Return whether a convolution is computed as a product: no template packs computed weights."""
    kernel = node.shape(1)[2:]
    around = resolve_pads(node, kernel)
    padded = [n + sum(around[axis :: len(kernel)]) for axis, n in enumerate(node.shape()[2:])]
    columns = math.prod((*kernel, *node.shape()[:2], *padded))
    return (
        columns <= MOST_COLUMNS
        and min(around) >= 0
        and int(node.attrs.get("group", 1)) == 1
        and math.prod(kernel) <= MAX_PARTS
        and dtype_of(node.data) == "float32"
        and depends_on_inputs(node, node.inputs[1])
    )


def _product(node: Node) -> relax.Expr:
    """Return the product of the weights and a matrix with one column for each window."""
    (batch, channels, *extents), (outs, _, *kernel) = node.shape(), node.shape(1)
    workload = _columns(node, batch * channels, extents, kernel, resolve_pads(node, kernel))
    depth, data = channels * math.prod(kernel), node.data
    if math.prod(kernel) > 1 or any(workload.pads) or workload.strides != (1, 1):
        function = lower_image_to_columns(workload)
        given = node.op.reshape(data, (batch * channels, *extents))
        data = _call(node, "image_to_columns", function, given, workload, workload.shape)
    columns = node.op.reshape(data, [batch, depth, math.prod(workload.places)])
    matrix = node.op.reshape(node.inputs[1], [outs, depth])
    return relax.op.reshape(node.op.matmul(matrix, columns), [batch, outs, *workload.places])


def _columns(
    node: Node, images: int, image: Sequence[int], block: Sequence[int], pads: Sequence[int]
) -> ColumnsWorkload:
    strides, dilations = node.steps(len(image))
    return ColumnsWorkload(
        images=images,
        image=tuple(image),
        block=tuple(block),
        strides=tuple(strides),
        dilations=tuple(dilations),
        pads=tuple(pads),
        dtype=dtype_of(node.data),
    )


def _call(
    node: Node,
    name: str,
    kernel: object,
    data: relax.Expr,
    workload: ColumnsWorkload,
    shape: Sequence[int],
) -> relax.Expr:
    batch_rows = KernelRows(workload.computes, [([0], [0])])
    return node.call(name, kernel, [data], [(shape, workload.dtype)], batch_rows)


def _conv_of_rows(node: Node) -> relax.Expr:
    """Return a 1-D convolution as one of images of one row; the bias follows, so that it fuses."""
    data, weights, *bias = node.inputs
    first, last = resolve_pads(node, node.shape(1)[2:])
    image = replace(
        node,
        inputs=[node.op.expand_dims(data, 2), node.op.expand_dims(weights, 2), *bias],
        attrs={
            "group": node.attrs.get("group", 1),
            "strides": (1, *node.ints("strides", [1])),
            "dilations": (1, *node.ints("dilations", [1])),
            "pads": (0, first, 0, last),
        },
    )
    return relax.op.squeeze(node.emit(conv(image)), [2])


def _column_to_image(node: Node) -> relax.Expr:
    image, block = (tuple(map(int, node.required(i).ravel())) for i in (1, 2))
    rank, taps = len(image), math.prod(block)
    strides, dilations = node.steps(rank)
    pads = node.ints("pads", [0] * 2 * rank)
    if dtype_of(node.data) == "bool":
        raise ValueError("its columns are booleans, which cannot be added up")
    lengths = {len(block), len(strides), len(dilations), len(pads) // 2}
    if len(node.shape()) != 3 or lengths != {rank} or min(*block, *strides, *dilations) < 1:
        raise ValueError(
            f"its block {list(block)}, strides, dilations or pads are not for {rank} axes"
        )
    batch, rows, columns = node.shape()
    workload = _columns(node, batch * rows // taps, image, block, pads)
    if rows % taps or math.prod(workload.places) != columns or min(workload.places) < 1:
        raise ValueError(
            f"its columns {list(node.shape())} do not fit an image of {list(image)} in blocks of "
            f"{list(block)}"
        )
    given, kernel = node.op.reshape(node.data, workload.shape), lower_columns_to_image(workload)
    images = (workload.images, *image)
    found = _call(node, "columns_to_image", kernel, given, workload, images)
    return relax.op.reshape(found, (batch, rows // taps, *image))


CONVERTERS: Converters = {"Col2Im": _column_to_image, "Conv": conv}
