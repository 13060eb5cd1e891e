"""A network as the layout search sees it: which operators may change layout, and what they read.

Paper §3.2 sorts operators into layout-oblivious, -tolerant and -dependent ones. The first two are
`LayoutOp`s here; everything else is dependent: it reads and writes NCHW.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.operators.concat import lies_end_to_end
from neocpu.schedules.operators.dense import DenseWorkload
from neocpu.schedules.operators.pool import PoolWorkload
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

Var: TypeAlias = Any  # tvm.ir.Var: TVM is untyped
Shape4: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One feature map an operator reads.

    Attributes
    ----------
    var : Var
        The Relax variable.
    shape : tuple of int
        Its logical NCHW shape.
    in_output_layout : bool
        Whether it is read in the operator's output layout (an epilogue operand) rather than in its
        input layout.
    """

    var: Var
    shape: Shape4
    in_output_layout: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LayoutOp:
    """An operator that runs in several layouts.

    Attributes
    ----------
    name : str
        Unique in the network, such as ``conv2d_7``.
    result : Var
        The variable that holds the result, after the epilogue.
    shape : tuple of int
        The result's logical NCHW shape.
    reads : tuple of Read
        The feature maps it reads.
    absorbed : frozenset of Var
        Variables that no longer exist once the operator and its epilogue are one.
    """

    name: str
    result: Var
    shape: Shape4
    reads: tuple[Read, ...]
    absorbed: frozenset[Var]


@dataclass(frozen=True, slots=True, eq=False)
class ConvOp(LayoutOp):
    """A convolution with its epilogue: the only operator with schemes to choose from.

    Attributes
    ----------
    weights : array
        OIHW.
    operands : tuple of array or Var
        What the epilogue's steps read, in order: a ``(C,)`` vector or a feature map.
    before : tuple of array or Var
        What the prologue's steps read: a ``(C,)`` vector or a gate of shape ``(N, C, 1, 1)``.
    finite_weights : bool
        Whether no weight is infinite or NaN.
    """

    workload: Conv2dWorkload
    weights: NDArray[np.generic]
    operands: tuple[Any, ...]
    before: tuple[Any, ...] = ()
    finite_weights: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class PoolOp(LayoutOp):
    """A pooling with a window: layout-tolerant."""

    workload: PoolWorkload


@dataclass(frozen=True, slots=True, eq=False)
class GlobalPoolOp(LayoutOp):
    """A mean over all pixels: layout-tolerant."""

    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class ElementwiseOp(LayoutOp):
    """An elementwise call: layout-oblivious. ``call`` is the Relax call itself."""

    call: Any


@dataclass(frozen=True, slots=True, eq=False)
class ConcatOp(LayoutOp):
    """A concatenation of channels: layout-oblivious where the block divides every part."""

    def lies_end_to_end(self, layout: DataLayout) -> bool:
        """Whether the result in ``layout`` is the parts one after the other."""
        return lies_end_to_end([read.shape for read in self.reads], 1, layout)


@dataclass(frozen=True, slots=True, eq=False)
class GatherOp(LayoutOp):
    """A concatenation of slices of channels, or one slice: layout-oblivious.

    Attributes
    ----------
    slices : tuple of (int, int)
        Per read, the first channel it takes and the one after the last.
    """

    slices: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class DenseOp:
    """A matrix product with constant weights, and its epilogue. Layout-dependent.

    Attributes
    ----------
    result, data : Var
        ``data`` has shape ``(..., K)``; all but its last axis are rows.
    weights : array
        ``(K, N)``.
    operands : tuple of array or Var
        What the epilogue's steps read, in order: a ``(N,)`` vector or a tensor like the result.
    """

    name: str
    result: Var
    data: Var
    absorbed: frozenset[Var]
    workload: DenseWorkload
    weights: NDArray[np.generic]
    operands: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """All layout operators and dense layers of a function, in program order, and who needs NCHW.

    Attributes
    ----------
    ops : tuple of LayoutOp
    dense : tuple of DenseOp
    nchw_reads : dict of Var to shape
        Feature maps that layout-dependent operators or the function's result read.
    inputs : frozenset of Var
        The function's parameters.
    """

    ops: tuple[LayoutOp, ...]
    dense: tuple[DenseOp, ...]
    nchw_reads: dict[Var, Shape4]
    inputs: frozenset[Var] = frozenset()

    @property
    def convs(self) -> tuple[ConvOp, ...]:
        """The convolutions, in program order."""
        return tuple(op for op in self.ops if isinstance(op, ConvOp))

    @property
    def in_registers(self) -> frozenset[Var]:
        """Results of elementwise operators that one other reads: fusion never stores them."""
        readers = Counter(read.var for op in self.ops for read in op.reads)
        elementwise = [op for op in self.ops if isinstance(op, ElementwiseOp)]
        inner = {read.var for op in elementwise for read in op.reads if readers[read.var] == 1}
        return frozenset(op.result for op in elementwise if op.result in inner) - set(
            self.nchw_reads
        )

    def copied_parts(self, layout: DataLayout) -> frozenset[Read]:
        """Return the parts that no kernel writes where they belong, if all is in ``layout``.

        Of concatenations that lie end to end: inputs, unless they are transformed, and what is a
        part of an earlier one.
        """
        placed = set(self.inputs) if layout == NCHW else set()
        copied = set()
        for op in self.ops:
            if isinstance(op, ConcatOp) and op.lies_end_to_end(layout):
                for read in op.reads:
                    if read.var in placed:
                        copied.add(read)
                    placed.add(read.var)
        return frozenset(copied)
