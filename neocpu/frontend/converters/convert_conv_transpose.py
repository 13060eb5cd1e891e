"""Transposed convolutions as convolutions that compute no zeros, and a shuffle of pixels.

The outputs ``q * stride + r`` of one remainder ``r`` are a convolution with the taps ``r, r +
stride, ...`` (Shi et al., CVPR 2016). All remainders jointly are one convolution with that many
times the channels, which the layout search makes fast. It computes some outputs beyond the borders.
Where these are many, as in small images, each remainder is a convolution with its own pads. With a
stride of 1 the result is a convolution with reversed taps, whatever the dilation. With both a
stride and a dilation, there are zero taps in between.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_conv import add_bias, conv, dimensions_of, split_evenly
from neocpu.frontend.converters.node import (
    Converters,
    Node,
    const,
    constant_value,
    dtype_of,
    per_channel,
)

_NEEDLESS: Final = 1.08
"""Ratio of computed to needed outputs from which each remainder is computed separately."""
_CHANNELS: Final = 16
"""A separate remainder must have a multiple of so many channels, to fill vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """A transposed convolution along one dimension."""

    extent: int  # elements of the data
    output: int
    kernel: int
    stride: int
    dilation: int
    begin: int  # leading outputs that are cut off

    @property
    def spread(self) -> int:
        """The number of taps including the zeros of a dilation, where there is a stride."""
        return (self.kernel - 1) * self.dilation + 1 if self.stride > 1 else self.kernel

    @property
    def taps(self) -> int:
        return -(-self.spread // self.stride)

    @property
    def step(self) -> int:
        return self.dilation if self.stride == 1 else 1

    @property
    def reach(self) -> int:
        """The elements between the first tap and the last."""
        return (self.taps - 1) * self.step

    @property
    def border(self) -> tuple[int, int]:
        """The zeros to add before and after the data."""
        first, last = self.reach - self.begin, self.output - self.extent + self.begin
        if self.stride == 1 and min(first, last) >= 0:  # it computes the needed outputs only
            return first, last
        rows = -(-(self.begin + self.output) // self.stride)
        return self.reach, max(self.reach, rows - self.extent)

    @property
    def skipped(self) -> int:
        """The number of leading outputs of the convolution that are not needed."""
        return self.begin - (self.reach - self.border[0]) if self.stride == 1 else self.begin

    @property
    def rows(self) -> int:
        """The number of outputs of the convolution."""
        return self.extent + sum(self.border) - self.reach

    @property
    def remainders(self) -> list[tuple[int, int, int]]:
        """The remainders in the order of outputs, with the zeros of separate convolutions."""
        count, found = self.output // self.stride, []
        for first in range(self.stride):
            place, remainder = divmod(self.begin + first, self.stride)
            found.append((remainder, self.reach - place, place + count - self.extent))
        return found


def _conv_transpose(node: Node) -> relax.Expr:
    """ConvTranspose, with ``auto_pad`` and ``output_shape`` turned into pads."""
    if dimensions_of(node) == 1:
        return _of_rows(node)
    rank, groups = dimensions_of(node), int(node.attrs.get("group", 1))
    axes = _axes(node)
    data, outs = node.shape(), node.shape(1)[1]
    kernels = _by_remainder(node, node.inputs[1], axes, groups)
    bias = node.optional(2)
    values = None if bias is None else constant_value(bias)

    def convolved(kernels: relax.Expr, borders: Sequence[tuple[int, int]]) -> relax.Expr:
        """Return the outputs of some remainders, one after the other."""
        attrs = {
            "pads": [first for first, _ in borders] + [last for _, last in borders],
            "dilations": [axis.step for axis in axes],
            "group": groups,
        }
        result = node.emit(conv(replace(node, inputs=[node.data, kernels], attrs=attrs)))
        if values is None:
            return result
        # Added to the convolution directly, so that it fuses with it.
        count = int(kernels.ty.shape[0]) // (groups * outs)
        each = np.tile(values.reshape(groups, 1, outs), (1, count, 1)).reshape(-1)
        return node.op.add(result, per_channel(const(each), 2 + rank))

    strides, rows = [axis.stride for axis in axes], [axis.rows for axis in axes]
    is_separate = groups == 1 and _are_better_separate(axes, outs)
    if is_separate:
        result = _separately(node, kernels, axes, convolved)
        rows = [axis.output // axis.stride for axis in axes]
    else:
        result = convolved(kernels, [axis.border for axis in axes])
    if math.prod(strides) > 1:
        result = _shuffled(node, result, (data[0], groups, outs), strides, rows)
    if not is_separate:
        result = _cropped(node, result, axes)
    return result if bias is None or values is not None else add_bias(node, result)


def _are_better_separate(axes: Sequence[_Axis], outs: int) -> bool:
    """Return whether separate convolutions are faster: they compute nothing beyond the borders."""
    if outs % _CHANNELS or any(axis.output % axis.stride for axis in axes):
        return False
    if any(min(zeros) < 0 for axis in axes for _, *zeros in axis.remainders):
        return False
    computed = math.prod(axis.rows * axis.stride for axis in axes)
    return computed > _NEEDLESS * math.prod(axis.output for axis in axes)


def _separately(
    node: Node,
    kernels: relax.Expr,
    axes: Sequence[_Axis],
    convolved: Callable[[relax.Expr, Sequence[tuple[int, int]]], relax.Expr],
) -> relax.Expr:
    outs, found = node.shape(1)[1], []
    for each in itertools.product(*(axis.remainders for axis in axes)):
        number = 0
        for axis, (remainder, _, _) in zip(axes, each, strict=True):
            number = number * axis.stride + remainder
        start = number * outs
        own = node.op.strided_slice(kernels, [0], [start], [start + outs])
        found.append(convolved(own, [(first, last) for _, first, last in each]))
    return node.op.concat(found, axis=1)


def _of_rows(node: Node) -> relax.Expr:
    """Return a 1-D transposed convolution as a 2-D one of images of one row."""
    data, weights, *bias = node.inputs
    shape = node.ints("output_shape", [])
    pads = node.ints("pads", [0, 0])
    attrs = {
        **node.attrs,
        "strides": (1, *node.ints("strides", [1])),
        "dilations": (1, *node.ints("dilations", [1])),
        "output_padding": (0, *node.ints("output_padding", [0])),
        "pads": (0, pads[0], 0, pads[1]),
        **({"output_shape": (1, shape[-1])} if shape else {}),
        "kernel_shape": (1, node.shape(1)[2]),
    }
    rows = [node.op.expand_dims(each, 2) for each in (data, weights)]
    image = replace(node, inputs=[*rows, *bias], attrs=attrs)
    return relax.op.squeeze(node.emit(_conv_transpose(image)), [2])


def _axes(node: Node) -> list[_Axis]:
    extents, kernel, rank = node.shape()[2:], node.shape(1)[2:], dimensions_of(node)
    strides, dilations = node.steps(rank)
    extra = node.ints("output_padding", [0] * rank)
    sizes = zip(extents, strides, kernel, dilations, extra, strict=True)
    wholes = [(n - 1) * s + (k - 1) * d + 1 + more for n, s, k, d, more in sizes]
    pads = _pads(node, wholes, [n * s for n, s in zip(extents, strides, strict=True)])
    if min(pads[:rank]) < 0:
        raise ValueError("output_shape is larger than the convolution's full output")
    return [
        _Axis(
            extent=extents[i],
            output=wholes[i] - pads[i] - pads[rank + i],
            kernel=kernel[i],
            # That of a single element is arbitrary: with the largest, no tap meets a border.
            stride=kernel[i] if extents[i] == dilations[i] == 1 else strides[i],
            dilation=dilations[i],
            begin=pads[i],
        )
        for i in range(rank)
    ]


def _pads(node: Node, wholes: list[int], same: list[int]) -> list[int]:
    """Return the pads that cut off outputs of the ``wholes``, perhaps to the extents ``same``."""
    auto_pad, rank = node.string("auto_pad", "NOTSET"), len(wholes)
    wanted = node.ints("output_shape", [])
    if not wanted and auto_pad in ("NOTSET", "VALID"):
        zeros = [0] * (2 * rank)
        return zeros if auto_pad == "VALID" else node.ints("pads", zeros)
    totals = [a - b for a, b in zip(wholes, wanted[-rank:] or same, strict=True)]
    pads = split_evenly([max(total, 0) for total in totals], auto_pad)
    return pads[:rank] + [a + min(b, 0) for a, b in zip(pads[rank:], totals, strict=True)]


def _by_remainder(
    node: Node, weights: relax.Expr, axes: Sequence[_Axis], groups: int
) -> relax.Expr:
    """Return IOHW weights as OIHW, with O for each remainder in turn; missing taps are zeros."""
    ins, outs, *_ = node.shape(1)
    for number, axis in enumerate(axes):
        if axis.spread > axis.kernel:
            weights = _spread(node, weights, 2 + number, axis)
        weights = _extended(node, weights, 2 + number, axis.taps * axis.stride - axis.spread)
    pairs = [size for axis in axes for size in (axis.taps, axis.stride)]
    split = node.op.reshape(weights, [groups, ins // groups, outs, *pairs])
    taps = [3 + 2 * number for number in range(len(axes))]
    for place in taps:  # a transposed convolution applies its taps in reverse order
        split = node.op.flip(split, place)
    order = [0, *(place + 1 for place in taps), 2, 1, *taps]
    ordered = node.op.permute_dims(split, order)
    count = groups * outs * math.prod(axis.stride for axis in axes)
    return node.op.reshape(ordered, [count, ins // groups, *(axis.taps for axis in axes)])


def _spread(node: Node, weights: relax.Expr, place: int, axis: _Axis) -> relax.Expr:
    shape = [int(extent) for extent in weights.ty.shape]
    spaced = node.op.expand_dims(weights, place + 1)
    spaced = _extended(node, spaced, place + 1, axis.dilation - 1)
    shape[place] *= axis.dilation
    flat = node.op.reshape(spaced, shape)
    return node.op.strided_slice(flat, [place], [0], [axis.spread])


def _extended(node: Node, value: relax.Expr, place: int, more: int) -> relax.Expr:
    if not more:
        return value
    shape = [int(extent) for extent in value.ty.shape]
    shape[place] = more
    zeros = const(np.zeros(shape, dtype_of(value)))
    return node.op.concat([value, zeros], axis=place)


def _shuffled(
    node: Node,
    result: relax.Expr,
    channels: tuple[int, int, int],
    strides: Sequence[int],
    rows: Sequence[int],
) -> relax.Expr:
    """Interleave the remainders of each group and output; ``channels`` is (batch, groups, outs)."""
    batch, groups, outs = channels
    rank, grouped = len(strides), [groups] if groups > 1 else []
    first = 1 + len(grouped)
    split = relax.op.reshape(result, [batch, *grouped, *strides, outs, *rows])
    places = [place for axis in range(rank) for place in (first + 1 + rank + axis, first + axis)]
    order = [*range(first), first + rank, *places]
    moved = node.op.permute_dims(node.emit(split), order)
    extents = [count * stride for count, stride in zip(rows, strides, strict=True)]
    return node.op.reshape(moved, [batch, groups * outs, *extents])


def _cropped(node: Node, result: relax.Expr, axes: Sequence[_Axis]) -> relax.Expr:
    begins = [axis.skipped for axis in axes]
    ends = [axis.skipped + axis.output for axis in axes]
    if not any(begins) and ends == [axis.rows * axis.stride for axis in axes]:
        return result
    return node.op.strided_slice(result, [*range(2, 2 + len(axes))], begins, ends)


CONVERTERS: Converters = {"ConvTranspose": _conv_transpose}
