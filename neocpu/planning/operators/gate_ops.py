"""The gates of squeeze and excitation, and of efficient channel attention: layout-tolerant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm.ir import Var

from neocpu.foundation.dtypes import bytes_of
from neocpu.ir.constants import Array
from neocpu.ir.expressions import is_op, static_shape
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.layout_op import Function, LayoutOp, WorkloadOp, sole_reader
from neocpu.planning.operators.pool_ops import GlobalPoolOp
from neocpu.schedules.operators.statistics.gate import (
    ChannelWindowWorkload,
    GateWorkload,
    constants_of,
    estimate,
    estimate_window,
    lanes_of,
    lower_channel_window,
    lower_gate,
    pack_layer,
)
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GateOp(WorkloadOp):
    """The means of all channels, and two layers on these."""

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_gate)
    workload: GateWorkload
    weights: tuple[Array, Array]  # OIHW weights of both layers
    operands: tuple[tuple[Array, ...], tuple[Array, ...]]  # ``(C,)`` vectors

    @property
    def flops(self) -> int:
        return 2 * sum(self.workload.products)

    def constants(self, form: Format, target: CpuTarget) -> Iterator[Array]:
        lanes = (self.workload.hidden, lanes_of(self.workload, form))
        for weights, operands, length in zip(self.weights, self.operands, lanes, strict=True):
            yield pack_layer(weights[:, :, 0, 0], length, target)
            yield from (np.pad(each, (0, length - each.size)) for each in operands)

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        found = constants_of(self.workload, form, target)
        return sum(math.prod(shape) * bytes_of(dtype) for _, shape, dtype in found)


def with_gates(function: Function, ops: Sequence[LayoutOp]) -> list[LayoutOp]:
    """Return ``ops`` with each global average pooling and its two layers merged into a gate."""
    readers = {read.var: op for op in ops for read in op.reads}
    gates: dict[Var, GateOp] = {}
    parts: set[Var] = set()
    for op in ops:
        if not isinstance(op, GlobalPoolOp) or op.kind != "avg" or op.grid is not None:
            continue
        inner = _sole_reader(function, op, readers)
        outer = None if inner is None else _sole_reader(function, inner, readers)
        if inner and outer:
            gates[outer.result] = _gate(function, op, inner, outer)
            parts.update((op.result, inner.result))
    found = (gates.get(op.result, op) for op in ops)
    return [op for op in found if op.result not in parts]


def _sole_reader(function: Function, op: LayoutOp, readers: dict[Var, LayoutOp]) -> ConvOp | None:
    reader = readers.get(op.result)
    if sole_reader(function, op.result) is None:
        return None
    return reader if isinstance(reader, ConvOp) and _is_layer(reader) else None


def _is_layer(conv: ConvOp) -> bool:
    """Whether a float32 convolution has images of one pixel and filters of one tap."""
    w = conv.workload
    one = w.kernel_shape[2:] == w.output_shape[2:] == (w.height, w.width) == (1, 1)
    return one and w.groups == 1 and is_of_means(conv)


def is_of_means(conv: ConvOp) -> bool:
    """Whether a float32 convolution reads only its feature map and one number per channel."""
    w = conv.workload
    alone = all(step.operand in (NO_OPERAND, PER_CHANNEL) for step in w.epilogue)
    plain = w.frames is None and w.numerics == FLOAT32
    return plain and alone and not (w.prologue or conv.forms)


def _gate(function: Function, pool: GlobalPoolOp, inner: ConvOp, outer: ConvOp) -> GateOp:
    first, second = inner.workload, outer.workload
    workload = GateWorkload(
        pool.reads[0].shape,
        first.out_channels,
        second.out_channels,
        first.epilogue,
        second.epilogue,
    )
    absorbed: set[Any] = {pool.result, inner.result}
    return GateOp(
        name=function.name("gate"),
        result=outer.result,
        shape=outer.shape,
        dtype=outer.dtype,
        reads=pool.reads,
        absorbed=frozenset(absorbed.union(pool.absorbed, inner.absorbed, outer.absorbed)),
        workload=workload,
        weights=(inner.weights, outer.weights),
        operands=(inner.operands, outer.operands),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelGateOp(WorkloadOp):
    """Means of channels, and a convolution along the channels."""

    estimator: ClassVar = staticmethod(estimate_window)
    lowering: ClassVar = staticmethod(lower_channel_window)
    workload: ChannelWindowWorkload
    taps: Array  # ``(taps,)``
    operands: tuple[Array, ...]  # of the convolution's steps: one number each, ``(1,)``

    def constants(self, form: Format, target: CpuTarget) -> Iterator[Array]:
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
        found = _channel_gate(function, op, pools) if isinstance(op, ConvOp) else None
        if found is not None:
            gates[op.result] = found
            parts.update(found.absorbed)
    left = (op for op in ops if op.result in gates or op.result not in parts)
    return [gates.get(op.result, op) for op in left]


def _channel_gate(
    function: Function, conv: ConvOp, pools: dict[Var, GlobalPoolOp]
) -> ChannelGateOp | None:
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
    value: Any = function.definition(var)
    return value.args[0] if is_op(value, "relax.reshape") else None


def _is_window(conv: ConvOp) -> bool:
    """Whether a float32 convolution keeps the width of an image with one row and one channel."""
    w = conv.workload
    row = (w.in_channels, w.out_channels, w.height) == (1, 1, 1)
    plain = w.kernel[0] == 1 and w.output_shape[2:] == (1, w.width)
    near = w.stride == w.dilation == (1, 1)
    return row and plain and near and is_of_means(conv)
