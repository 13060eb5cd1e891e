"""Workloads: the computations of operators, independent of any schedule.

Workloads are frozen, hashable and JSON round-trippable. Their `key` is stable across processes and
versions, so it names a workload in the tuning database. Everything that changes the generated
code's speed is part of a workload: shapes, stride, padding, dilation, groups, dtype, batch and the
fused epilogue (paper §3.3.1).
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from neocpu.foundation.json_codec import OMIT_DEFAULT, JsonObject
from neocpu.schedules.vocabulary.frames import MAX_EXTENT, Frames
from neocpu.schedules.vocabulary.memory_workloads import (
    JoinWorkload,
    Keyed,
    TransformWorkload,
    are_sizes,
)
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics
from neocpu.schedules.vocabulary.steps import AFTER, BEFORE, STEP_KINDS, TENSOR


@dataclass(frozen=True, slots=True)
class EpilogueOp:
    """One elementwise step, applied to a convolution's accumulator or to its input.

    `kind` is a key of `STEP_KINDS`, which says whether the step reads a ``(C,)`` vector, a tensor
    of the output's shape and layout, ``(N, C, 1, 1)`` factors in the input's layout, or nothing.
    `args` has scalar attributes: ``(low, high)`` for ``clip``, ``(slope,)`` for ``leaky_relu``.
    """

    kind: str
    args: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert self.kind in STEP_KINDS, self.kind

    @property
    def operand(self) -> str:
        """The kind of operand that the step reads besides the running value."""
        return STEP_KINDS[self.kind].operand

    def to_json(self) -> list[str | float]:
        """Return the kind and the arguments as JSON, with infinity, which it lacks, as text."""
        return [self.kind, *(str(arg) if math.isinf(arg) else arg for arg in self.args)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dWorkload(Keyed):
    """A 2-D convolution (cross-correlation) of NCHW data with OIHW weights, and its fused steps.

    - `padding`: ``(top, left, bottom, right)`` zeros, in pixels.
    - `in_channels`: the channels that a window reads, for volumes in all depth slices under it.
    - `groups`: the number of groups, each with ``in_channels / groups`` input channels.
    - `numerics`: the element types of data, weights, sums and output. A step's vectors and gates
      have the type of what it changes: sums (see `epilogue_types`) or data. Its tensors have the
      output's type.
    - `epilogue`, `prologue`: elementwise steps, in order, after the accumulation, and on each input
      pixel before it is padded and multiplied.
    - `frames`: the windows along the depth, for convolutions over volumes; otherwise None. Images
      are then depth slices: ``batch`` counts the output's slices, and a group's input channels are
      those of its first slice, then those of the next.
    """

    kind: ClassVar[str] = "conv2d"
    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    numerics: Numerics = FLOAT32
    epilogue: tuple[EpilogueOp, ...] = ()
    prologue: tuple[EpilogueOp, ...] = field(default=(), metadata=OMIT_DEFAULT)
    frames: Frames | None = field(default=None, metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        assert all(op.kind in AFTER for op in self.epilogue), self.epilogue
        assert all(op.kind in BEFORE for op in self.prologue), self.prologue

    @property
    def out_height(self) -> int:
        extent = self.dilation[0] * (self.kernel[0] - 1) + 1
        return (self.height + self.padding[0] + self.padding[2] - extent) // self.stride[0] + 1

    @property
    def out_width(self) -> int:
        extent = self.dilation[1] * (self.kernel[1] - 1) + 1
        return (self.width + self.padding[1] + self.padding[3] - extent) // self.stride[1] + 1

    @property
    def volumes(self) -> int:
        """The number of volumes that the images are slices of."""
        return self.batch // self.frames.out_depth if self.frames else self.batch

    @property
    def image_channels(self) -> int:
        return self.in_channels // self.frames.kernel if self.frames else self.in_channels

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        images = self.volumes * self.frames.depth if self.frames else self.batch
        return (images, self.image_channels, self.height, self.width)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.out_channels, self.out_height, self.out_width)

    @property
    def kernel_shape(self) -> tuple[int, int, int, int]:
        """The logical OIHW shape of the weights, where I counts the channels of one group."""
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    @property
    def is_depthwise(self) -> bool:
        """Whether each input channel makes exactly one output channel."""
        return self.groups == self.image_channels == self.out_channels and self.groups > 1

    @property
    def epilogue_types(self) -> tuple[str, ...]:
        """The element type of each step's operand, if it has one or not: tensors have the output's,
        vectors that of the sums, float32 once these are rescaled.
        """
        types, value = [], self.numerics.sum
        for op in self.epilogue:
            value = "float32" if op.kind == "rescale" else value
            types.append(self.numerics.output if op.operand == TENSOR else value)
        return tuple(types)

    @property
    def pads_with_zero_point(self) -> bool:
        """Whether padding is the integers' zero point, which sums of float32 data are then less."""
        roles = dict(self.numerics.quantised)
        outside = any(self.padding) or (self.frames is not None and self.frames.reads_outside)
        return outside and "data" in roles and not roles["data"].symmetric

    @property
    def flops(self) -> int:
        """The number of operations of direct convolution, two per multiply-accumulate."""
        n, o, h, w = self.output_shape
        return (
            2 * n * o * h * w * (self.in_channels // self.groups) * self.kernel[0] * self.kernel[1]
        )

    @classmethod
    def from_json(cls, data: JsonObject) -> Conv2dWorkload:
        """Invert `to_json`; ValueError, KeyError or TypeError if ``data`` is no such workload."""
        fields = dict(data)
        if fields.pop("kind", None) != cls.kind:
            raise ValueError(f"not a conv2d workload: {data.get('kind')!r}")
        epilogue = _fused_steps(fields.pop("epilogue"), AFTER)
        prologue = _fused_steps(fields.pop("prologue", []), BEFORE)
        frames = Frames.from_json(fields.pop("frames")) if "frames" in fields else None
        numerics = Numerics.take_from(fields)
        plain: JsonObject
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        workload = cls(
            numerics=numerics, epilogue=epilogue, prologue=prologue, frames=frames, **plain
        )
        if not workload._is_possible():
            raise ValueError(f"impossible convolution: {plain!r}")
        return workload

    def _is_possible(self) -> bool:
        windows = (*self.kernel, *self.stride, *self.dilation)
        return (
            (len(self.kernel), len(self.stride), len(self.dilation), len(self.padding))
            == (2, 2, 2, 4)
            and are_sizes(*self.input_shape, self.out_channels, self.groups, *windows)
            and all(type(size) is int and 0 <= size <= MAX_EXTENT for size in self.padding)
            and self.in_channels % self.groups == self.out_channels % self.groups == 0
            and min(self.out_height, self.out_width) > 0
            and (self.frames is None or self._are_frames(self.frames))
        )

    def _are_frames(self, frames: Frames) -> bool:
        whole = self.batch % frames.out_depth == 0
        return whole and self.in_channels // self.groups % frames.kernel == 0 and not self.prologue

    def __str__(self) -> str:
        n, c, *sizes = self.input_shape
        kernel, stride, dilation = self.kernel, self.stride, self.dilation
        windows: tuple[tuple[int, ...], ...] = (kernel, stride, dilation)
        if (f := self.frames) is not None:
            n, sizes = self.volumes, [f.depth, *sizes]
            windows = (f.kernel, *kernel), (f.stride, *stride), (f.dilation, *dilation)
        text = "".join(f"{op.kind}+" for op in self.prologue) + " " * bool(self.prologue)
        text += f"{_product(n, c, *sizes)} -> {self.out_channels}, {_product(*windows[0])}"
        if set(windows[1]) != {1}:
            same = len(set(windows[1])) == 1
            text += f" /{windows[1][0]}" if same else f" /{windows[1]}"
        if set(windows[2]) != {1}:
            text += f" dil{windows[2]}"
        if self.groups > 1:
            text += f" g{self.groups}"
        text += "".join(f" +{op.kind}" for op in self.epilogue)
        return text if self.numerics == FLOAT32 else f"{text}, {self.numerics}"


Workload: TypeAlias = Conv2dWorkload | TransformWorkload | JoinWorkload


def _fused_steps(data: Any, kinds: Container[str]) -> tuple[EpilogueOp, ...]:
    if data == []:  # as most are
        return ()
    if any(op[0] not in kinds for op in data):
        raise ValueError(f"unknown step in {data!r}")
    steps = tuple(EpilogueOp(op[0], tuple(map(float, op[1:]))) for op in data)
    if any(math.isnan(arg) for step in steps for arg in step.args):
        raise ValueError(f"impossible step in {data!r}")
    return steps


def _product(*sizes: int) -> str:
    return "x".join(map(str, sizes))
