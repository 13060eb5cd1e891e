"""CumSum, for which TVM has no kernel on CPUs."""

from __future__ import annotations

import math

from tvm import relax

from neocpu.frontend.converters.node import Node, call_kernel, dtype_of
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.statistics.cumulative_sum import lower_cumulative_sum


def cumulative_sum(node: Node) -> relax.Expr:
    """CumSum along a constant axis."""
    data, chosen = node.inputs[0], node.constant(1)
    assert chosen is not None
    shape, axis = node.shape(), int(chosen.item())
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"its axis {axis} is out of range for {len(shape)} dimensions")
    axis %= len(shape)
    rows = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    exclusive, reverse = (bool(node.attrs.get(name, 0)) for name in ("exclusive", "reverse"))
    kernel = lower_cumulative_sum(rows, dtype_of(data), exclusive=exclusive, reverse=reverse)
    types = [relax.TensorType(rows, dtype_of(data))]
    flat = node.emit(relax.op.reshape(data, rows))
    ways = [([axis], [axis]) for axis in (0, 2)]
    batch_rows = KernelRows(f"exclusive={exclusive} reverse={reverse}", ways)
    found = node.emit(call_kernel(node, "cumulative_sum", kernel, [flat], types, batch_rows))
    return relax.op.reshape(found, shape)
