"""The gate of efficient channel attention in one kernel: windows over the means of channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.epilogue import apply_steps
from neocpu.schedules.operators.pool import emit_global_pool
from neocpu.schedules.operators.statistics.gate import operands_of
from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.steps import PER_CHANNEL
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import EpilogueOp


@dataclass(frozen=True, slots=True)
class ChannelWindowWorkload:
    """``after(sum over t of taps[t] * means[c + t - before])``, with the means of channels.

    Beyond the first and the last channel the means are zeros.

    Attributes
    ----------
    shape : tuple of int
        ``(N, C, H, W)`` of the data.
    taps, before : int
        The number of channels in a window, and the number of those before its own.
    after : tuple of EpilogueOp
        The steps that follow, with no operand or one per channel.
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


def estimate(
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
        operands, output, source = iter(rest[:-1]), flat(rest[-1]), flat(means)
        read = [next(operands) if step.operand == PER_CHANNEL else None for step in w.after]
        readers = [None if v is None else (lambda i, v=v: v[i]) for v in read]
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
