"""The operator that turns pictures of bytes into a model's input: `PreparePicture`, one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, const
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.pictures.prepare_picture import (
    PictureWorkload,
    lanes_of,
    lower_prepare_picture,
)


def prepare_picture(node: Node) -> relax.Expr:
    """Resize, normalise and lay out pictures, as `neocpu.frontend.processing` defines it."""
    picture = node.inputs[0]
    assert picture is not None
    first_row, row_weights, first_column, column_weights, factors, offsets = map(
        node.constant, range(1, 7)
    )
    assert first_column is not None
    assert row_weights is not None
    assert column_weights is not None
    planar, shape = bool(node.attrs["planar"]), node.shape()
    images, (height, width) = shape[0], shape[2:] if planar else shape[1:3]
    colours = shape[1] if planar else shape[3]
    reversed = bool(node.attrs["reversed"])
    taps = (row_weights.shape[1], column_weights.shape[1])
    columns = (int(first_column.min()), int(first_column.max()) + taps[1])
    top, left, rows, across = node.ints("region", ())
    size = node.ints("size", ())
    workload = PictureWorkload(
        images=images,
        height=height,
        width=width,
        colours=colours,
        planar=planar,
        reversed=reversed,
        size=(size[0], size[1]),
        planes=bool(node.attrs["planes"]),
        region=(top, left, rows, across),
        columns=columns,
        taps=taps,
        border=float(node.attrs["border"]),
    )
    places = ((first_column - columns[0]) * workload.interleaved).astype(np.int32)
    lanes = lanes_of(colours)
    scales = []
    for values in (factors, offsets):
        assert values is not None
        padded = np.zeros(lanes, np.float32)
        padded[:colours] = values[::-1] if reversed else values
        scales.append(padded)
    arrays = (first_row, row_weights, places, column_weights, *scales)
    args = [picture, *(const(np.asarray(array)) for array in arrays)]
    types = [relax.TensorType(workload.output, "float32")]
    batch_rows = KernelRows(
        repr(replace(workload, images=1)), [([0, *(None for _ in arrays)], [0])]
    )
    kernel = lower_prepare_picture(workload)
    return call_kernel(node, "prepare_picture", kernel, args, types, batch_rows)
