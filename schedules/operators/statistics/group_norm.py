"""Group normalisation of feature maps in NCHW and NCHW[x]c, with elementwise steps after it.

A task normalises the fewest chunks that contain whole groups. It reads them from memory once, and
its second and third pass find them in a cache. If there are too few such tasks for all threads, as
with one group of all channels, statistics are computed chunk by chunk and combined, and then
everything is normalised.

Variances are computed from centred data: each lane's about its own mean. Those of a group's lanes
are combined with the differences of their means (Chan, Golub and LeVeque, 1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.epilogue import apply_steps
from neocpu.schedules.operators.statistics.channel_norm import emit_sum
from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat, task_loop
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import Format, ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import EpilogueOp

# The number of vectors of a sum, to hide the latency of an addition.
VECTORS = 4
# The number of tasks per thread from which on each task computes the statistics of its own groups.
TASKS_PER_THREAD = 2


@dataclass(frozen=True, slots=True)
class GroupNormWorkload:
    """``steps((data - mean) / sqrt(variance + epsilon) * gamma + beta)``, by groups of channels.

    - `shape`: ``(N, C, H, W)``.
    - `steps`: the steps that follow, without operands.
    """

    shape: tuple[int, int, int, int]
    groups: int
    epsilon: float
    steps: tuple[EpilogueOp, ...] = ()

    def __str__(self) -> str:
        text = f"{'x'.join(map(str, self.shape))}, {self.groups} groups"
        return text + "".join(f" +{step.kind}" for step in self.steps)


@dataclass(frozen=True, slots=True)
class _Units:
    """A division of an image's channel chunks into units that contain whole groups.

    - `size`: the number of chunks in a unit.
    - `alone`: whether each unit is a task that computes its own statistics.
    """

    chunks: int
    size: int
    count: int
    alone: bool

    @classmethod
    def of(cls, workload: GroupNormWorkload, block: int, threads: int) -> _Units:
        images, channels, *_ = workload.shape
        chunks = ceil_div(channels, block)
        size = min(math.lcm(channels // workload.groups, block) // block, chunks)
        count = ceil_div(chunks, size)
        alone = size == 1 or threads == 1 or images * count >= TASKS_PER_THREAD * threads
        return cls(chunks, size, count, alone)


def estimate(
    workload: GroupNormWorkload, form: Format, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds for all bytes read and written, again if L2 has lost them."""
    units, size = _Units.of(workload, form.layout.block, threads), form.bytes(workload.shape)
    held = size // (workload.shape[0] * units.count)
    again = 0 if units.alone and held <= target.l2 // 2 else size
    forks = fork_seconds(threads, target) * (1 if units.alone else 2)
    return forks + stream_seconds(2 * size + again, target, threads)


def lower_group_norm(
    workload: GroupNormWorkload, form: Format, target: CpuTarget, threads: int = 1
) -> Any:
    """Return the scheduled ``PrimFunc(data, gamma, beta, output)``.

    ``gamma`` and ``beta`` are vectors of all lanes, with zeros in padded ones. The loop nest with a
    task for each unit of chunks; otherwise its three parts are loops of their own::

        for n, unit in parallel:
            for chunk in unit:
                mean[x], squares[x] = of the chunk's pixels, lane by lane       # registers
            for group in unit: mean[...], scale[...] = of the lanes of a group
            for chunk in unit, pixel: output[x] = steps((data - mean) * scale + beta)
    """
    shape, lanes = form.shape(workload.shape), form.shape((1, *workload.shape[1:2], 1, 1))
    vectors = [(name, (math.prod(lanes),), form.dtype) for name in ("gamma", "beta")]
    parameters = [("data", shape, form.dtype), *vectors, ("output", shape, form.dtype)]
    block = form.layout.block

    def body(*buffers: Any) -> None:
        _Emitter(workload, block, target, threads, buffers).emit()

    return vectorize_calls(build_kernel(parameters, body))


class _Emitter:
    """An emitter of the loop nest, created inside the builder's frame."""

    def __init__(
        self,
        workload: GroupNormWorkload,
        block: int,
        target: CpuTarget,
        threads: int,
        buffers: Sequence[Any],
    ) -> None:
        self._workload, self._block = workload, block
        self._units = _Units.of(workload, block, threads)
        self._pixels = math.prod(workload.shape[2:])
        self._channels = workload.shape[1]
        self._dtype = str(buffers[0].dtype)
        self._widest = VECTORS * target.lanes(self._dtype)
        self._data, self._gamma, self._beta, self._output = map(flat, buffers)

    def emit(self) -> None:
        """Emit the whole kernel; see `lower_group_norm`."""
        units, images = self._units, self._workload.shape[0]
        elements = images * units.chunks * self._pixels * self._block
        if units.alone:
            with task_loop(images * units.count, elements) as task:
                image, first = T.Bind(task // units.count), T.Bind(task % units.count * units.size)
                held = (self._lanes(units.size), self._lanes(units.size))
                count = units.size
                if units.chunks % units.size:
                    count = T.Bind(T.min(units.size, units.chunks - first))
                with T.serial(count) as i:
                    self._statistics(held, image, first + i, i)
                self._join(held, first, count, 0)
                with T.serial(count) as i:
                    self._normalise(held, image, first + i, i)
            return
        held = self._lanes(images * units.chunks), self._lanes(images * units.chunks)
        with task_loop(images * units.chunks, elements) as task:
            self._statistics(held, task // units.chunks, task % units.chunks, task)
        with T.serial(images) as image:
            self._join(held, 0, units.chunks, image * units.chunks)
        with task_loop(images * units.chunks, elements) as task:
            self._normalise(held, task // units.chunks, task % units.chunks, task)

    def _lanes(self, chunks: int) -> Any:
        return T.alloc_buffer((chunks * self._block,), self._dtype, layout=None)

    def _const(self, value: float, width: int = 1) -> Any:
        return splat(tirx.const(value, self._dtype), width)

    def _base(self, image: Any, chunk: Any) -> Any:
        return T.Bind((image * self._units.chunks + chunk) * (self._pixels * self._block))

    def _statistics(self, held: tuple[Any, Any], image: Any, chunk: Any, at: Any) -> None:
        """Emit each lane's mean and sum of squared deviations from it, for a chunk."""
        means, squares = held
        base = self._base(image, chunk)

        def emit(lane: Any, width: int) -> None:
            total = self._summed(base + lane, width, lambda value, _: value)
            mean = T.Bind(total * self._const(1 / self._pixels, width))

            def square(value: Any, group: int) -> Any:
                apart = T.Bind(value - _repeated(mean, width, group))
                return apart * apart

            place = [span(at * self._block + lane, width)]
            T.buffer_store(means, mean, place)
            T.buffer_store(squares, self._summed(base + lane, width, square), place)

        for_vectors(self._block, self._widest, emit)

    def _summed(self, first: Any, width: int, term: Callable[[Any, int], Any]) -> Any:
        """Emit the sum of ``term(vector, its pixel count)`` over all pixels, in ``width`` lanes."""
        group, stride = 1, self._block
        while width == self._block and group * 2 <= self._pixels:
            if group * 2 * width > self._widest:
                break
            group *= 2
        wide = group * width

        def several(i: Any) -> Any:
            return term(T.Bind(self._data[span(first + i * (group * stride), wide)]), group)

        def one(pixel: Any) -> Any:
            return term(T.Bind(self._data[span(first + pixel * stride, width)]), 1)

        turns = self._pixels // group
        total = emit_sum(self._const(0.0, wide), wide, 0, turns, several)
        while wide > width:
            wide //= 2
            low, high = (T.Shuffle([total], list(range(at, at + wide))) for at in (0, wide))
            total = T.Bind(low + high)
        if self._pixels % group == 0:
            return total
        return emit_sum(total, width, turns * group, self._pixels, one)

    def _join(self, held: tuple[Any, Any], first: Any, count: Any, at: Any) -> None:
        """Emit groups' means and scales in place of ``count`` chunks' statistics from ``at`` on."""
        means, squares = held
        width = self._channels // self._workload.groups
        start, channel = at * self._block, first * self._block
        channels = T.Bind(T.min(count * self._block, self._channels - channel))
        one, each = self._const(1.0), self._const(1 / width)
        zero = self._const(0.0)
        with T.serial(channels // width) as group:
            lane = T.Bind(start + group * width)
            mean = T.Bind(emit_sum(zero, 1, 0, width, lambda i: means[lane + i]) * each)

            def square_of(i: Any) -> Any:
                apart = T.Bind(means[lane + i] - mean)
                return squares[lane + i] + apart * apart * self._const(self._pixels)

            total = emit_sum(zero, 1, 0, width, square_of)
            variance = total * self._const(1 / (width * self._pixels))
            factor = T.Bind(one / tirx.sqrt(variance + self._const(self._workload.epsilon)))
            with T.serial(width) as i:
                T.buffer_store(means, mean, [lane + i])
                gamma = self._gamma[channel + group * width + i]
                T.buffer_store(squares, factor * gamma, [lane + i])
        if self._channels % self._block:
            with T.serial(count * self._block - channels) as i:
                for buffer in held:  # so that padded lanes become zeros
                    T.buffer_store(buffer, self._const(0.0), [start + channels + i])

    def _normalise(self, held: tuple[Any, Any], image: Any, chunk: Any, at: Any) -> None:
        means, scales = held
        base = self._base(image, chunk)

        def store(place: Any, width: int, lane: Any) -> None:
            with (T.vectorized if width > 1 else T.serial)(width) as o:
                own = lane if self._block == 1 else lane + o
                held_at = at * self._block + own
                value = (self._data[base + place + o] - means[held_at]) * scales[held_at]
                value = value + self._beta[chunk * self._block + own]
                steps = self._workload.steps
                value = apply_steps(value, steps, [None] * len(steps), ())
                T.buffer_store(self._output, value, [base + place + o])

        if self._block == 1:
            for_vectors(self._pixels, self._widest, lambda i, width: store(i, width, 0))
            return
        with T.serial(self._pixels) as pixel:
            place = pixel * self._block
            for_vectors(
                self._block, self._widest, lambda lane, width: store(place + lane, width, lane)
            )


def _repeated(vector: Any, width: int, times: int) -> Any:
    """Return a vector repeated ``times`` times, end to end."""
    if width == 1 or times == 1:
        return splat(vector, times) if width == 1 else vector
    return T.Shuffle([vector] * times, list(range(width * times)))
