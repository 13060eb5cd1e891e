"""The gate of efficient channel attention: a pooling and a window of channels as one operator."""

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
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelGateOp(WorkloadOp):
    """Means of channels, and a convolution along the channels.

    Attributes
    ----------
    taps : array
        ``(taps,)``.
    operands : tuple of array
        The operands of the steps after the convolution, in order: one number each, ``(1,)``.
    """

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_channel_window)
    workload: ChannelWindowWorkload
    taps: Array
    operands: tuple[Array, ...]

    def constants(self, form: Format, target: CpuTarget) -> Iterator[Array]:
        """Yield the taps, and the operands of the steps, spread over the lanes of the output."""
        yield self.taps
        lanes = int(np.prod(form.shape((1, *self.shape[1:]))))
        yield from (np.full(lanes, each, each.dtype) for each in self.operands)


def with_channel_gates(function: Function, ops: Sequence[LayoutOp]) -> list[LayoutOp]:
    """Return operators with one gate for each pooling and convolution along channels after it.

    The model reshapes channels to the pixels of a row between the two, and back after them.
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
    """Return the gate that a convolution along channels is part of; None if there is none."""
    row, last = conv.reads[0].var, sole_reader(function, conv.result)
    pool = _reshaped_from(function, row)
    back = None if last is None else _reshaped_from(function, last)
    mean = pools.get(pool) if pool is not None else None
    if mean is None or last is None or back is None or not _is_window(conv):
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
        name=function.name("gate"),
        result=last,
        shape=mean.shape,
        dtype=mean.dtype,
        reads=mean.reads,
        absorbed=frozenset(absorbed),
        workload=workload,
        taps=conv.weights.reshape(-1),
        operands=conv.operands,
    )


def _reshaped_from(function: Function, var: Var) -> Var | None:
    """Return the variable that ``var`` is a reshape of; None if it is no reshape."""
    value: Any = function.definition(var)
    return value.args[0] if is_op(value, "relax.reshape") else None


def _is_window(conv: ConvOp) -> bool:
    """Whether a float32 convolution keeps the width of an image with one row and one channel."""
    w = conv.workload
    row = (w.in_channels, w.out_channels, w.height) == (1, 1, 1)
    plain = w.kernel[0] == 1 and w.output_shape[2:] == (1, w.width)
    near = w.stride == w.dilation == (1, 1)
    return row and plain and near and is_of_means(conv)
