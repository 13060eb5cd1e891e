"""Pooling workloads: windows with ONNX's padding and rounding rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.schedules.tir.bfloat16 import widened
from neocpu.schedules.tir.builder import splat
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.traced_sizes import larger, smaller, varies


@dataclass(frozen=True, slots=True)
class StoredData:
    """Bytes that stand for ``(stored - zero) * scale``, for average pooling."""

    scale: float
    zero: int

    dtype: ClassVar[str] = "uint8"

    def above_zero(self, value: Any) -> Any:
        """Return a vector, or an element, as float32 minus the zero point."""
        lanes = value.ty.dtype.lanes
        zero = splat(tirx.const(float(self.zero), "float32"), lanes)
        return value.astype(f"float32x{lanes}") - zero

    def real(self, mean: Any, width: int) -> Any:
        """Return the real number of a mean of such vectors."""
        return mean * splat(tirx.const(self.scale, "float32"), width)


@dataclass(frozen=True, slots=True)
class StoredHalves:
    """Data of bfloat16 whose means are computed in float32."""

    dtype: ClassVar[str] = BFLOAT16

    def above_zero(self, value: Any) -> Any:
        """Return a vector, or an element, of bits as float32."""
        return widened(value)

    def real(self, mean: Any, width: int) -> Any:
        """Return the mean."""
        return mean


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWorkload:
    """A 2-D pooling over NCHW data.

    - `kind`: ``max`` or ``avg``.
    - `padding`: ``(top, left, bottom, right)``, in pixels.
    - `ceil_mode`: whether the output size is rounded up; a window never starts after the data and
      its leading padding.
    - `count_include_pad`: whether an average divides by padded pixels, too, except ceil mode's.
    - `dtype`: the element type of the output, and of the data unless ``stored`` is set.
    - `stored`: the meaning of the data if they have another type.
    """

    kind: str
    batch: int
    channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False
    count_include_pad: bool = False
    dtype: str = "float32"
    stored: StoredData | StoredHalves | None = None

    def __post_init__(self) -> None:
        assert self.kind in ("max", "avg"), self.kind
        assert self.stored is None or self.kind == "avg", self
        assert min(self.output_shape[2:]) > 0, self

    @property
    def computes(self) -> str:
        """The element type of comparisons and additions."""
        return "float32" if self.dtype == BFLOAT16 else self.dtype

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """The logical NCHW shape of the input."""
        return (self.batch, self.channels, self.height, self.width)

    @property
    def data_dtype(self) -> str:
        """The element type of the data."""
        return self.stored.dtype if self.stored else self.dtype

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """The logical NCHW shape of the output."""
        return (self.batch, self.channels, self.axis(0).outputs, self.axis(1).outputs)

    def __str__(self) -> str:
        size = "x".join(map(str, self.input_shape))
        text = f"{self.kind} {size}, {self.kernel[0]}x{self.kernel[1]}"
        return text + (f" /{self.stride[0]}" if self.stride != (1, 1) else "")

    def axis(self, index: int) -> PoolAxis:
        """Return the windows along rows (0) or columns (1)."""
        return PoolAxis(
            size=(self.height, self.width)[index],
            kernel=self.kernel[index],
            stride=self.stride[index],
            before=self.padding[index],
            after=self.padding[index + 2],
            dilation=self.dilation[index],
            ceil_mode=self.ceil_mode,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAxis:
    """The windows along one spatial axis."""

    size: int
    kernel: int
    stride: int
    before: int
    after: int
    dilation: int
    ceil_mode: bool

    @property
    def outputs(self) -> int:
        """The number of windows."""
        span = self.size + self.before + self.after - self.dilation * (self.kernel - 1) - 1
        if not self.ceil_mode:
            return span // self.stride + 1
        count = ceil_div(span, self.stride) + 1
        if varies(self.size):
            return smaller(count, ceil_div(self.size + self.before, self.stride))
        starts_behind = (count - 1) * self.stride >= self.size + self.before
        return count - 1 if starts_behind else count

    @property
    def reach(self) -> int:
        """The number of pixels from the first window's start to the last window's end."""
        return (self.outputs - 1) * self.stride + self.dilation * (self.kernel - 1) + 1

    @property
    def inside(self) -> bool:
        """Whether every window lies within the data, at any size that varies."""
        if varies(self.size):
            return self.before == 0 and self.after == 0 and not self.ceil_mode
        return self.before == 0 and self.reach <= self.size

    @property
    def interior(self) -> tuple[int, int]:
        """The first window inside the data, and the first after it that is not."""
        if self.inside:
            return 0, self.outputs
        first = smaller(ceil_div(self.before, self.stride), self.outputs) if self.before else 0
        room = self.size + self.before - self.dilation * (self.kernel - 1) - 1
        return first, larger(first, smaller(room // self.stride + 1, self.outputs))

    def position(self, out: Any, tap: Any) -> Any:
        """Return the coordinate of pixel ``tap`` of a window; padding is outside ``[0, size)``."""
        return out * self.stride + tap * self.dilation - self.before

    def is_inside(self, position: Any) -> Any:
        """Return whether a coordinate is a pixel of the data."""
        return tirx.all(position >= 0, position < self.size)

    def clamp(self, position: Any) -> Any:
        """Return the nearest coordinate inside the data."""
        return position if self.inside else T.max(T.min(position, self.size - 1), 0)

    def count(self, out: Any, include_pad: bool) -> Any:
        """Return the number of pixels of window ``out`` by which an average divides."""
        low = -self.before if include_pad else 0
        high = self.size + (self.after if include_pad else 0)
        covered = not self.ceil_mode if varies(self.size) else self.reach <= self.before + high
        if self.inside or (include_pad and covered):
            return self.kernel
        start = out * self.stride - self.before
        first = T.max(tirx.floordiv(low - start + self.dilation - 1, self.dilation), 0)
        last = T.min(tirx.floordiv(high - 1 - start, self.dilation), self.kernel - 1)
        return last - first + 1
