"""Layer normalisation of each pixel's channels, in NCHW and NCHW[x]c.

A task makes three passes over its data. In NCHW[x]c these are the channels of one pixel, which are
in L1. In NCHW, where the channels of a pixel are far apart, they are those of several vectors of
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat, task_loop
from neocpu.schedules.vocabulary.layout import Format, ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget

# The vectors of pixels in a task in NCHW, and the tasks of an image in NCHW[x]c.
VECTORS, TASKS = 4, 64


@dataclass(frozen=True, slots=True)
class ChannelNormWorkload:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta``, over C of ``(N, C, H, W)``."""

    shape: tuple[int, int, int, int]
    epsilon: float

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


def estimate(
    workload: ChannelNormWorkload, form: Format, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds for all bytes that are read and written."""
    size = form.bytes(workload.shape)
    return fork_seconds(threads, target) + stream_seconds(2 * size, target, threads)


def lower_channel_norm(workload: ChannelNormWorkload, form: Format, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, gamma, beta, output)``.

    ``gamma`` and ``beta`` are vectors of all lanes, with zeros in padded ones. In NCHW[x]c the loop
    nest is as follows; in NCHW it has vectors of pixels, a loop over channels, and no sum over
    lanes::

        for n, pixels in parallel:
            for pixel in pixels:
                for chunk: acc[lanes] += data[n, chunk, pixel]                   # registers
                mean = sum of acc / C
                for chunk: acc[lanes] += (data[n, chunk, pixel] - mean)^2
                factor = 1 / sqrt(sum of acc / C + epsilon)
                for chunk: output[...] = (data[...] - mean) * factor * gamma + beta
    """
    shape, vector = form.shape(workload.shape), form.shape((1, workload.shape[1], 1, 1))
    parameters = [
        ("data", shape, form.dtype),
        *((name, (math.prod(vector),), form.dtype) for name in ("gamma", "beta")),
        ("output", shape, form.dtype),
    ]
    lanes, block = target.lanes(form.dtype), form.layout.block

    def body(*buffers: Any) -> None:
        emitter = _Emitter(workload, block, lanes, buffers)
        if block == 1:
            emitter.emit_planes()
        else:
            emitter.emit_pixels()

    return build_kernel(parameters, body)


class _Emitter:
    """An emitter of a loop nest, created inside the builder's frame."""

    def __init__(
        self, workload: ChannelNormWorkload, block: int, lanes: int, buffers: Sequence[Any]
    ) -> None:
        self._images, self._channels, *size = workload.shape
        self._pixels, self._block, self._lanes = math.prod(size), block, lanes
        self._epsilon, self._dtype = workload.epsilon, str(buffers[0].dtype)
        self._data, self._gamma, self._beta, self._output = map(flat, buffers)
        self._elements = math.prod(int(extent) for extent in buffers[0].shape)

    def _const(self, value: float, width: int = 1) -> Any:
        return splat(tirx.const(value, self._dtype), width)

    def _factor(self, squares: Any, width: int) -> Any:
        """Return the factor of centred data for the sum of their squares."""
        variance = squares * self._const(1 / self._channels, width)
        return T.Bind(
            self._const(1.0, width) / tirx.sqrt(variance + self._const(self._epsilon, width))
        )

    def emit_planes(self) -> None:
        """Emit the nest in NCHW."""
        width = min(VECTORS * self._lanes, self._pixels)
        blocks = ceil_div(self._pixels, width)
        with task_loop(self._images * blocks, self._elements) as task:
            # The last block moves back where it would overhang.
            first = T.Bind(T.min(task % blocks * width, self._pixels - width))
            start = T.Bind(task // blocks * (self._channels * self._pixels) + first)

            def place(channel: Any) -> Any:
                return span(start + channel * self._pixels, width)

            def summed(term: Callable[[Any], Any]) -> Any:
                def of(channel: Any) -> Any:
                    return term(T.Bind(self._data[place(channel)]))

                return emit_sum(self._const(0.0, width), width, 0, self._channels, of)

            share = self._const(1 / self._channels, width)
            mean = T.Bind(summed(lambda value: value) * share)
            factor = self._factor(summed(lambda value: (value - mean) * (value - mean)), width)
            with T.serial(self._channels) as channel:
                value = (self._data[place(channel)] - mean) * factor
                value = value * splat(self._gamma[channel], width)
                value = value + splat(self._beta[channel], width)
                T.buffer_store(self._output, value, [place(channel)])

    def emit_pixels(self) -> None:
        """Emit the nest in NCHW[x]c."""
        chunks = ceil_div(self._channels, self._block)
        run = ceil_div(self._pixels, TASKS)
        runs = ceil_div(self._pixels, run)
        with task_loop(self._images * runs, self._elements) as task:
            first = T.Bind(task % runs * run)
            count = run if self._pixels % run == 0 else T.min(run, self._pixels - first)
            start = T.Bind(task // runs * (chunks * self._pixels) + first)
            with T.serial(count) as i:
                self._pixel(T.Bind((start + i) * self._block), chunks)

    def _pixel(self, start: Any, chunks: int) -> None:
        mean = T.Bind(self._summed(start, chunks, lambda value, _: value) * self._share)

        def square(value: Any, width: int) -> Any:
            apart = T.Bind(value - splat(mean, width))
            return apart * apart

        factor = self._factor(self._summed(start, chunks, square), 1)

        def store(chunk: Any, lane: Any, width: int) -> None:
            place, own = start + chunk * (self._pixels * self._block), chunk * self._block + lane
            scale = T.Bind(splat(factor, width) * self._gamma[span(own, width)])
            value = (self._data[span(place + lane, width)] - splat(mean, width)) * scale
            value = value + self._beta[span(own, width)]
            T.buffer_store(self._output, value, [span(place + lane, width)])

        self._each(chunks, store)
        if rest := self._channels % self._block:
            place = start + (chunks - 1) * (self._pixels * self._block) + rest
            padded = self._block - rest
            T.buffer_store(self._output, self._const(0.0, padded), [span(place, padded)])

    @property
    def _share(self) -> Any:
        return self._const(1 / self._channels)

    def _each(self, chunks: int, emit: Callable[[Any, Any, int], None]) -> None:
        """Emit ``emit(chunk, lane, width)`` for all channels, without padded lanes."""
        rest = self._channels % self._block
        with T.serial(chunks - 1 if rest else chunks) as chunk:
            for_vectors(self._block, self._lanes, partial(emit, chunk))
        if rest:
            for_vectors(rest, self._lanes, partial(emit, chunks - 1))

    def _summed(self, start: Any, chunks: int, term: Callable[[Any, int], Any]) -> Any:
        """Emit the sum of ``term(vector, width)`` over a pixel's channels."""
        lanes = self._lanes
        acc = T.alloc_buffer((lanes,), self._dtype, scope="local", layout=None)
        T.buffer_store(acc, self._const(0.0, lanes), [span(0, lanes)])

        def add(chunk: Any, lane: Any, width: int) -> None:
            place = start + chunk * (self._pixels * self._block) + lane
            value = acc[span(0, width)] + term(T.Bind(self._data[span(place, width)]), width)
            T.buffer_store(acc, value, [span(0, width)])

        self._each(chunks, add)
        half = lanes // 2
        while half:
            both = acc[span(0, half)] + acc[span(half, half)]
            T.buffer_store(acc, both, [span(0, half)])
            half //= 2
        return T.Bind(acc[0])


def emit_sum(first: Any, width: int, start: int, stop: int, term: Callable[[Any], Any]) -> Any:
    """Emit a loop, and return ``first`` and all its terms added up, in ``width`` lanes::

    acc[width] = first
    for i in range(start, stop): acc += term(i)
    """
    acc = T.alloc_buffer((width,), str(first.ty.dtype).partition("x")[0], layout=None)
    every = span(0, width)
    T.buffer_store(acc, first, [every])
    with T.serial(start, stop) as i:
        T.buffer_store(acc, acc[every] + term(i), [every])
    return T.Bind(acc[every])
