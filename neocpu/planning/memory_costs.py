"""The costs of moving feature maps: layout transforms, and the operators bound by memory.

These operators have no schemes to choose from. Their speed depends on little more than the number
of bytes and the caches that these lie in. The blocks, the pixels of a channel and the number of
concatenated parts hardly matter. So one canonical workload of each class and size is measured and
recorded, as a convolution is. The ratio of its measured to its estimated seconds corrects all
estimates of its class. Between two sizes, the logarithm of the ratio is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from neocpu.foundation.dtypes import bytes_of
from neocpu.planning.choice import IN_PLACE, Cost, Measured
from neocpu.schedules import registry
from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.join_template import SHIFT_FACTOR
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.scheme import TransformScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Workload


class MemoryClass(StrEnum):
    """Operators that move bytes in the same way, whatever their size."""

    PACK = "pack"  # NCHW to NCHW[x]c
    UNPACK = "unpack"  # and back
    WIDEN = "widen"  # to larger blocks
    NARROW = "narrow"  # to smaller ones
    ELEMENTWISE = "elementwise"
    CONCAT = "concat"
    SHIFTED_CONCAT = "shifted concat"  # of channels that do not fill their blocks


CHANNELS, SIDES = 128, (7, 14, 28, 56, 112, 224)  # 25 KB to 26 MB; powers of two share lines
LOG_ELEMENTS = tuple(math.log(CHANNELS * side * side) for side in SIDES)


@dataclass(frozen=True, slots=True)
class _Curve:
    """The measurements of a class: logarithms of sizes and of ratios of measured to estimated."""

    sizes: tuple[float, ...]
    ratios: tuple[float, ...]
    sources: tuple[str, ...]

    def scale(self, estimate: float, elements: int) -> Cost:
        if not self.sizes:
            return Cost(estimate)
        size = math.log(elements)
        ratio = math.exp(float(np.interp(size, self.sizes, self.ratios)))
        return Cost(estimate * ratio, self.sources[nearest(size, self.sizes)])


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """The costs of operators bound by memory, for one target and thread count."""

    target: CpuTarget
    threads: int
    measured: Callable[[Workload], Measured]  # returns the records of a workload
    _curves: dict[tuple[MemoryClass, str], _Curve] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def transform(
        self, shape: tuple[int, ...], source: Format, dest: Format, *, from_registers: bool = False
    ) -> Cost:
        """Return the cost of bringing a feature map of NCHW ``shape`` from one format to another.

        `from_registers`: see `Network.in_registers`. Without the transform it would stay there; now
        its producer writes and its reader reads it, which the costs of neither contain.
        """
        if source == dest:
            return Cost(0.0)
        cost = self._transform(shape, source, dest)
        if not from_registers:
            return cost
        seconds = self._moving(source.bytes(shape) + dest.bytes(shape))
        around = self._cost(MemoryClass.ELEMENTWISE, source.dtype, seconds, math.prod(shape))
        return Cost(cost.seconds + around.seconds, cost.source)

    def _transform(self, shape: tuple[int, ...], source: Format, dest: Format) -> Cost:
        if (via := halfway(source, dest)) is not None:
            first, second = self._transform(shape, source, via), self._transform(shape, via, dest)
            return Cost(first.seconds + second.seconds, first.source)
        if source.layout == dest.layout:
            seconds = self._moving(source.bytes(shape) + dest.bytes(shape))
            return self._cost(MemoryClass.ELEMENTWISE, "float32", seconds, math.prod(shape))
        workload = TransformWorkload.between(shape, source, dest)
        estimate = registry.estimate(workload, TransformScheme(), self.target, self.threads)
        kind = transform_class(source.layout, dest.layout)
        return self._cost(kind, source.dtype, estimate, math.prod(shape))

    def stream(
        self,
        kind: MemoryClass | None,
        form: Format,
        moved: Sequence[tuple[int, ...]],
        elements: int,
        *,
        forks: bool,
    ) -> Cost:
        """Return the cost of a kernel that is bound by the bytes it moves. Measurements of class
        ``kind`` correct the estimate. `moved` has the NCHW shapes of the tensors that it reads and
        writes, all in ``form``; `elements` counts those of its result. `forks` says whether it
        begins a parallel loop of its own.
        """
        seconds = self._moving(sum(map(form.bytes, moved)), forks=forks)
        if kind is None:
            return Cost(seconds)
        if kind is MemoryClass.SHIFTED_CONCAT:
            seconds *= SHIFT_FACTOR
        return self._cost(kind, form.dtype, seconds, elements)

    def copies(self, shapes: Sequence[tuple[int, ...]], form: Format) -> Cost:
        """Return the cost of copying feature maps of NCHW ``shapes``, each by its own kernel."""
        total, source = 0.0, IN_PLACE
        for shape in shapes:
            seconds = self._moving(2 * form.bytes(shape))
            cost = self._cost(MemoryClass.CONCAT, form.dtype, seconds, math.prod(shape))
            total, source = total + cost.seconds, cost.source
        return Cost(total, source)

    def estimated(self, seconds: float) -> Cost:
        """Return seconds that no measurement corrects as a cost."""
        return Cost(seconds)

    def _moving(self, size: int, *, forks: bool = True) -> float:
        fork = fork_seconds(self.threads, self.target) if forks else 0.0
        return fork + stream_seconds(size, self.target, self.threads)

    def _cost(self, kind: MemoryClass, dtype: str, estimate: float, elements: int) -> Cost:
        if (kind, dtype) not in self._curves:
            self._curves[kind, dtype] = self._curve(kind, dtype)
        return self._curves[kind, dtype].scale(estimate, elements)

    def _curve(self, kind: MemoryClass, dtype: str) -> _Curve:
        points = []
        for side, size in zip(SIDES, LOG_ELEMENTS, strict=True):
            workload = canonical_workload(kind, dtype, side, self.target)
            known = self.measured(workload)
            for scheme, seconds in known.seconds.items():
                if seconds is not None:
                    estimate = registry.estimate(workload, scheme, self.target, self.threads)
                    points.append((size, math.log(seconds / estimate), known.source))
        sizes, ratios, sources = zip(*points, strict=True) if points else ((), (), ())
        return _Curve(sizes, ratios, sources)


def halfway(source: Format, dest: Format) -> Format | None:
    """Return the format between the two steps of a change of both layout and element type.

    The layout is changed while elements are the smaller ones. None if only one of the two changes.
    """
    if source.layout == dest.layout or source.dtype == dest.dtype:
        return None
    if bytes_of(source.dtype) < bytes_of(dest.dtype):
        return Format(dest.layout, source.dtype)
    return Format(source.layout, dest.dtype)


def transform_class(source: DataLayout, dest: DataLayout) -> MemoryClass:
    """Return the class of a transform between two different layouts."""
    if NCHW in (source, dest):
        return MemoryClass.PACK if source == NCHW else MemoryClass.UNPACK
    return MemoryClass.WIDEN if source.block < dest.block else MemoryClass.NARROW


def canonical_workload(kind: MemoryClass, dtype: str, side: int, target: CpuTarget) -> Workload:
    """Return the workload that stands for a class, with feature maps of ``side`` by ``side``.

    Blocks have one to four vectors, or all channels: 64 bytes are half of them.
    """
    lanes = target.lanes(dtype)
    most = min(4 * lanes, CHANNELS)
    blocks = {
        MemoryClass.PACK: (1, 2 * lanes),
        MemoryClass.UNPACK: (2 * lanes, 1),
        MemoryClass.WIDEN: (lanes, most),
        MemoryClass.NARROW: (most, lanes),
    }
    if kind in blocks:
        in_block, out_block = blocks[kind]
        return TransformWorkload(
            batch=1,
            channels=CHANNELS,
            height=side,
            width=side,
            in_block=in_block,
            out_block=out_block,
            dtype=dtype,
        )
    if kind is MemoryClass.ELEMENTWISE:
        return JoinWorkload(
            operator="elementwise",
            batch=1,
            channels=(CHANNELS, CHANNELS),
            height=side,
            width=side,
            block=2 * lanes,
            dtype=dtype,
        )
    shift = min(lanes, CHANNELS // 4) if kind is MemoryClass.SHIFTED_CONCAT else 0
    half = CHANNELS // 2 + shift
    block = min(2 * lanes, CHANNELS // 2)
    return JoinWorkload(
        operator="concat",
        batch=1,
        channels=(half, CHANNELS - half),
        height=side,
        width=side,
        block=block,
        dtype=dtype,
    )


def nearest(value: float, points: tuple[float, ...]) -> int:
    return min(range(len(points)), key=lambda index: abs(points[index] - value))
