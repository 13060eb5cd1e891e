"""What moving feature maps costs: layout transforms, and the operators bound by memory.

They have no schemes to choose from, and their speed depends on little more than how many bytes they
move and which caches these lie in: not on which blocks, on how many pixels a channel has, or on how
many parts are joined. So not each of them is measured but one of each class and size, a canonical
workload on record like a convolution. How far off the estimate of that one is tells how far off
those of its class are; between two sizes the logarithm of it is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from neocpu.planning.measured_costs import Measured
from neocpu.planning.network import (
    ConcatOp,
    ConvOp,
    ElementwiseOp,
    GatherOp,
    LayoutOp,
    Network,
    PoolOp,
    Read,
    Var,
)
from neocpu.schedules import registry
from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators import pool
from neocpu.schedules.operators.concat import is_shifted
from neocpu.schedules.operators.join_template import SHIFT_FACTOR
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, channel_blocks
from neocpu.schedules.vocabulary.scheme import TransformScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import JoinWorkload, TransformWorkload, Workload

# Canonical feature maps: 25 KB to 26 MB in steps of four, channels a multiple of every block, and
# sides that are no powers of two, whose rows would compete for the same cache lines.
CHANNELS, SIDES = 128, (7, 14, 28, 56, 112, 224)
LOG_ELEMENTS = tuple(math.log(CHANNELS * side * side) for side in SIDES)


# The source of the cost of what no kernel does.
IN_PLACE = "in place"


class MemoryClass(StrEnum):
    """Operators that move bytes in the same way, whatever their size."""

    PACK = "pack"  # NCHW to NCHW[x]c
    UNPACK = "unpack"  # and back
    WIDEN = "widen"  # to larger blocks
    NARROW = "narrow"  # to smaller ones
    ELEMENTWISE = "elementwise"
    CONCAT = "concat"
    SHIFTED_CONCAT = "shifted concat"  # of channels that do not fill their blocks


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and where they come from: ``estimated``, a `Measured.source`, or `IN_PLACE`."""

    seconds: float
    source: str = "estimated"


@dataclass(frozen=True, slots=True)
class _Curve:
    """What is measured of a class, by size: logarithms of elements and of measured / estimated."""

    sizes: tuple[float, ...]
    ratios: tuple[float, ...]
    sources: tuple[str, ...]

    def scale(self, estimate: float, elements: int) -> Cost:
        """Return ``estimate`` as it would have been measured; as it is where nothing is known."""
        if not self.sizes:
            return Cost(estimate)
        size = math.log(elements)
        ratio = math.exp(float(np.interp(size, self.sizes, self.ratios)))
        return Cost(estimate * ratio, self.sources[_nearest(size, self.sizes)])


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Costs of what is bound by memory, for one target and thread count.

    Attributes
    ----------
    measured : callable
        Returns the records of a workload.
    """

    target: CpuTarget
    threads: int
    measured: Callable[[Workload], Measured]
    _curves: dict[MemoryClass, _Curve] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def transform(
        self,
        shape: tuple[int, ...],
        source: DataLayout,
        dest: DataLayout,
        *,
        from_registers: bool = False,
    ) -> Cost:
        """Cost of bringing a feature map of NCHW ``shape`` from one layout to another.

        Parameters
        ----------
        from_registers : bool
            Whether it would else stay there (see `Network.in_registers`): its producer must then
            write it and its reader read it, which neither was charged for.
        """
        if source == dest:
            return Cost(0.0)
        n, c, h, w = shape
        workload = TransformWorkload(n, c, h, w, source.block, dest.block)
        estimate = registry.estimate(workload, TransformScheme(), self.target, self.threads)
        cost = self._cost(transform_class(source, dest), estimate, math.prod(shape))
        if not from_registers:
            return cost
        size = 4 * (math.prod(source.shape(shape)) + math.prod(dest.shape(shape)))
        estimate = fork_seconds(self.threads) + stream_seconds(size, self.target, self.threads)
        around = self._cost(MemoryClass.ELEMENTWISE, estimate, math.prod(shape))
        return Cost(cost.seconds + around.seconds, cost.source)

    def memory_bound(
        self,
        op: LayoutOp,
        layout: DataLayout,
        in_registers: Container[Var] = (),
        copied: Container[Read] = (),
    ) -> Cost:
        """Cost of an operator that is bound by the bytes it moves, in ``layout``.

        Parameters
        ----------
        in_registers : container of Var
            What is not moved: see `Network.in_registers`.
        copied : container of Read
            What a concatenation must copy even if its parts lie end to end: see
            `Network.copied_parts`. The others are written where they belong, and cost nothing.
        """
        assert not isinstance(op, ConvOp)
        if isinstance(op, PoolOp):
            return Cost(pool.estimate(op.workload, layout, self.target, self.threads))
        if isinstance(op, ConcatOp) and op.lies_end_to_end(layout):
            parts = [read.shape for read in op.reads if read in copied]
            if len(parts) < len(op.reads):
                return self._copies(parts, layout)
        moved = [read.shape for read in op.reads if read.var not in in_registers]
        if isinstance(op, GatherOp):
            moved = [op.shape]
        fork = 0.0
        if op.result not in in_registers:
            moved.append(op.shape)
            fork = fork_seconds(self.threads)
        size = sum(4 * math.prod(layout.shape(shape)) for shape in moved)
        seconds = fork + stream_seconds(size, self.target, self.threads)
        found = join_class(op, layout)
        if found is None:
            return Cost(seconds)
        if found is MemoryClass.SHIFTED_CONCAT:
            seconds *= SHIFT_FACTOR
        return self._cost(found, seconds, math.prod(op.shape))

    def _copies(self, shapes: Sequence[tuple[int, ...]], layout: DataLayout) -> Cost:
        """Cost of copying each of ``shapes`` by a kernel of its own."""
        total, source = 0.0, IN_PLACE
        for shape in shapes:
            seconds = stream_seconds(8 * math.prod(layout.shape(shape)), self.target, self.threads)
            estimate = fork_seconds(self.threads) + seconds
            cost = self._cost(MemoryClass.CONCAT, estimate, math.prod(shape))
            total, source = total + cost.seconds, cost.source
        return Cost(total, source)

    def _cost(self, kind: MemoryClass, estimate: float, elements: int) -> Cost:
        if kind not in self._curves:
            self._curves[kind] = self._curve(kind)
        return self._curves[kind].scale(estimate, elements)

    def _curve(self, kind: MemoryClass) -> _Curve:
        points = []
        for side, size in zip(SIDES, LOG_ELEMENTS, strict=True):
            workload = canonical_workload(kind, side, self.target.lanes())
            known = self.measured(workload)
            for scheme, seconds in known.seconds.items():
                if seconds is not None:
                    estimate = registry.estimate(workload, scheme, self.target, self.threads)
                    points.append((size, math.log(seconds / estimate), known.source))
        sizes, ratios, sources = zip(*points, strict=True) if points else ((), (), ())
        return _Curve(sizes, ratios, sources)


def transform_class(source: DataLayout, dest: DataLayout) -> MemoryClass:
    """Return the class of a transform between two different layouts."""
    if NCHW in (source, dest):
        return MemoryClass.PACK if source == NCHW else MemoryClass.UNPACK
    return MemoryClass.WIDEN if source.block < dest.block else MemoryClass.NARROW


def join_class(op: LayoutOp, layout: DataLayout) -> MemoryClass | None:
    """Return the class of an operator in ``layout``; None for a pooling: it is only estimated."""
    if isinstance(op, ElementwiseOp):
        return MemoryClass.ELEMENTWISE
    if isinstance(op, ConcatOp):
        shifted = is_shifted(tuple(read.shape[1] for read in op.reads), layout.block)
        return MemoryClass.SHIFTED_CONCAT if shifted else MemoryClass.CONCAT
    if isinstance(op, GatherOp):
        shifted = is_shifted(tuple(end - first for first, end in op.slices), layout.block)
        shifted = shifted or any(first % layout.block for first, _ in op.slices)
        return MemoryClass.SHIFTED_CONCAT if shifted else MemoryClass.CONCAT
    return None


def canonical_workload(kind: MemoryClass, side: int, lanes: int) -> Workload:
    """Return the workload that stands for a class, with feature maps of ``side`` by ``side``.

    Blocks are those of one to four vectors of ``lanes``.
    """
    blocks = {
        MemoryClass.PACK: (1, 2 * lanes),
        MemoryClass.UNPACK: (2 * lanes, 1),
        MemoryClass.WIDEN: (lanes, 4 * lanes),
        MemoryClass.NARROW: (4 * lanes, lanes),
    }
    if kind in blocks:
        return TransformWorkload(1, CHANNELS, side, side, *blocks[kind])
    if kind is MemoryClass.ELEMENTWISE:
        return JoinWorkload("elementwise", 1, (CHANNELS, CHANNELS), side, side, 2 * lanes)
    half = CHANNELS // 2 + (lanes if kind is MemoryClass.SHIFTED_CONCAT else 0)
    return JoinWorkload("concat", 1, (half, CHANNELS - half), side, side, 2 * lanes)


def memory_workloads(network: Network, lanes: int) -> tuple[Workload, ...]:
    """Return the canonical workloads, for vectors of ``lanes``, that ``network``'s plans ask for.

    At most a few tens, and the same for all networks.
    """
    return tuple(
        dict.fromkeys(
            canonical_workload(kind, SIDES[_nearest(math.log(elements), LOG_ELEMENTS)], lanes)
            for kind, elements in _asked(network, lanes)
        )
    )


def _asked(network: Network, lanes: int) -> Iterator[tuple[MemoryClass, int]]:
    """Yield the class and the elements of every cost that a layout graph may need."""
    produced = {op.result for op in network.ops}
    for op in network.ops:
        for read in op.reads:
            elements = math.prod(read.shape)
            yield MemoryClass.PACK, elements
            if read.var in produced:
                yield MemoryClass.UNPACK, elements
                yield MemoryClass.WIDEN, elements
                yield MemoryClass.NARROW, elements
        if op.result in network.nchw_reads:
            yield MemoryClass.UNPACK, math.prod(op.shape)
        blocks = (1, *channel_blocks(op.shape[1], lanes))
        for kind in {join_class(op, DataLayout(block)) for block in blocks} - {None}:
            assert kind is not None
            yield kind, math.prod(op.shape)


def _nearest(value: float, points: tuple[float, ...]) -> int:
    """Index of the point closest to ``value``."""
    return min(range(len(points)), key=lambda index: abs(points[index] - value))
