"""Which taps of dilated windows meet the image: where they read nothing but padding they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


@dataclass(frozen=True, slots=True)
class TapAxis:
    """A convolution along one axis, whose outputs are computed ``tile`` at a time."""

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    tile: int

    @property
    def tiles(self) -> int:
        """How many there are."""
        return ceil_div(self.outputs, self.tile)

    @property
    def skips(self) -> bool:
        """Whether some tap of some tile is left out: of dilated windows alone."""
        return self.dilation > 1 and self.live < self.tiles * self.taps

    @property
    def live(self) -> int:
        """Pairs of a tile and a tap that reads a pixel for it; all, of windows not dilated."""
        if self.dilation == 1:
            return self.tiles * self.taps
        ends = (self.ends(tile, tap) for tile in range(self.tiles) for tap in range(self.taps))
        return sum(low < self.extent and high >= 0 for low, high in ends)

    def ends(self, tile: Any, tap: Any) -> tuple[Any, Any]:
        """Return where a tap of a tile's first and last output reads; padding is outside."""
        low = tile * (self.tile * self.stride) + tap * self.dilation - self.before
        return low, low + (self.tile - 1) * self.stride


def mean_taps(workload: Conv2dWorkload, axis: int) -> float:
    """Return how many taps of a window's row or column lie in the image, on average."""
    extent, outputs = workload.input_shape[2 + axis], workload.output_shape[2 + axis]
    stride, reach = workload.stride[axis], workload.kernel[axis] * workload.dilation[axis]
    before = workload.padding[axis]
    inside = (
        len(range(max(0, ceil_div(-at, stride)), min(outputs, ceil_div(extent - at, stride))))
        for at in range(-before, reach - before, workload.dilation[axis])  # in the first window
    )
    return sum(inside) / outputs


def tap_axes(workload: Conv2dWorkload, scheme: DirectScheme) -> tuple[TapAxis, TapAxis]:
    """Return the rows and the columns of a convolution's register tiles."""
    w = workload
    rows = (w.height, w.out_height, w.kernel[0], w.stride[0], w.dilation[0], w.padding[0])
    columns = (w.width, w.out_width, w.kernel[1], w.stride[1], w.dilation[1], w.padding[1])
    return TapAxis(*rows, scheme.reg_oh), TapAxis(*columns, scheme.reg_n)


def skip_dead_taps(func: tirx.PrimFunc, axis: TapAxis, tile: Any, tap: Var) -> tirx.PrimFunc:
    """Return a kernel whose loop over ``tap`` leaves out those that ``tile`` has no pixel for."""
    if not axis.skips:
        return func

    def guard(loop: tirx.For) -> tirx.For:
        if not loop.loop_var.same_as(tap):
            return loop
        low, high = axis.ends(tile, tap)
        body = tirx.IfThenElse(tirx.all(low < axis.extent, high >= 0), loop.body, None)
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, None, loop.annotations
        )

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, guard)))
