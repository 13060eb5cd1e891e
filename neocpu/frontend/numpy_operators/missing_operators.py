"""Operators that onnx's reference evaluator lacks, gets wrong, or runs in Python loops per pixel.

It pools over the wrong axes unless there are two, and computes a sum for the 1-norm. It lacks
GlobalLpPool, padding that crops, DequantizeLinear before opset 19, and GridSample's modes before
opset 20. Softsign and ReduceLogSumExp fail for scalars, Mean if tensors broadcast, CumSum if its
axis is a list, and OneHot if its depth is one. Einsum does not use BLAS where it could.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_cum_sum import CumSum as OnnxCumSum

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.cubic_kernel import cubic_kernel


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """The maximum over all spatial dimensions."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GlobalAveragePool(OpRun):  # type: ignore[misc]
    """The mean over all spatial dimensions, also of a batch without images."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Flatten(OpRun):  # type: ignore[misc]
    """Two dimensions, also without elements."""

    def _run(self, x: Array, axis: int | None = None) -> tuple[Array]:
        at = 1 if axis is None else axis
        at += x.ndim if at < 0 else 0
        return (x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:])),)


class GlobalLpPool(OpRun):  # type: ignore[misc]
    """The p-norm over all spatial dimensions."""

    def _run(self, x: Array, p: int | None = None, **attrs: Any) -> tuple[Array]:
        p = p or 2
        axes = tuple(range(2, x.ndim))
        return ((np.abs(x) ** p).sum(axis=axes, keepdims=True) ** x.dtype.type(1 / p),)


class DequantizeLinear(OpRun):  # type: ignore[misc]
    """``(x - zero) * scale`` with one scale, one per index of an axis, or one per block of it."""

    def _run(self, x: Array, scale: Array, zero: Array | None = None, **attrs: Any) -> tuple[Array]:
        axis, block = attrs.get("axis"), attrs.get("block_size")
        axis = 1 if axis is None else axis

        def spread(values: Array) -> Array:
            if block:
                return np.repeat(values, block, axis).take(range(x.shape[axis]), axis)
            along = [1] * x.ndim
            if values.size > 1:
                along[axis] = -1
            return values.reshape(along)

        # Even for 8 bits, floating point would have numbers between integers.
        kind = np.int64 if np.dtype(x.dtype).kind in "iu" or "int" in x.dtype.name else scale.dtype
        values = x.astype(kind)
        if zero is not None:
            values = values - spread(np.asarray(zero)).astype(kind)
        scaled = values.astype(scale.dtype) * spread(np.asarray(scale))
        return (scaled.astype(scale.dtype),)


class Mean(OpRun):  # type: ignore[misc]
    """The mean of tensors that broadcast."""

    def _run(self, *tensors: Array) -> tuple[Array]:
        return (np.asarray(sum(tensors) / len(tensors)).astype(tensors[0].dtype),)


class Einsum(OpRun):  # type: ignore[misc]
    """Einstein summation; of two tensors by BLAS, where possible."""

    def _run(self, *operands: Array, equation: str = "") -> tuple[Array]:
        product = _product(equation.replace(" ", ""), operands)
        return (np.asarray(np.einsum(equation, *operands)) if product is None else product,)


def _product(equation: str, operands: Sequence[Array]) -> Array | None:
    """Return a sum of products of two tensors as batched matrix products; None if it is not one."""
    terms, arrow, result = equation.partition("->")
    labels = terms.split(",")
    if len(operands) != 2 or not arrow or any(len(set(each)) < len(each) for each in labels):
        return None
    left, right = labels
    batch = [label for label in result if label in left and label in right]
    summed = [label for label in left if label in right and label not in result]
    rows, columns = ([x for x in result if x in t and x not in batch] for t in (left, right))
    if "." in equation or {*batch, *summed, *rows, *columns} != {*left, *right}:
        return None
    extents = dict(zip(left + right, operands[0].shape + operands[1].shape, strict=True))

    def matrices(array: Array, own: str, *groups: list[str]) -> Array:
        order = [own.index(label) for group in groups for label in group]
        sizes = [math.prod(extents[label] for label in group) for group in groups]
        return array.transpose(order).reshape(sizes)

    first = matrices(operands[0], left, batch, rows, summed)
    product = first @ matrices(operands[1], right, batch, summed, columns)
    made = [*batch, *rows, *columns]
    whole = product.reshape([extents[label] for label in made])
    return whole.transpose([made.index(label) for label in result])


class MeanVarianceNormalization(OpRun):  # type: ignore[misc]
    """Mean 0 and variance 1 along axes; onnx has a function for it, in float32 only."""

    def _run(self, x: Array, axes: Any = None) -> tuple[Array]:
        along = tuple(axes) if axes else (0, 2, 3)
        centred = x - x.mean(axis=along, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=along, keepdims=True))
        return ((centred / (deviation + x.dtype.type(1e-9))).astype(x.dtype),)


class GroupNormalization(OpRun):  # type: ignore[misc]
    """Mean 0 and variance 1 in each group of channels, and then a scale and a bias per channel."""

    def _run(self, x: Array, scale: Array, bias: Array, **attrs: Any) -> tuple[Array]:
        groups, kind = attrs["num_groups"], x.dtype
        wide = x.astype(np.float32) if kind.itemsize < 4 else x
        rows = wide.reshape(x.shape[0], groups, -1)
        centred = rows - rows.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        epsilon = attrs.get("epsilon")
        epsilon = np.asarray(1e-5 if epsilon is None else epsilon, wide.dtype)
        normal = (centred / np.sqrt(variance + epsilon)).reshape(x.shape)
        if scale.size != x.shape[1]:  # before opset 21 there was one for each group
            scale, bias = (np.repeat(each, x.shape[1] // groups) for each in (scale, bias))
        along = (-1, *(1,) * (x.ndim - 2))
        return ((normal * scale.reshape(along) + bias.reshape(along)).astype(kind),)


class OneHot(OpRun):  # type: ignore[misc]
    """One value where an index points to, another elsewhere; the depth may be a list of one."""

    def _run(self, x: Array, depth: Array, values: Array, axis: int | None = None) -> tuple[Array]:
        extent, axis = int(np.reshape(depth, ()).item()), -1 if axis is None else axis
        place = np.expand_dims(np.where(x < 0, x + extent, x), axis)
        along = [1] * place.ndim
        along[axis] = extent
        return (np.where(place == np.arange(extent).reshape(along), values[1], values[0]),)


class CumSum(OnnxCumSum):  # type: ignore[misc]
    """Sums along an axis; the axis may be a list of one."""

    def _run(self, x: Array, axis: Array, **attributes: Any) -> tuple[Array]:
        results: tuple[Array] = super()._run(x, np.reshape(axis, ()), **attributes)
        return results


class LpNormalization(OpRun):  # type: ignore[misc]
    """Division by the 1- or 2-norm along an axis; 0 where the norm is 0."""

    def _run(self, x: Array, axis: int | None = None, p: int | None = None) -> tuple[Array]:
        axis = -1 if axis is None else axis
        norm = np.linalg.norm(x, p or 2, axis, keepdims=True) if x.ndim else np.abs(x)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


class Softsign(OpRun):  # type: ignore[misc]
    """``x / (1 + |x|)``, also of a scalar."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.asarray(x / (1 + np.abs(x))),)


class Pad(OpRun):  # type: ignore[misc]
    """Padding in every mode; a negative amount crops."""

    def _run(
        self,
        data: Array,
        widths: Array | None = None,
        fill: Array | None = None,
        axes: Array | None = None,
        *,
        pads: Array | None = None,
        value: float | None = None,
        mode: str | None = None,
    ) -> tuple[Array]:
        amounts = np.asarray(pads if widths is None else widths).reshape(2, -1)
        chosen = range(data.ndim) if axes is None else np.asarray(axes).tolist()
        around = np.zeros((data.ndim, 2), np.int64)
        for axis, begin, end in zip(chosen, *amounts, strict=True):
            around[axis] = begin, end
        cropped = tuple(
            slice(max(-begin, 0), extent + min(end, 0))
            for extent, (begin, end) in zip(data.shape, around, strict=True)
        )
        constant = value if fill is None else np.asarray(fill).item()
        how: dict[str, Any] = {"mode": mode or "constant"}
        if mode in _CONSTANT:
            how["constant_values"] = constant or 0
        data, around = data[cropped], np.maximum(around, 0)
        if mode == "reflect":  # short axes are reflected again and again
            for axis, (begin, end) in enumerate(around.tolist()):
                extent = data.shape[axis]
                there_and_back = np.concatenate([np.arange(extent), np.arange(extent - 2, 0, -1)])
                places = np.arange(-begin, extent + end) % len(there_and_back)
                data = data.take(there_and_back[places], axis)
            return (data,)
        return (np.pad(data, around, **how).astype(data.dtype),)


_CONSTANT = (None, "constant")


class GridSample(OpRun):  # type: ignore[misc]
    """Interpolated pixels of an image at positions from -1 to 1, with the last dimension first."""

    def _run(
        self,
        x: Array,
        grid: Array,
        mode: str | None = None,
        padding_mode: str | None = None,
        align_corners: int | None = None,
    ) -> tuple[Array]:
        kind = x.dtype
        x = x.astype(np.float64 if kind.kind in "iu" else np.promote_types(kind, np.float32))
        extents = np.array(x.shape[2:], x.dtype)
        # As in compiled code: NaN becomes -1, and positions stay within the range of integers.
        limit = max(2.0, 2.0**28 / extents.max())
        at = np.where(np.isnan(grid), -1, grid)[..., ::-1]
        at = np.clip(at, -limit, limit).astype(x.dtype)
        last = extents - 1
        at = (at + 1) / 2 * last if align_corners else ((at + 1) * extents - 1) / 2
        low, high = (0 * extents, last) if align_corners else (0 * extents - 0.5, extents - 0.5)
        taps = _TAPS[mode or "linear"]
        padding = padding_mode or "zeros"
        if mode == "nearest":
            at = np.rint(at)
        # For a cubic, each tap is moved into the image; for others, the position is.
        if padding == "border" and taps is not _CUBIC:
            at = np.clip(at, 0, last)
        elif padding == "reflection" and taps is not _CUBIC:
            at = _reflected(at, low, high)
        base = np.floor(at)
        weights = {shift: weigh(at - base) for shift, weigh in taps.items()}
        result = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
        for shifts in product(taps, repeat=len(extents)):
            position = base + shifts
            weight = np.prod([weights[s][..., axis] for axis, s in enumerate(shifts)], axis=0)
            result += weight[:, None] * _pixels(x, position, padding, low, high)
        if kind.kind in "iu":  # towards zero; a cubic may be beyond its pixels
            result = result.clip(np.iinfo(kind).min, np.iinfo(kind).max)
        return (result.astype(kind),)


_ALPHA = -0.75  # the parameter of Keys' kernel, as in PyTorch

_LINEAR: Mapping[int, Callable[[Array], Array]] = {0: lambda t: 1 - t, 1: lambda t: t}
_CUBIC: Mapping[int, Callable[[Array], Array]] = {
    shift: lambda t, shift=shift: cubic_kernel(np.abs(t - shift), _ALPHA)  # type: ignore[misc]
    for shift in (-1, 0, 1, 2)
}
_TAPS: Mapping[str, Mapping[int, Callable[[Array], Array]]] = {
    "nearest": {0: np.ones_like},
    "linear": _LINEAR,
    "bilinear": _LINEAR,
    "cubic": _CUBIC,
    "bicubic": _CUBIC,
}


def _reflected(at: Array, low: Array, high: Array) -> Array:
    span = np.maximum(high - low, np.finfo(at.dtype).tiny)
    inside = np.where((at < low) | (at > high), span - np.abs((at - low) % (2 * span) - span), 0)
    return np.where((at < low) | (at > high), low + inside, at)


def _pixels(x: Array, position: Array, padding: str, low: Array, high: Array) -> Array:
    """Return the pixels at whole positions, (batch, channels, grid)."""
    if padding == "reflection":
        position = _reflected(position, low, high)
    last = np.array(x.shape[2:]) - 1
    index = np.clip(np.nan_to_num(position), 0, last).astype(np.int64)
    selected = np.stack([x[n][(slice(None), *np.moveaxis(i, -1, 0))] for n, i in enumerate(index)])
    if padding != "zeros":
        return selected
    inside: Array = np.all((position >= 0) & (position <= last), axis=-1)
    return np.where(inside[:, None], selected, 0)
