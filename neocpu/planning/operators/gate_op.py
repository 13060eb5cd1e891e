"""The gate of squeeze and excitation, a pooling and two layers as one operator: layout-tolerant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm.ir import Var

from neocpu.foundation.dtypes import bytes_of
from neocpu.ir.constants import Array
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.global_pool_op import GlobalPoolOp
from neocpu.planning.operators.layout_op import Function, LayoutOp, sole_reader
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.schedules.operators.statistics.gate import (
    GateWorkload,
    constants_of,
    estimate,
    lanes_of,
    lower_gate,
    pack_layer,
)
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.steps import NO_OPERAND, PER_CHANNEL
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GateOp(WorkloadOp):
    """The means of all channels, and two layers on these.

    Attributes
    ----------
    weights : tuple of array
        The OIHW weights of both layers.
    operands : tuple of tuple of array
        The operands of the steps after each layer, in order: ``(C,)`` vectors.
    """

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_gate)
    workload: GateWorkload
    weights: tuple[Array, Array]
    operands: tuple[tuple[Array, ...], tuple[Array, ...]]

    @property
    def flops(self) -> int:
        """The operations of both layers."""
        return 2 * sum(self.workload.products)

    def constants(self, form: Format, target: CpuTarget) -> Iterator[Array]:
        """Yield each layer's packed weights, and the operands of its steps."""
        lanes = (self.workload.hidden, lanes_of(self.workload, form))
        for weights, operands, length in zip(self.weights, self.operands, lanes, strict=True):
            yield pack_layer(weights[:, :, 0, 0], length, target)
            yield from (np.pad(each, (0, length - each.size)) for each in operands)

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        """Return the bytes of the constants, without packing any."""
        found = constants_of(self.workload, form, target)
        return sum(math.prod(shape) * bytes_of(dtype) for _, shape, dtype in found)


def with_gates(function: Function, ops: Sequence[LayoutOp]) -> list[LayoutOp]:
    """Return operators with one gate for each pooling and the two layers after it."""
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
    """Return the layer that is the sole reader of an operator's result; None if there is none."""
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
