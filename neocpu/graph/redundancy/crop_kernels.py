"""Remove the rows and columns of a kernel that read nothing but padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import Expr, integers_of, static_shape
from neocpu.ir.rewriting import Rewrite

_CONVOLUTIONS: Final = {
    "relax.nn.conv2d": (relax.op.nn.conv2d, "NCHW", "OIHW"),
    "relax.nn.conv3d": (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """A convolution along one axis, of ``extent`` elements, with padding on both sides."""

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    def reads(self, tap: int) -> bool:
        first = tap * self.dilation - self.before
        skipped = max(-(first // self.stride), 0)  # outputs for which it reads padding before
        return skipped < self.outputs and first + skipped * self.stride < self.extent

    def useful(self) -> tuple[int, int]:
        first, end = 0, self.taps
        while first < end - 1 and not self.reads(first) and self._left(self.before, first + 1):
            first += 1
        while (
            end > first + 1
            and not self.reads(end - 1)
            and self._left(self.after, self.taps - end + 1)
        ):
            end -= 1
        return first, end

    def _left(self, padding: int, dropped: int) -> bool:
        return padding >= dropped * self.dilation


@local_rule(Kind.REDUNDANCY, *_CONVOLUTIONS)
def crop_kernels(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Rows and columns of kernels that read nothing but padding go.

    ::

        conv2d(x, w, padding=12, dilation=12)  ->  conv2d(x, w[:, :, 1:2, 1:2])  # 10x10 pixels

    Dilated kernels of segmentation networks reach over the edges of small feature maps: with a
    dilation of 12, only the middle tap of a 3x3 kernel reads any of 10x10 pixels. The same holds
    for a 3x3 kernel on a map of one pixel.
    """
    make, data_layout, kernel_layout = _CONVOLUTIONS[call.op.name]
    attrs, weights = call.attrs, constant_value(call.args[1])
    shape, result = static_shape(call.args[0]), static_shape(call)
    layouts = str(attrs.data_layout), str(attrs.kernel_layout)
    if (
        weights is None
        or shape is None
        or result is None
        or layouts != (data_layout, kernel_layout)
    ):
        return None
    padding = integers_of(attrs.padding)
    rank = len(shape) - 2
    axes = [
        _Axis(
            extent=shape[2 + axis],
            outputs=result[2 + axis],
            taps=weights.shape[2 + axis],
            stride=int(attrs.strides[axis]),
            dilation=int(attrs.dilation[axis]),
            before=padding[axis],
            after=padding[rank + axis],
        )
        for axis in range(rank)
    ]
    kept = [axis.useful() for axis in axes]
    # One tap has no distance to others, and more templates know undilated kernels.
    dilation = [
        1 if end - first == 1 else axis.dilation
        for axis, (first, end) in zip(axes, kept, strict=True)
    ]
    whole = all(part == (0, axis.taps) for part, axis in zip(kept, axes, strict=True))
    if whole and dilation == [axis.dilation for axis in axes]:
        return None
    part = (slice(None), slice(None), *(slice(*each) for each in kept))
    before = [a.before - first * a.dilation for a, (first, _) in zip(axes, kept, strict=True)]
    after = [a.after - (a.taps - end) * a.dilation for a, (_, end) in zip(axes, kept, strict=True)]
    cropped: Call = make(
        call.args[0],
        make_const(weights[part]),
        strides=list(attrs.strides),
        padding=[*before, *after],
        dilation=dilation,
        groups=int(attrs.groups),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_dtype=attrs.out_dtype,
    )
    return cropped
