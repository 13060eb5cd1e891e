"""Col2Im, for which TVM has no kernel."""

from __future__ import annotations

import math

from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, dtype_of
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.movement.columns import ColumnsWorkload, lower_columns_to_image


def column_to_image(node: Node) -> relax.Expr:
    """Col2Im of an image and a block whose extents are constants."""
    data, extents, windows = node.inputs[0], node.constant(1), node.constant(2)
    assert data is not None
    assert extents is not None
    assert windows is not None
    image, block = (tuple(map(int, each.ravel())) for each in (extents, windows))
    rank, taps = len(image), math.prod(block)
    strides, dilations = (node.ints(name, [1] * rank) for name in ("strides", "dilations"))
    pads = node.ints("pads", [0] * 2 * rank)
    if dtype_of(data) == "bool":
        raise ValueError("its columns are booleans, which cannot be added up")
    lengths = {len(block), len(strides), len(dilations), len(pads) // 2}
    if len(node.shape()) != 3 or lengths != {rank} or min(*block, *strides, *dilations) < 1:
        raise ValueError(
            f"its block {list(block)}, strides, dilations or pads are not for {rank} axes"
        )
    batch, rows, columns = node.shape()
    workload = ColumnsWorkload(
        images=batch * rows // taps,
        image=image,
        block=block,
        strides=tuple(strides),
        dilations=tuple(dilations),
        pads=tuple(pads),
        dtype=dtype_of(data),
    )
    places = workload.places
    if rows % taps or math.prod(places) != columns or min(places) < 1:
        raise ValueError(
            f"its columns {list(node.shape())} do not fit an image of {list(image)} in blocks of "
            f"{list(block)}"
        )
    given = node.emit(relax.op.reshape(data, workload.shape))
    types = [relax.TensorType((workload.images, *image), workload.dtype)]
    batch_rows = KernelRows(workload.computes, [([0], [0])])
    kernel = lower_columns_to_image(workload)
    found = node.emit(call_kernel(node, "columns_to_image", kernel, [given], types, batch_rows))
    return relax.op.reshape(found, (batch, rows // taps, *image))
