"""The gate of efficient channel attention, pooling and a window of channels, as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm.ir import Var

from neocpu.ir.constants import Array
from neocpu.ir.expressions import is_op, static_shape
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.gate_op import is_of_means
from neocpu.planning.operators.global_pool_op import GlobalPoolOp
from neocpu.planning.operators.layout_op import Function, LayoutOp, sole_reader
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.schedules.operators.statistics.channel_window import (
    ChannelWindowWorkload,
    estimate,
    lower_channel_window,
)
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class ChannelGateOp(WorkloadOp):
    """Means of channels, and a convolution along the channels.

    Attributes
    ----------
    taps : array
        ``(taps,)``.
    operands : tuple of array
        What the steps after the convolution read, in order: a number each, ``(1,)``.
    """

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_channel_window)
    workload: ChannelWindowWorkload
    taps: Array
    operands: tuple[Array, ...]

    def constants(self, form: Format, target: CpuTarget) -> Iterator[Array]:
        """Yield the taps, and what the steps read, for each lane of the output."""
        yield self.taps
        lanes = int(np.prod(form.shape((1, *self.shape[1:]))))
        yield from (np.full(lanes, each, each.dtype) for each in self.operands)


def with_channel_gates(function: Function, ops: Sequence[LayoutOp]) -> list[LayoutOp]:
    """Return operators, of which poolings with a convolution along channels after them are gates.

    Between the two, and after them, channels are seen as the pixels of a row.
    """
    pools = {
        op.result: op
        for op in ops
        if isinstance(op, GlobalPoolOp) and op.kind == "avg" and op.grid is None
    }
    gates: dict[Var, ChannelGateOp] = {}
    parts: set[Var] = set()
    for op in ops:
        found = _gate(function, op, pools) if isinstance(op, ConvOp) else None
        if found is not None:
            gates[op.result] = found
            parts.update(found.absorbed)
    left = (op for op in ops if op.result in gates or op.result not in parts)
    return [gates.get(op.result, op) for op in left]


def _gate(function: Function, conv: ConvOp, pools: dict[Var, GlobalPoolOp]) -> ChannelGateOp | None:
    """Return the gate that a convolution along channels is; None if it is none."""
    row, last = conv.reads[0].var, sole_reader(function, conv.result)
    pool, seen = _reshaped(function, row), None if last is None else _reshaped(function, last)
    mean = pools.get(pool) if pool is not None else None
    if mean is None or last is None or seen is None or not _is_window(conv):
        return None
    if sole_reader(function, mean.result) is None or sole_reader(function, row) is None:
        return None
    if static_shape(last) != mean.shape or conv.workload.width != mean.shape[1]:
        return None
    if conv.workload.batch != mean.shape[0]:
        return None
    w = conv.workload
    workload = ChannelWindowWorkload(mean.reads[0].shape, w.kernel[1], w.padding[1], w.epilogue)
    absorbed = {mean.result, row, conv.result, *mean.absorbed, *conv.absorbed}
    return ChannelGateOp(
        function.name("gate"),
        last,
        mean.shape,
        mean.dtype,
        mean.reads,
        frozenset(absorbed),
        workload,
        conv.weights.reshape(-1),
        conv.operands,
    )


def _reshaped(function: Function, var: Var) -> Var | None:
    """Return of what a variable is another shape."""
    value: Any = function.definition(var)
    return value.args[0] if is_op(value, "relax.reshape") else None


def _is_window(conv: ConvOp) -> bool:
    """Whether a convolution has one row of one channel, as wide after it, and only float32."""
    w = conv.workload
    row = (w.in_channels, w.out_channels, w.height) == (1, 1, 1)
    plain = w.kernel[0] == 1 and w.output_shape[2:] == (1, w.width)
    near = w.stride == w.dilation == (1, 1)
    return row and plain and near and is_of_means(conv)
