"""Gates of channels in one kernel each, from the means of channels: two layers in squeeze and
excitation, windows in efficient channel attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.either import either
from neocpu.schedules.operators.epilogue import apply_steps
from neocpu.schedules.operators.pool import emit_global_pool
from neocpu.schedules.tir.builder import (
    PARALLEL_ELEMENTS,
    Parameter,
    build_kernel,
    flat,
    for_vectors,
    span,
    splat,
    task_loop,
)
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import Format, ceil_div
from neocpu.schedules.vocabulary.steps import PER_CHANNEL
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import EpilogueOp

# The vectors of sums that a task of a layer computes side by side, and the independent products of
# each sum: both hide the latency of multiply-adds.
VECTORS, APART = 2, 4
# The number of products that take as long as writing an element.
PRODUCTS_PER_ELEMENT = 4


@dataclass(frozen=True, slots=True)
class GateWorkload:
    """``after(outer @ before(inner @ means of the channels of data))``.

    - `shape`: ``(N, C, H, W)`` of the data.
    - `hidden`, `channels`: the numbers of rows of ``inner`` and of ``outer``.
    - `before`, `after`: the steps after each layer, with no operand or one per channel.
    """

    shape: tuple[int, int, int, int]
    hidden: int
    channels: int
    before: tuple[EpilogueOp, ...]
    after: tuple[EpilogueOp, ...]

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """The logical NCHW shape of the gate."""
        return (self.shape[0], self.channels, 1, 1)

    @property
    def products(self) -> tuple[int, int]:
        """The number of multiply-adds of each layer."""
        images, channels, *_ = self.shape
        return images * channels * self.hidden, images * self.hidden * self.channels

    def __str__(self) -> str:
        text = f"{'x'.join(map(str, self.shape))} -> {self.hidden}"
        text += "".join(f" +{step.kind}" for step in self.before) + f" -> {self.channels}"
        return text + "".join(f" +{step.kind}" for step in self.after)


def operands_of(steps: Sequence[EpilogueOp]) -> int:
    """Return the number of vectors that the steps of a layer read."""
    return sum(step.operand == PER_CHANNEL for step in steps)


def _readers(steps: Sequence[EpilogueOp], operands: Sequence[Any]) -> list[Any]:
    """Return functions for `apply_steps` of the vectors that the steps of a layer read."""
    rest = iter(operands)
    read = [next(rest) if step.operand == PER_CHANNEL else None for step in steps]
    return [None if v is None else (lambda i, v=v: v[i]) for v in read]


def lanes_of(workload: GateWorkload, form: Format) -> int:
    """Return the number of lanes of an image of the output, including padding."""
    return math.prod(form.shape((1, workload.channels, 1, 1)))


def pack_layer(weights: NDArray[np.generic], lanes: int, target: CpuTarget) -> NDArray[np.generic]:
    """Pack ``(rows, depth)`` weights as ``(ceil(lanes / width), depth, width)``, one piece of
    memory a task, with zeros in padded lanes.
    """
    rows, depth = weights.shape
    width = _width(lanes, str(weights.dtype), target)
    blocks = ceil_div(lanes, width)
    padded = np.pad(weights, ((0, blocks * width - rows), (0, 0)))
    return np.ascontiguousarray(padded.reshape(blocks, width, depth).transpose(0, 2, 1))


def _width(lanes: int, dtype: str, target: CpuTarget) -> int:
    """Return the number of lanes that a task of a layer writes."""
    return min(VECTORS * target.lanes(dtype), lanes)


def estimate(workload: GateWorkload, form: Format, target: CpuTarget, threads: int = 1) -> float:
    """Return analytic seconds for the bytes that are read, and for the parallel loops."""
    loops = sum(each >= PARALLEL_ELEMENTS * PRODUCTS_PER_ELEMENT for each in workload.products)
    weights = (workload.shape[1] + workload.channels) * workload.hidden * bytes_of(form.dtype)
    size = form.bytes(workload.shape) + weights
    return (1 + loops) * fork_seconds(threads, target) + stream_seconds(size, target, threads)


def constants_of(workload: GateWorkload, form: Format, target: CpuTarget) -> list[Parameter]:
    """Return the constants of the kernel: packed weights, and operands of the steps."""
    found: list[Parameter] = []
    layers = (
        ("inner", workload.shape[1], workload.hidden, workload.before),
        ("outer", workload.hidden, lanes_of(workload, form), workload.after),
    )
    for name, depth, length, steps in layers:
        width = _width(length, form.dtype, target)
        found.append((name, (ceil_div(length, width), depth, width), form.dtype))
        found += [(f"{name}{i}", (length,), form.dtype) for i in range(operands_of(steps))]
    return found


def lower_gate(workload: GateWorkload, form: Format, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, inner, *operands, outer, *operands, output)``.

    ``inner`` and ``outer`` are packed by `pack_layer`; operands of the steps have as many lanes.
    The loop nest, parallel if there is enough work::

        for n, chunk: mean[n, chunk, x] = of the pixels
        for n, block of hidden:
            for channel: acc[width] += mean[n, channel] * inner[block, channel]      # registers
            squeezed[n, block, width] = before(acc)
        for n, block of lanes: likewise, to output[n, block, width]
    """
    images, channels, *pixels = workload.shape
    lanes, dtype = lanes_of(workload, form), form.dtype
    parameters = [
        ("data", form.shape(workload.shape), dtype),
        *constants_of(workload, form, target),
        ("output", form.shape(workload.output_shape), dtype),
    ]

    def body(data: Any, *rest: Any) -> None:
        split = 1 + operands_of(workload.before)
        # The buffer is allocated under the name by which it is read: TVM sees no reads under
        # another name, and would let layers overwrite their inputs.
        shape = form.shape((images, channels, 1, 1))
        means = T.alloc_buffer((math.prod(shape),), dtype, layout=None)
        pooled = T.decl_buffer(shape, dtype, data=means.data, layout=None)
        squeezed = T.alloc_buffer((images * workload.hidden,), dtype, layout=None)
        emit_global_pool("avg", math.prod(pixels), data, pooled, target)
        first = _Layer(images, channels, workload.hidden, workload.hidden, workload.before)
        first.emit(means, rest[:split], squeezed)
        second = _Layer(images, workload.hidden, lanes, workload.channels, workload.after)
        second.emit(squeezed, rest[split:-1], flat(rest[-1]))

    return vectorize_calls(build_kernel(parameters, body))


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of a pixel, ``steps(source @ weights)``, to `length` lanes, `existing` real ones."""

    images: int
    depth: int
    length: int
    existing: int
    steps: tuple[EpilogueOp, ...]

    def emit(self, source: Any, constants: Sequence[Any], output: Any) -> None:
        """Emit the loops; ``constants`` are the weights and the operands of the steps."""
        weights, *operands = constants
        dtype, stride = str(output.dtype), int(source.shape[0]) // self.images
        blocks, _, width = map(int, weights.shape)
        elements = self.images * self.depth * self.length // PRODUCTS_PER_ELEMENT
        readers = _readers(self.steps, operands)
        with task_loop(self.images * blocks, elements) as task:
            image, block = T.Bind(task // blocks), T.Bind(task % blocks)
            acc = T.alloc_buffer((APART, width), dtype, layout=None)
            every = span(0, width)
            for part in range(APART):
                T.buffer_store(acc, splat(tirx.const(0.0, dtype), width), [part, every])

            def add(channel: Any, part: int) -> None:
                factor = splat(source[image * stride + channel], width)
                value = acc[part, every] + factor * weights[block, channel, every]
                T.buffer_store(acc, value, [part, every])

            with T.serial(self.depth // APART) as turn:
                for part in range(APART):
                    add(turn * APART + part, part)
            for channel in range(self.depth // APART * APART, self.depth):
                add(channel, 0)
            for part in range(1, APART):
                T.buffer_store(acc, acc[0, every] + acc[part, every], [0, every])

            def store(lanes: int) -> None:
                with (T.vectorized if lanes > 1 else T.serial)(lanes) as o:
                    value = self._stepped(acc[0, o], readers, block * width + o)
                    at = image * self.length + block * width + o
                    T.buffer_store(output, value, [at])

            rest = self.length % width
            either(block < blocks - 1 if rest else None, lambda: store(width), lambda: store(rest))

    def _stepped(self, value: Any, readers: list[Any], at: Any) -> Any:
        value = apply_steps(value, self.steps, readers, (at,))
        if self.existing == self.length:
            return value
        # Padded lanes are skipped, because zero weights would make NaN of infinite values.
        return tirx.Select(at < self.existing, value, tirx.const(0.0, value.ty.dtype))


@dataclass(frozen=True, slots=True)
class ChannelWindowWorkload:
    """``after(sum over t of taps[t] * means[c + t - before])``, with the means of channels.

    Beyond the first and the last channel the means are zeros.

    - `shape`: ``(N, C, H, W)`` of the data.
    - `taps`, `before`: the number of channels in a window, and the number of those before its own.
    - `after`: the steps that follow, with no operand or one per channel.
    """

    shape: tuple[int, int, int, int]
    taps: int
    before: int
    after: tuple[EpilogueOp, ...] = ()

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """The logical NCHW shape of the gate."""
        return (*self.shape[:2], 1, 1)

    def __str__(self) -> str:
        text = f"{'x'.join(map(str, self.shape))} -> {self.taps} means"
        return text + "".join(f" +{step.kind}" for step in self.after)


def estimate_window(
    workload: ChannelWindowWorkload, form: Format, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds for the bytes that are read."""
    size = form.bytes(workload.shape)
    return fork_seconds(threads, target) + stream_seconds(size, target, threads)


def lower_channel_window(workload: ChannelWindowWorkload, form: Format, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, taps, *operands, output)``.

    The operands of the steps after the windows have as many lanes as an image of the output,
    including padding. The loop nest::

        for n, chunk: mean[n, chunk, x] = of the pixels                    # parallel
        for n:
            line = zeros, mean[n], zeros
            for vector of channels: output[n, c] = after(sum of taps[t] * line[c + t])
    """
    w, dtype = workload, form.dtype
    images, channels, *pixels = w.shape
    lanes, width = math.prod(form.shape((1, channels, 1, 1))), target.lanes(dtype)
    vectors = [(f"operand{i}", (lanes,), dtype) for i in range(operands_of(w.after))]
    parameters = [
        ("data", form.shape(w.shape), dtype),
        ("taps", (w.taps,), dtype),
        *vectors,
        ("output", form.shape(w.output_shape), dtype),
    ]

    def body(data: Any, taps: Any, *rest: Any) -> None:
        means = T.alloc_buffer(form.shape(w.output_shape), dtype, layout=None)
        emit_global_pool("avg", math.prod(pixels), data, means, target)
        readers, output, source = _readers(w.after, rest[:-1]), flat(rest[-1]), flat(means)
        line = T.alloc_buffer((lanes + w.taps - 1,), dtype, layout=None)
        with T.serial(images) as image:

            def clear(first: Any, count: int) -> None:
                zero = splat(tirx.const(0.0, dtype), count)
                T.buffer_store(line, zero, [span(first, count)])

            def copy(first: Any, count: int) -> None:
                value = source[span(image * lanes + first, count)]
                T.buffer_store(line, value, [span(w.before + first, count)])

            def window(first: Any, count: int) -> None:
                with (T.vectorized if count > 1 else T.serial)(count) as o:
                    at = first + o
                    value = taps[0] * line[at]
                    for tap in range(1, w.taps):
                        value = value + taps[tap] * line[at + tap]
                    value = apply_steps(value, w.after, readers, (at,))
                    if lanes > channels:  # padded lanes stay zero
                        value = tirx.Select(at < channels, value, tirx.const(0.0, dtype))
                    T.buffer_store(output, value, [image * lanes + at])

            for_vectors(lanes + w.taps - 1, width, clear)
            for_vectors(channels, width, copy)
            for_vectors(lanes, width, window)

    return vectorize_calls(build_kernel(parameters, body))
