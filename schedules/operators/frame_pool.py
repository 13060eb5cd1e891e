"""Max and average pooling of volumes along their depth, slice by slice, in any layout.

A depth slice is one piece of memory, so a window is a chain of vector loads that are one slice
apart. Pooling within the slices has already combined height and width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import build_kernel, flat, for_vectors, span, splat, task_loop
from neocpu.schedules.tir.input_pixels import taps_inside
from neocpu.schedules.vocabulary.frames import Frames
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget

# The number of vectors that are combined side by side, to hide latency.
VECTORS = 4


@dataclass(frozen=True, slots=True)
class FramePoolWorkload:
    """A pooling of volumes along their depth.

    - `kind`: ``max`` or ``avg``.
    - `image`: ``(C, H, W)`` of a depth slice.
    - `count_include_pad`: whether an average divides by slices of padding, too.
    """

    kind: str
    volumes: int
    image: tuple[int, int, int]
    frames: Frames
    count_include_pad: bool = False

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """The logical NCHW shape of the input."""
        return (self.volumes * self.frames.depth, *self.image)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """The logical NCHW shape of the output."""
        return (self.volumes * self.frames.out_depth, *self.image)

    def __str__(self) -> str:
        channels, *size = self.image
        shape = "x".join(map(str, (self.volumes, channels, self.frames.depth, *size)))
        text = f"{self.kind} {shape}, {self.frames.kernel}x1x1"
        return text + (f" /({self.frames.stride}, 1, 1)" if self.frames.stride > 1 else "")


def lower_frame_pool(workload: FramePoolWorkload, form: Format, target: CpuTarget) -> Any:
    """Return the scheduled ``PrimFunc(data, output)`` of a pooling along the depth, in ``form``."""
    parameters = (
        ("data", form.shape(workload.input_shape), form.dtype),
        ("output", form.shape(workload.output_shape), form.dtype),
    )
    return build_kernel(parameters, lambda data, output: _emit(workload, data, output, target))


def _emit(pool: FramePoolWorkload, data: Any, output: Any, target: CpuTarget) -> None:
    """Emit the loop nest::

    parallel v · d · chunk
      pixels and lanes                          several vectors, in registers
        acc = max | + over the window's frames
    """
    dtype, frames = str(output.dtype), pool.frames
    images, chunks, *rest = (int(extent) for extent in output.shape)
    length = math.prod(rest)
    read, written = flat(data), flat(output)
    with task_loop(images * chunks, images * chunks * length * frames.kernel) as task:
        image = T.Bind(task // chunks)
        start = T.Bind(image % frames.out_depth * frames.stride - frames.padding[0])
        first, count = taps_inside(frames, start)
        frame = image // frames.out_depth * frames.depth + start + first * frames.dilation
        base = T.Bind((frame * chunks + task % chunks) * length)
        divisor = frames.kernel if pool.count_include_pad else T.max(count, 1)

        def combine(at: Any, width: int) -> None:
            every = span(0, width)
            none = tirx.const(float("-inf") if pool.kind == "max" else 0.0, dtype)
            acc = T.alloc_buffer((width,), dtype, layout=None)
            T.buffer_store(acc, splat(none, width), [every])
            with T.serial(count) as tap:
                step = tap * (frames.dilation * chunks * length)
                value = read[span(base + step + at, width)]
                both = T.max(acc[every], value) if pool.kind == "max" else acc[every] + value
                T.buffer_store(acc, both, [every])
            result = acc[every]
            if pool.kind == "avg":
                share = tirx.const(1.0, dtype) / T.cast(divisor, dtype)
                result = result * splat(share, width)
            T.buffer_store(written, result, [span(task * length + at, width)])

        for_vectors(length, VECTORS * target.lanes(dtype), combine)
