"""Pooling and local response normalisation; ceil mode becomes explicit padding at the end."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_conv import resolve_pads
from neocpu.frontend.converters.node import Converters, Node, const, dtype_of, scalar

_Pool = Callable[..., relax.Expr]
_MAX_POOL = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVG_POOL = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
MAX_WINDOW: Final = 256
"""The most channels that one element of an LRN reads; the kernel has code for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Pooling geometry by spatial axis; ``extra`` is the padding that ceil mode adds at the end."""

    extents: list[int]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]
    extra: list[int]

    @property
    def padding(self) -> list[int]:
        return self.begin + [e + x for e, x in zip(self.end, self.extra, strict=True)]

    @property
    def spans(self) -> list[int]:
        """The extent of a window, in pixels, including gaps."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def valid_counts(self, axis: int, *, include_pad: bool) -> np.ndarray:
        """Return the number of counted elements of each window along an axis, (output extent,)."""
        size = self.extents[axis] + self.begin[axis] + self.end[axis]
        outputs = (size + self.extra[axis] - self.spans[axis]) // self.strides[axis] + 1
        taps = np.arange(outputs)[:, None] * self.strides[axis]
        taps = taps + np.arange(self.kernel[axis])[None, :] * self.dilations[axis]
        low, high = (0, size) if include_pad else (self.begin[axis], size - self.end[axis])
        counts: np.ndarray = ((taps >= low) & (taps < high)).sum(axis=1)
        return counts

    def clipped(self, *, count_padding: bool) -> _Window:
        """Return the same windows without the parts outside the image.

        An axis is clipped if its only window contains the whole image. PyTorch's pools with
        ``ceil_mode`` have such windows of thousands of pixels, and a kernel would visit each pixel.
        If ``count_padding``, the padding of ``pads`` counts, and padded axes are not clipped.
        """
        clipped = deepcopy(self)
        for axis, extent in enumerate(self.extents):
            begin, end, extra = self.begin[axis], self.end[axis], self.extra[axis]
            one = extent + begin + end + extra - self.spans[axis] < self.strides[axis]
            whole = begin + extent <= self.spans[axis] and self.dilations[axis] == 1
            if one and whole and not (count_padding and begin + end):
                clipped.kernel[axis], clipped.strides[axis] = extent, 1
                clipped.begin[axis] = clipped.end[axis] = clipped.extra[axis] = 0
        return clipped


def _window(node: Node) -> _Window:
    extents = list(node.shape()[2:])
    kernel = node.ints("kernel_shape", [])
    if len(kernel) != len(extents) or len(kernel) not in _MAX_POOL:
        raise ValueError(f"kernel_shape {kernel} does not fit an input of rank {len(extents) + 2}")
    strides, dilations = node.steps(len(kernel))
    pads = resolve_pads(node, kernel)
    begin, end = pads[: len(kernel)], pads[len(kernel) :]
    ceil = node.flag("ceil_mode") and node.string("auto_pad", "NOTSET") == "NOTSET"
    extra = [0] * len(kernel)
    for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        room = extent + begin[axis] + end[axis] - span
        outputs = math.ceil(room / stride) + 1
        # A window must not start in the padding at the end; ONNX and PyTorch agree on that.
        if (outputs - 1) * stride >= extent + begin[axis]:
            outputs -= 1
        if ceil:
            extra[axis] = max((outputs - 1) * stride - room, 0)
    return _Window(
        extents=extents,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        begin=begin,
        end=end,
        extra=extra,
    )


def _refuse_empty(window: _Window) -> None:
    """Raise a `ValueError` if a window may have no pixel, and so no largest value or mean."""
    pads = window.begin + window.end
    if any(pad >= span for pad, span in zip(pads, window.spans * 2, strict=True)):
        raise ValueError(f"with pads {pads} windows of {window.spans} may lie outside the image")


def _max_pool(node: Node) -> relax.Expr:
    window = _window(node)
    _refuse_empty(window)
    return _pooled(_MAX_POOL, node.data, window.clipped(count_padding=False))


def _pooled(
    pools: Mapping[int, _Pool], data: relax.Expr, window: _Window, **options: bool
) -> relax.Expr:
    return pools[len(window.kernel)](
        data,
        pool_size=window.kernel,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        **options,
    )


def _average_pool(node: Node) -> relax.Expr:
    """AveragePool with both padding conventions.

    A window that ceil mode extends past the padding is divided by the number of its elements in
    the padded input. TVM divides by the whole window, so such a mean is rescaled by a constant.
    """
    window = _window(node)
    include = node.flag("count_include_pad")
    if not include:
        _refuse_empty(window)
    clipped = window.clipped(count_padding=include)
    if clipped != window and clipped.kernel == clipped.extents and not any(clipped.padding):
        axes = list(range(2, 2 + len(clipped.kernel)))
        return relax.op.mean(node.data, axis=axes, keepdims=True)
    return _mean(node, node.data, clipped, include_pad=include)


def _mean(node: Node, data: relax.Expr, window: _Window, *, include_pad: bool) -> relax.Expr:
    # TVM's count of the valid elements ignores dilation, so they are counted here.
    dilated = any(dilation != 1 for dilation in window.dilations)
    padded = any(window.padding)
    whole = padded and (include_pad or dilated)
    result = _pooled(_AVG_POOL, data, window, count_include_pad=whole)
    if not whole or (include_pad and not any(window.extra)):
        return result
    along = [window.valid_counts(a, include_pad=include_pad) for a in range(len(window.kernel))]
    counts = functools.reduce(np.multiply.outer, along)
    factor = math.prod(window.kernel) / np.maximum(counts, 1)
    factor = factor.reshape(1, 1, *factor.shape).astype(dtype_of(data))
    return relax.op.multiply(node.emit(result), const(factor))


def _lp_pool(node: Node) -> relax.Expr:
    window = _window(node)

    def fold(powers: relax.Expr) -> relax.Expr:
        means = _pooled(_AVG_POOL, powers, window, count_include_pad=True)
        return relax.op.multiply(node.emit(means), scalar(math.prod(window.kernel), node.data))

    return _p_norm(node, fold)


def _global_lp_pool(node: Node) -> relax.Expr:
    axes = list(range(2, len(node.shape())))
    return _p_norm(node, lambda powers: relax.op.sum(powers, axis=axes, keepdims=True))


def _p_norm(node: Node, fold: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    data, p = node.data, node.number("p", 2)
    powers = relax.op.multiply(data, data) if p == 2 else _power(relax.op.abs(data), p, data)
    total = fold(node.emit(powers))
    return relax.op.sqrt(total) if p == 2 else _power(total, 1 / p, data)


def _power(base: relax.Expr, exponent: float, like: relax.Expr) -> relax.Expr:
    return base if exponent == 1 else relax.op.power(base, scalar(exponent, like))


def _local_response_norm(node: Node) -> relax.Expr:
    """LRN as a sum of shifted slices of the squares along the channels.

    Everything is elementwise or a slice, so the normalisation fuses into one vectorised loop. The
    usual beta of 0.75 is computed by square roots, which vectorise; a power does not.
    """
    data, shape = node.data, node.shape()
    size = int(node.attrs["size"])
    alpha, beta = node.number("alpha", 1e-4), node.number("beta", 0.75)
    bias = node.number("bias", 1.0)
    if size < 1:
        raise ValueError(f"its size {size} is not a number of channels")
    # There are at most all other channels before or after one.
    before, after = (min(side, shape[1] - 1) for side in ((size - 1) // 2, size // 2))
    if before + after >= MAX_WINDOW:
        raise ValueError(
            f"its size {size} makes windows of {before + after + 1} channels; at most {MAX_WINDOW} "
            "are supported"
        )
    pad_width = [0, 0, before, after] + [0, 0] * (len(shape) - 2)
    squares = node.op.multiply(data, data)
    padded = node.emit(relax.op.nn.pad(squares, pad_width))
    total = node.emit(_slice_channels(padded, 0, shape[1]))
    for shift in range(1, before + after + 1):
        total = node.op.add(total, _slice_channels(padded, shift, shape[1]))
    scaled = relax.op.multiply(total, scalar(alpha / size, data))
    base = node.op.add(scaled, scalar(bias, data))
    return relax.op.divide(data, _denominator(node, base, beta))


def _slice_channels(data: relax.Expr, start: int, count: int) -> relax.Expr:
    return relax.op.strided_slice(data, [1], [start], [start + count], assume_inbound=True)


def _denominator(node: Node, base: relax.Expr, beta: float) -> relax.Expr:
    if beta == 0.75:
        root = node.op.sqrt(base)
        return relax.op.multiply(root, relax.op.sqrt(root))
    if beta == 0.5:
        return relax.op.sqrt(base)
    return _power(base, beta, base)


CONVERTERS: Converters = {
    "AveragePool": _average_pool,
    "GlobalLpPool": _global_lp_pool,
    "LRN": _local_response_norm,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
