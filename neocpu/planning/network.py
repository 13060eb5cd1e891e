"""A network as the layout search sees it: the operators that may change layout, and their reads.

Paper §3.2 sorts operators into layout-oblivious, layout-tolerant and layout-dependent ones. The
first two are `LayoutOp`s here. All others are dependent: they read and write NCHW.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tvm.ir import Var

from neocpu.planning.memory_costs import (
    LOG_ELEMENTS,
    SIDES,
    MemoryClass,
    canonical_workload,
    nearest,
)
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.dense_forms_op import computed_in, storing_narrow
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.layout_op import LayoutOp, Read, Shape4
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.precision import Precision
from neocpu.planning.quantised.grids import Grid
from neocpu.planning.tokens import Tokens
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format, channel_blocks
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Workload


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Network:
    """The operators of a function that have kernels of their own, and the reads that need NCHW."""

    ops: tuple[LayoutOp, ...]
    dense: tuple[DenseOp, ...]
    nchw_reads: dict[Var, Shape4]  # by layout-dependent operators or the function's result
    inputs: frozenset[Var] = frozenset()
    grids: Mapping[Var, Grid] = field(default_factory=dict)  # of maps that may become integers
    products: tuple[ProductOp, ...] = ()  # attention, and products of activations
    tokens: Mapping[Var, Tokens] = field(default_factory=dict)  # transposed rows and feature maps

    @property
    def convs(self) -> tuple[ConvOp, ...]:
        return tuple(op for op in self.ops if isinstance(op, ConvOp))

    @property
    def rows(self) -> dict[Var, Format]:
        """The format of the rows, for each feature map that is made of rows or read as rows."""
        return {each.source if each.made else var: each.form for var, each in self.tokens.items()}

    def computing(
        self,
        precision: Precision,
        target: CpuTarget,
        small: bool = False,
        narrow: Container[str] | None = None,
        splits: bool = False,
    ) -> Network:
        """Return the network with the ways to compute each operator that a plan may choose from.

        `small` keeps only the narrow ways of an operator wherever ``precision`` has any. `narrow`
        names the operators that may use ``precision``, besides those that `LayoutOp.takes_halves`.
        `splits`: whether dense layers and attention of float32 may multiply parts of values.
        """

        def own(name: str) -> Precision:
            return precision if narrow is None or name in narrow else Precision.FP32

        dense = [computed_in(op, own(op.name), target, small, splits) for op in self.dense]
        return replace(
            self,
            ops=tuple(
                op.computing(precision if op.takes_halves else own(op.name), target, small)
                for op in self.ops
            ),
            dense=storing_narrow(dense),
            products=tuple(op.computing(own(op.name), target, splits) for op in self.products),
        )

    @property
    def in_registers(self) -> frozenset[Var]:
        """Results of elementwise operators with one such reader: fusion never stores them."""
        readers = Counter(read.var for op in self.ops for read in op.reads)
        fusing = [op for op in self.ops if op.stays_in_registers]
        inner = {read.var for op in fusing for read in op.reads if readers[read.var] == 1}
        return frozenset(op.result for op in fusing if op.result in inner) - set(self.nchw_reads)

    def copied_parts(self, form: Format) -> frozenset[Read]:
        """Return the reads that have to be copied if all feature maps are in ``form``.

        These are sliced inputs, and parts of end-to-end concatenations that no kernel can write in
        place: untransformed inputs, slices, and parts of earlier concatenations.
        """
        inputs = set(self.inputs) if form.layout == NCHW else set()
        placed, copied = set(inputs), set()
        for op in self.ops:
            if op.is_view(form):
                of_inputs = [read for read in op.reads if read.var in inputs]
                copied.update(of_inputs)
                placed.update(() if of_inputs else (op.result,))
            for read in op.parts(form):
                if read.var in placed:
                    copied.add(read)
                placed.add(read.var)
        return frozenset(copied)


def memory_workloads(network: Network, target: CpuTarget) -> tuple[Workload, ...]:
    """Return the canonical workloads that plans of ``network`` need on ``target``.

    There are a few tens at most, and all networks share them.
    """
    return tuple(
        dict.fromkeys(
            canonical_workload(
                kind, dtype, SIDES[nearest(math.log(elements), LOG_ELEMENTS)], target
            )
            for kind, dtype, elements in _needed(network, target)
        )
    )


def _needed(network: Network, target: CpuTarget) -> Iterator[tuple[MemoryClass, str, int]]:
    produced = {op.result for op in network.ops}
    for op in network.ops:
        for read in op.reads:
            elements = math.prod(read.shape)
            yield MemoryClass.PACK, read.dtype, elements
            if read.var in produced:
                yield MemoryClass.UNPACK, read.dtype, elements
                yield MemoryClass.WIDEN, read.dtype, elements
                yield MemoryClass.NARROW, read.dtype, elements
        if op.result in network.nchw_reads:
            yield MemoryClass.UNPACK, op.dtype, math.prod(op.shape)
        blocks = (1, *channel_blocks(op.shape[1], target.lanes(op.dtype)))
        for kind in {op.memory_class(DataLayout(block)) for block in blocks} - {None}:
            assert kind is not None
            yield kind, op.dtype, math.prod(op.shape)
