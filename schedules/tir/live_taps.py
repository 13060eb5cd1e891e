"""Removal of taps of dilated windows that read only padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class TapAxis:
    """A convolution along one axis whose outputs are computed ``tile`` at a time."""

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    tile: int

    @property
    def tiles(self) -> int:
        return ceil_div(self.outputs, self.tile)

    @property
    def skips(self) -> bool:
        """Whether some tap of some tile is left out, which only happens in dilated windows."""
        return self.dilation > 1 and self.live < self.tiles * self.taps

    @property
    def live(self) -> int:
        """The number of pairs of a tile and a tap that reads a pixel for it; all if not dilated."""
        if self.dilation == 1:
            return self.tiles * self.taps
        ends = (self.ends(tile, tap) for tile in range(self.tiles) for tap in range(self.taps))
        return sum(low < self.extent and high >= 0 for low, high in ends)

    def ends(self, tile: Any, tap: Any) -> tuple[Any, Any]:
        """Return the inputs of a tap for a tile's first and last output; padding is outside."""
        low = tile * (self.tile * self.stride) + tap * self.dilation - self.before
        return low, low + (self.tile - 1) * self.stride


def mean_taps(workload: Conv2dWorkload, axis: int) -> float:
    """Return the mean number of taps of a window's row or column that lie in the image."""
    extent, outputs = workload.input_shape[2 + axis], workload.output_shape[2 + axis]
    stride, reach = workload.stride[axis], workload.kernel[axis] * workload.dilation[axis]
    before = workload.padding[axis]
    inside = (
        len(range(max(0, ceil_div(-at, stride)), min(outputs, ceil_div(extent - at, stride))))
        for at in range(-before, reach - before, workload.dilation[axis])  # in the first window
    )
    return sum(inside) / outputs


def tap_axes(workload: Conv2dWorkload, scheme: DirectScheme) -> tuple[TapAxis, TapAxis]:
    """Return the axes of a convolution's register tiles: rows and columns."""
    w = workload

    def axis(index: int, tile: int) -> TapAxis:
        return TapAxis(
            extent=(w.height, w.width)[index],
            outputs=(w.out_height, w.out_width)[index],
            taps=w.kernel[index],
            stride=w.stride[index],
            dilation=w.dilation[index],
            before=w.padding[index],
            tile=tile,
        )

    return axis(0, scheme.reg_oh), axis(1, scheme.reg_n)


def skip_dead_taps(func: tirx.PrimFunc, axis: TapAxis, tile: Any, tap: Var) -> tirx.PrimFunc:
    """Return a kernel whose loop over ``tap`` skips taps without a pixel for ``tile``."""
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
