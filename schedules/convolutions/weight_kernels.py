"""Kernels that repack weights when a model is loaded, from weights in another packing.

They make the same bytes as the templates' ``pack_weights`` in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.convolutions.winograd.filters import weight_matrix
from neocpu.schedules.tir.bfloat16 import BITS
from neocpu.schedules.tir.builder import build_kernel, span, splat, task_loop
from neocpu.schedules.vocabulary.layout import (
    KernelLayout,
    StrassenLayout,
    WeightLayout,
    WinogradLayout,
    ceil_div,
)
from neocpu.schedules.vocabulary.target import CpuTarget

OIHW: Final = KernelLayout(1, 1)
"""The layout of weights in models."""


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """The packed weights of a convolution.

    ``oihw`` is their shape in the model, ``shape`` in memory. Blocks of output channels beyond the
    layout's are zero.
    """

    oihw: tuple[int, int, int, int]
    dtype: str
    layout: WeightLayout
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * bytes_of(self.dtype)

    @property
    def blocks(self) -> tuple[int, int]:
        """The blocks of output channels and of input channels, for weights that are not summed."""
        assert not isinstance(self.layout, StrassenLayout)
        ins = ceil_div(self.oihw[1], self.layout.ic_bn)
        each = ins * self.layout.ic_bn * self.layout.oc_bn * math.prod(self.window)
        return math.prod(self.shape) // each, ins

    @property
    def window(self) -> tuple[int, int]:
        """The taps down and across; for transformed weights, the number of points and 1."""
        if isinstance(self.layout, KernelLayout):
            return self.oihw[2], self.oihw[3]
        return len(self.matrix), 1

    @property
    def matrix(self) -> NDArray[np.float64]:
        assert isinstance(self.layout, WinogradLayout)
        return weight_matrix(self.layout.tile, self.oihw[2:], self.layout.stride)

    @property
    def factors(self) -> tuple[tuple[int, ...], str] | None:
        """The shape and element type of the factors; None for weights that are only moved."""
        if isinstance(self.layout, WinogradLayout):
            return self.matrix.shape, "float64"
        if isinstance(self.layout, StrassenLayout):
            return (self.layout.half + self.shape[0] * self.layout.oc_bn,), self.dtype
        return None

    def factors_in(self, packed: NDArray[Any]) -> NDArray[Any]:
        """Return the factors; Strassen's follow all sums: those of the input channels' second half,
        then the inverse ones of the second half of each block's output channels.
        """
        if isinstance(self.layout, WinogradLayout):
            return self.matrix
        assert isinstance(self.layout, StrassenLayout)
        half, last = self.layout.half, self.shape[1] - 1
        of_pixels = packed[0, last - ceil_div(half, self.layout.oc_bn) : last].reshape(-1)[:half]
        return np.concatenate([of_pixels, packed[:, last].reshape(-1)])


def lower_packing(source: PackedWeights, made: PackedWeights, target: CpuTarget) -> tirx.PrimFunc:
    """Return ``PrimFunc(source, packed)``, or ``(source, factors, packed)`` for a transform, with
    factors of ``made``, from weights that are not transformed.
    """
    parameters = [("source", source.shape, source.dtype), ("packed", made.shape, made.dtype)]
    emit: Callable[..., None] = _emit_move
    if (factors := made.factors) is not None:
        parameters.insert(1, ("factors", *factors))
        emit = _emit_sums if isinstance(made.layout, StrassenLayout) else _emit_transform

    def body(*buffers: Any) -> None:
        # Bits are moved unchanged.
        kind = BITS if made.dtype == BFLOAT16 else None
        flat = [
            T.decl_buffer(
                (math.prod(map(int, b.shape)),), kind or str(b.dtype), data=b.data, layout=None
            )
            for b in buffers
        ]
        emit(source, made, target, *flat)

    return build_kernel(parameters, body)


def _place(source: PackedWeights, o: Any, i: Any, tap: Any) -> Any:
    layout = source.layout
    assert isinstance(layout, KernelLayout)
    taps, dot = source.oihw[2] * source.oihw[3], layout.dot
    block = (o // layout.oc_bn * source.blocks[1] + i // layout.ic_bn) * taps + tap
    row = block * (layout.ic_bn // dot) + i % layout.ic_bn // dot
    return (row * layout.oc_bn + o % layout.oc_bn) * dot + i % dot


def _side_by_side(source: PackedWeights, made: PackedWeights) -> int:
    """Return the number of output channels that lie side by side in both packings."""
    layouts = [each.layout for each in (source, made)]
    if any(isinstance(each, KernelLayout) and each.dot > 1 for each in layouts):
        return 1
    return math.gcd(*(each.oc_bn for each in layouts))


def _known(source: PackedWeights, width: int) -> int:
    """Return the first output channel that must not be read: padding of whole blocks is zero."""
    return source.oihw[0] if width == 1 else source.blocks[0] * source.layout.oc_bn


@contextmanager
def _zeros_unless(condition: Any, buffer: Any, place: Any, width: int) -> Iterator[None]:
    """Emit the body if a condition holds; otherwise store a vector of zeros."""
    with T.If(condition):
        with T.Then():
            yield
        with T.Else():
            zeros = splat(tirx.const(0, str(buffer.dtype)), width)
            T.buffer_store(buffer, zeros, [span(place, width)])


def _emit_move(
    source: PackedWeights, made: PackedWeights, target: CpuTarget, data: Any, packed: Any
) -> None:
    """Emit the loop nest that copies weights that lie side by side in both packings::

    parallel block of output channels · block of input channels
      tap · input channel of the block · outputs side by side · input channels side by side
    """
    layout = made.layout
    assert isinstance(layout, KernelLayout)
    (outs, ins), (_, channels, *window) = made.blocks, made.oihw
    taps, dot, width = math.prod(window), layout.dot, _side_by_side(source, made)
    known = _known(source, width)
    with task_loop(outs * ins, math.prod(made.shape)) as task:
        out, block = task // ins, task % ins
        with (
            T.serial(taps) as tap,
            T.serial(layout.ic_bn // dot) as row,
            T.serial(layout.oc_bn // width) as part,
            T.serial(dot) as within,
        ):
            o, i = out * layout.oc_bn + part * width, block * layout.ic_bn + row * dot + within
            place = (((task * taps + tap) * (layout.ic_bn // dot) + row) * layout.oc_bn) * dot
            place += part * width * dot + within
            with _zeros_unless(tirx.all(o < known, i < channels), packed, place, width):
                moved = data[span(_place(source, o, i, tap), width)]
                T.buffer_store(packed, moved, [span(place, width)])


def _emit_transform(
    source: PackedWeights,
    made: PackedWeights,
    target: CpuTarget,
    data: Any,
    matrix: Any,
    packed: Any,
) -> None:
    """Emit the loop nest that transforms the taps of vectors of output channels::

    parallel block of output channels
      input channel
        taps in float64                                # in L1
        vector of output channels · point: sum of all taps' products, in order
    """
    layout = made.layout
    assert isinstance(layout, WinogradLayout)
    outs, taps = made.blocks[0], source.oihw[2] * source.oihw[3]
    padded, points = made.blocks[1] * layout.ic_bn, made.window[0]
    channels, width = source.oihw[1], layout.oc_bn
    lanes = math.gcd(width, max(1, target.lanes("float32") // 2))
    run = math.gcd(_side_by_side(source, made), lanes)
    known = _known(source, run)
    with task_loop(outs * padded, math.prod(made.shape)) as task:
        out, i = task // padded, task % padded
        wide = T.alloc_buffer((taps * width,), "float64", layout=None)
        with T.serial(width // run) as part, T.serial(taps) as tap:
            o = out * width + part * run
            place = tap * width + part * run
            with _zeros_unless(tirx.all(o < known, i < channels), wide, place, run):
                taken = data[span(_place(source, o, i, tap), run)]
                T.buffer_store(wide, taken.astype(_lanes("float64", run)), [span(place, run)])
        with T.serial(points) as point, T.serial(width // lanes) as vector:
            total = splat(tirx.const(0.0, "float64"), lanes)
            for tap in range(taps):
                factor = splat(matrix[point * taps + tap], lanes)
                total = total + factor * wide[span(tap * width + vector * lanes, lanes)]
            place = ((point * outs + out) * padded + i) * width + vector * lanes
            T.buffer_store(packed, total.astype(_lanes("float32", lanes)), [span(place, lanes)])


def _emit_sums(
    source: PackedWeights,
    made: PackedWeights,
    target: CpuTarget,
    data: Any,
    factors: Any,
    packed: Any,
) -> None:
    """Emit the loop nest that adds up weights of two halves each way for Strassen's products::

    parallel block of output channels · input channel of a half
      four weights of vectors of output channels, in float64      # in L1
      vector of output channels: its seven products' weights
      with the first channel also the channels after both halves, and the factors
    """
    assert isinstance(made.layout, StrassenLayout)
    half, width, (blocks, rows, _) = made.layout.half, made.layout.oc_bn, made.shape
    rest = source.oihw[1] - 2 * half
    with task_loop(blocks * half, math.prod(made.shape)) as task:
        channel = task % half
        wide = T.alloc_buffer((4 * width,), "float64", layout=None)
        lanes = math.gcd(width, max(1, target.lanes("float32") // 2))
        sums = _Sums(source, made, task // half, lanes, data, factors, packed, wide)
        for place in range(4):
            sums.take(place, place % 2, channel + place // 2 * half)
        factor = factors[channel].astype("float64")
        with sums.vectors() as vector:
            products = sums.products(vector, factor)
            for number, value in enumerate(products):
                sums.put(number * half + channel, vector, value)
        with T.If(channel == 0), T.Then():
            first, none = len(products) * half, tirx.const(0, made.dtype)
            for tile in range(2) if rest else ():
                with T.serial(rest) as c:
                    sums.take(tile, tile, 2 * half + c)
                    with sums.vectors() as vector:
                        sums.put(first + tile * rest + c, vector, sums.got(tile, vector))
            after, last = first + 2 * rest, rows - 1
            with T.serial((last - after) * width) as i:
                place = (task // half * rows + after) * width + i
                T.buffer_store(packed, tirx.if_then_else(i < half, factors[i], none), [place])
            with T.serial(width) as o:
                undoing = factors[half + task // half * width + o]
                T.buffer_store(packed, undoing, [(task // half * rows + last) * width + o])


class _Sums:
    """A task's sums of weights of a block of output channels; ``wide`` has the weights, in vectors
    of ``lanes`` float64, of both tiles of output channels for each half of the input channels.
    """

    def __init__(
        self,
        source: PackedWeights,
        made: PackedWeights,
        block: Any,
        lanes: int,
        data: Any,
        factors: Any,
        packed: Any,
        wide: Any,
    ) -> None:
        self.source, self.made, self.block, self.lanes = source, made, block, lanes
        self.data, self.factors, self.packed, self.wide = data, factors, packed, wide
        assert isinstance(made.layout, StrassenLayout)
        self.half, self.width = made.layout.half, made.layout.oc_bn

    def vectors(self) -> Any:
        return T.serial(self.width // self.lanes)

    def take(self, place: int, tile: int, channel: Any) -> None:
        """Read the weights of a tile for an input channel, with zeros where there are none."""
        run = math.gcd(_side_by_side(self.source, self.made), self.lanes)
        with T.serial(self.width // run) as part:
            o = (2 * self.block + tile) * self.width + part * run
            taken = place * self.width + part * run
            with _zeros_unless(o < _known(self.source, run), self.wide, taken, run):
                found = self.data[span(_place(self.source, o, channel, 0), run)].astype(
                    _lanes("float64", run)
                )
                T.buffer_store(self.wide, found, [span(taken, run)])

    def got(self, place: int, vector: Any) -> Any:
        """Return a vector that was read, for the second tile scaled to the size of the first."""
        lanes = self.lanes
        found = self.wide[span(place * self.width + vector * lanes, lanes)]
        if place % 2 == 0:
            return found
        undoing = self.factors[span(self.half + self.block * self.width + vector * lanes, lanes)]
        return found / undoing.astype(_lanes("float64", lanes))

    def products(self, vector: Any, factor: Any) -> tuple[Any, ...]:
        """Return the weights of Strassen's products in order: see `strassen_kernel`."""
        factor = splat(factor, self.lanes)
        p, q, unscaled, s = (T.Bind(self.got(place, vector)) for place in range(4))
        r, s = T.Bind(unscaled / factor), T.Bind(s / factor)
        far = T.Bind(s - q)
        return p, unscaled, far + p, far, (r - far - p) * factor, q - p, s

    def put(self, row: Any, vector: Any, value: Any) -> None:
        place = (self.block * self.made.shape[1] + row) * self.width + vector * self.lanes
        value = value.astype(_lanes("float32", self.lanes))
        T.buffer_store(self.packed, value, [span(place, self.lanes)])


def _lanes(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"
