"""Fast numpy versions of the operators that onnx's reference evaluator runs in Python loops.

Each class replaces the operator of its name, in every opset; windows may have any number of spatial
dimensions. They follow the standard where onnx's own deviate (LRN sums too few channels, old batch
normalization uses batch statistics, old softmax ignores the flattening).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.pieces import in_pieces

_ERF_STEP, _ERF_LAST = 1 / 256, 6.0
_ERF_TABLE = np.array([math.erf(i * _ERF_STEP) for i in range(int(_ERF_LAST / _ERF_STEP) + 1)])

#: Bytes of unfolded input (im2col) that a convolution keeps at a time.
COLUMN_BYTES = 32 << 20


class Window:
    """The geometry of a convolution or pooling window over the spatial dimensions of ``x``.

    ``attrs`` are the node's: ``strides``, ``dilations``, ``pads``, ``auto_pad``, ``ceil_mode``.
    """

    def __init__(
        self, spatial: Sequence[int], kernel: Sequence[int], attrs: dict[str, Any]
    ) -> None:
        rank = len(spatial)
        self.kernel = tuple(kernel)
        self.strides = tuple(attrs.get("strides") or (1,) * rank)
        self.dilations = tuple(attrs.get("dilations") or (1,) * rank)
        span = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        auto_pad = attrs.get("auto_pad") or "NOTSET"
        pads = list(attrs.get("pads") or (0,) * (2 * rank))
        if auto_pad == "VALID":
            pads = [0] * (2 * rank)
        elif auto_pad.startswith("SAME"):
            pads = self._same_pads(spatial, span, upper=auto_pad == "SAME_UPPER")
        self.pads = [(pads[i], pads[i + rank]) for i in range(rank)]
        self.out: list[int] = []
        #: Padding at the end, in addition to ``pads``, for the last window of ``ceil_mode``.
        self.overhang: list[int] = []
        for extent, (begin, end), reach, stride in zip(
            spatial, self.pads, span, self.strides, strict=True
        ):
            room = extent + begin + end - reach
            count = room // stride + 1
            if attrs.get("ceil_mode"):
                count = -(-room // stride) + 1
                # The last window must start inside the image or its leading padding.
                count -= (count - 1) * stride >= extent + begin
            self.out.append(count)
            self.overhang.append(max(0, (count - 1) * stride + reach - (extent + begin + end)))

    def _same_pads(self, spatial: Sequence[int], span: Sequence[int], *, upper: bool) -> list[int]:
        begins, ends = [], []
        for extent, reach, stride in zip(spatial, span, self.strides, strict=True):
            total = max(0, (-(-extent // stride) - 1) * stride + reach - extent)
            begins.append(total // 2 if upper else total - total // 2)
            ends.append(total - begins[-1])
        return begins + ends

    def pad(self, x: Array, value: float) -> Array:
        """Return ``x`` (N, C, spatial), padded so that every window lies inside it."""
        ends = [(b, e + o) for (b, e), o in zip(self.pads, self.overhang, strict=True)]
        if not any(map(any, ends)):
            return x
        around = [(0, 0), (0, 0), *((max(b, 0), max(e, 0)) for b, e in ends)]
        padded = np.pad(x, around, constant_values=value)
        # A negative amount crops.
        ends = [(0, 0), (0, 0), *ends]
        inside = [
            slice(max(-begin, 0), extent - max(-end, 0))
            for extent, (begin, end) in zip(padded.shape, ends, strict=True)
        ]
        return padded[tuple(inside)]

    def taps(self, padded: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield each position in the window, and a view (N, C, out) of it in all windows."""
        for tap in product(*map(range, self.kernel)):
            index = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s)
                for t, d, n, s in zip(tap, self.dilations, self.out, self.strides, strict=True)
            )
            yield tap, padded[(slice(None), slice(None), *index)]


class Conv(OpRun):  # type: ignore[misc]
    """Convolution as im2col and one BLAS product per image and group."""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attrs: Any) -> tuple[Array]:
        window = Window(x.shape[2:], w.shape[2:], attrs)
        padded = window.pad(x, 0)
        groups = attrs.get("group") or 1
        y = np.empty((x.shape[0], w.shape[0], *window.out), x.dtype)
        if w.shape[1] == 1 and groups == x.shape[1]:
            _depthwise(padded, w, window, y)
        else:
            for image, result in zip(padded, y, strict=True):
                convolve(image, w, groups, window, result)
        if b is not None:
            y += b.reshape(-1, *(1,) * len(window.out))
        return (y,)


def _depthwise(padded: Array, w: Array, window: Window, y: Array) -> None:
    """Compute ``y`` by one product per position in the window, for one input channel per group."""
    n, channels = padded.shape[:2]
    each = w.shape[0] // channels
    weights = w.reshape(channels, each, *window.kernel, *(1,) * len(window.out))
    total = y.reshape(n, channels, each, *window.out)
    total[...] = 0

    def add_taps(part: slice) -> None:
        some = total[:, part]
        products = np.empty_like(some)
        for tap, seen in window.taps(padded[:, part]):
            index: tuple[Any, ...] = (part, slice(None), *tap)
            some += np.multiply(seen[:, :, None], weights[index], out=products)

    in_pieces(channels, n * each * math.prod(window.out), add_taps)


def convolve(image: Array, w: Array, groups: int, window: Window, y: Array) -> None:
    """Convolve one padded image (C, spatial) into ``y`` (O, out), some output rows at a time."""
    matrix = w.reshape(groups, w.shape[0] // groups, -1)
    pointwise = all(k == 1 for k in window.kernel) and all(s == 1 for s in window.strides)
    if pointwise:
        y[...] = (matrix @ image.reshape(groups, matrix.shape[2], -1)).reshape(y.shape)
        return
    spans = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    axes = tuple(range(1, image.ndim))
    view = np.lib.stride_tricks.sliding_window_view(image, spans, axes)
    steps = tuple(slice(None, None, s) for s in window.strides)
    holes = tuple(slice(None, None, d) for d in window.dilations)
    view = view[(slice(None), *steps, *holes)]
    rank = len(window.out)
    # (C, out, kernel) -> (C, kernel, out): a column per output position.
    view = view.transpose(0, *range(rank + 1, 2 * rank + 1), *range(1, rank + 1))
    row_bytes = image.itemsize * math.prod(view.shape) // window.out[0]
    rows = max(1, COLUMN_BYTES // row_bytes)
    for start in range(0, window.out[0], rows):
        part = view[(slice(None),) * (rank + 1) + (slice(start, start + rows),)]
        columns = part.reshape(groups, matrix.shape[2], -1)
        y[:, start : start + rows] = (matrix @ columns).reshape(y.shape[0], -1, *y.shape[2:])


class ConvTranspose(OpRun):  # type: ignore[misc]
    """Transposed convolution: one BLAS product, scattered by window position."""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attrs: Any) -> tuple[Array]:
        n, rank, groups = x.shape[0], x.ndim - 2, attrs.get("group") or 1
        window = Window(x.shape[2:], w.shape[2:], {**attrs, "auto_pad": None, "pads": None})
        window.out = list(x.shape[2:])
        full, begins, shape = _transposed_geometry(x.shape[2:], window, attrs)
        outputs = w.shape[1]
        matrix = w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
        columns = x.reshape(n, groups, w.shape[0] // groups, math.prod(x.shape[2:]))
        products = matrix @ columns
        products = products.reshape(n, groups * outputs, *window.kernel, *x.shape[2:])
        y = np.zeros((n, groups * outputs, *full), x.dtype)
        index: tuple[Any, ...]
        for tap, seen in window.taps(y):
            index = (slice(None), slice(None), *tap)
            seen += products[index]
        index = (..., *(slice(s, s + e) for s, e in zip(begins, shape, strict=True)))
        y = y[index]
        if b is not None:
            y = y + b.reshape(-1, *(1,) * rank)
        return (np.ascontiguousarray(y),)


def _transposed_geometry(
    spatial: Sequence[int], window: Window, attrs: dict[str, Any]
) -> tuple[list[int], list[int], list[int]]:
    """Return the uncropped extents, the begin of the crop, and the output extents."""
    rank = len(spatial)
    extra = attrs.get("output_padding") or (0,) * rank
    pads = attrs.get("pads") or (0,) * (2 * rank)
    auto_pad = attrs.get("auto_pad") or "NOTSET"
    wanted = attrs.get("output_shape")
    if wanted is None and auto_pad.startswith("SAME"):
        wanted = [extent * stride for extent, stride in zip(spatial, window.strides, strict=True)]
    full, begins, shape = [], [], []
    for i, extent in enumerate(spatial):
        reach = (window.kernel[i] - 1) * window.dilations[i] + 1
        size = window.strides[i] * (extent - 1) + reach + extra[i]
        if wanted is None:
            begin, total = (0, 0) if auto_pad == "VALID" else (pads[i], pads[i] + pads[i + rank])
        else:
            total = size - wanted[len(wanted) - rank + i]
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        # A negative crop requires more zeros at the end than the windows write.
        full.append(max(size, begin + size - total))
        begins.append(begin)
        shape.append(size - total)
    return full, begins, shape


class MaxPool(OpRun):  # type: ignore[misc]
    """Max pooling, optionally with the first index of each maximum in the flat input."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array, ...]:
        window = Window(x.shape[2:], attrs["kernel_shape"], attrs)
        lowest = -np.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
        padded = window.pad(x, lowest)
        result = _reduce(np.maximum, window, padded)
        if len(self.onnx_node.output) == 1:
            return (result,)
        order: Any = "F" if attrs.get("storage_order") else "C"
        images, size = math.prod(x.shape[:2]), math.prod(x.shape[2:])
        numbers = np.arange(size).reshape(x.shape[2:], order=order)
        starts = np.arange(images).reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * size
        places = window.pad(starts + numbers, -1)
        found = np.full(result.shape, -1)
        for (_, value), (_, place) in zip(window.taps(padded), window.taps(places), strict=True):
            hit = (value == result) | (value != value)
            np.copyto(found, place, where=(found < 0) & (place >= 0) & hit)
        return result, found


class AveragePool(OpRun):  # type: ignore[misc]
    """Average pooling, over the image only or over the image and its padding."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        window = Window(x.shape[2:], attrs["kernel_shape"], attrs)
        total = _reduce(np.add, window, window.pad(x, 0))
        # The overhang of ``ceil_mode`` beyond the padding never counts.
        overhang, window.overhang = window.overhang, [0] * len(window.overhang)
        inside = np.ones((1, 1, *x.shape[2:]), x.dtype)
        inside = window.pad(inside, int(bool(attrs.get("count_include_pad"))))
        beyond = [(0, 0), (0, 0), *((0, extent) for extent in overhang)]
        return (total / _reduce(np.add, window, np.pad(inside, beyond)),)


class LpPool(OpRun):  # type: ignore[misc]
    """Pooling by the p-norm."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        window = Window(x.shape[2:], attrs["kernel_shape"], attrs)
        p = attrs.get("p") or 2
        total = _reduce(np.add, window, window.pad(np.abs(x) ** p, 0))
        return ((total ** (1 / p)).astype(x.dtype),)


def _reduce(operation: Callable[..., Array], window: Window, padded: Array) -> Array:
    result: Array | None = None
    for _, seen in window.taps(padded):
        result = seen.copy() if result is None else operation(result, seen, out=result)
    assert result is not None
    return result


class BatchNormalization(OpRun):  # type: ignore[misc]
    """Batch normalization in every opset; in training mode with the batch's own statistics."""

    def _run(
        self, x: Array, scale: Array, b: Array, mean: Array, var: Array, **attrs: Any
    ) -> tuple[Array, ...]:
        running: tuple[Array, ...] = ()
        if attrs.get("training_mode"):
            axes, momentum = (0, *range(2, x.ndim)), attrs["momentum"]
            own = x.mean(axis=axes), x.var(axis=axes)
            old = zip((mean, var), own, strict=True)
            running = tuple((a * momentum + o * (1 - momentum)).astype(a.dtype) for a, o in old)
            mean, var = own
        # ``spatial=0`` (before opset 9) has one statistic per element, not per channel.
        shape = (-1, *(1,) * (x.ndim - 2)) if scale.ndim == 1 else scale.shape
        factor = scale / np.sqrt(var + np.asarray(attrs["epsilon"], var.dtype))
        shift = b - mean * factor
        y = x * factor.reshape(shape) + shift.reshape(shape)
        results = (y.astype(x.dtype, copy=False), *running)
        return results[: len(self.onnx_node.output)]


class LRN(OpRun):  # type: ignore[misc]
    """Local response normalization across channels."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        size = attrs["size"]
        # There are at most all other channels before or after one.
        before, after = (min(side, x.shape[1] - 1) for side in ((size - 1) // 2, size // 2))
        squares = np.pad(x * x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        shifts = range(before + after + 1)
        total = sum(squares[:, shift : shift + x.shape[1]] for shift in shifts)
        base = attrs["bias"] + attrs["alpha"] / size * total
        return ((x / base ** attrs["beta"]).astype(x.dtype),)


class Softmax(OpRun):  # type: ignore[misc]
    """Softmax; before opset 13 over all dimensions from ``axis`` on."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        return (_softmax(self, x, attrs, logarithm=False),)


class LogSoftmax(OpRun):  # type: ignore[misc]
    """The logarithm of softmax, with the same axes."""

    def _run(self, x: Array, **attrs: Any) -> tuple[Array]:
        return (_softmax(self, x, attrs, logarithm=True),)


def _softmax(op: OpRun, x: Array, attrs: dict[str, Any], *, logarithm: bool) -> Array:
    if op.run_params["opsets"][""] < 13:
        explicit = any(attribute.name == "axis" for attribute in op.onnx_node.attribute)
        first = attrs["axis"] % x.ndim if explicit else 1
        axes = tuple(range(first, x.ndim))
    else:
        axes = (attrs["axis"],)
    function = _log_softmax_along if logarithm else _softmax_along
    first = min((axis % x.ndim for axis in axes if x.ndim), default=0)
    extent = math.prod(x.shape[first:])
    if len(axes) < x.ndim - first or not extent:
        return function(x, axes)
    rows = x.reshape(-1, extent)
    result = np.empty(rows.shape, x.dtype)

    def compute(part: slice) -> None:
        result[part] = function(rows[part], (1,))

    in_pieces(len(rows), extent, compute)
    return result.reshape(x.shape)


def _softmax_along(x: Array, axes: tuple[int, ...]) -> Array:
    shifted = np.asarray(x - x.max(axis=axes, keepdims=True))
    exponential: Array = np.exp(shifted, out=shifted)
    exponential /= exponential.sum(axis=axes, keepdims=True)
    return exponential


def _log_softmax_along(x: Array, axes: tuple[int, ...]) -> Array:
    shifted = np.asarray(x - x.max(axis=axes, keepdims=True))
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True)))


class Hardmax(OpRun):  # type: ignore[misc]
    """1 at the first maximum, else 0; before opset 13 over all dimensions from ``axis`` on."""

    def _run(self, x: Array, axis: int | None = None) -> tuple[Array]:
        old = self.run_params["opsets"][""] < 13
        explicit = any(attribute.name == "axis" for attribute in self.onnx_node.attribute)
        axis = (axis if explicit else 1 if old else -1) or 0
        shape = x.shape
        if old:
            x = x.reshape(math.prod(shape[: axis % x.ndim]), -1)
            axis = 1
        hot = np.zeros_like(x)
        np.put_along_axis(hot, np.expand_dims(x.argmax(axis), axis), 1, axis)
        return (hot.reshape(shape),)


class Erf(OpRun):  # type: ignore[misc]
    """The error function."""

    def _run(self, x: Array) -> tuple[Array]:
        return (error_function(x),)


def error_function(x: Array) -> Array:
    """Return erf of each element, by a third-order expansion around a table of exact values."""
    result = np.empty(x.shape, x.dtype)
    elements, results = x.reshape(-1), result.reshape(-1)

    def compute(part: slice) -> None:
        results[part] = _error_function(elements[part])

    in_pieces(x.size, 1, compute)
    return result


def _error_function(x: Array) -> Array:
    step, last = _ERF_STEP, _ERF_LAST
    magnitude = np.minimum(np.abs(x.astype(np.float64)), last)
    nearest = np.nan_to_num(np.rint(magnitude / step)).astype(np.int64)
    point = nearest * step
    d = magnitude - point
    slope = 2 / math.sqrt(math.pi) * np.exp(-point * point)
    series = d * (1 - d * (point - d * (2 * point * point - 1) / 3))
    return np.asarray(np.copysign(_ERF_TABLE[nearest] + slope * series, x).astype(x.dtype))
