"""Operators along axes: reductions, normalisations, ranking, and cumulative sums.

Reductions are over some axes, all or none, given as in opset 18 and newer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_integer import as_type, is_integer
from neocpu.frontend.converters.node import (
    Converters,
    Node,
    around,
    const,
    constant_value,
    dtype_of,
    positive_axis,
    scalar,
)
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.operators.ranking.arg_extremum import lower_arg_extremum
from neocpu.schedules.operators.ranking.top_k import lower_top_k
from neocpu.schedules.operators.statistics.cumulative_sum import lower_cumulative_sum


def _top_k(node: Node) -> relax.Expr:
    """TopK with a constant k; always sorted."""
    axis, k = int(node.attrs.get("axis", -1)) % len(node.shape()), int(node.required(1).item())
    if not 0 < k <= (most := node.shape()[axis]):
        raise ValueError(f"its k is {k}; it must be 1 to {most}, the extent of axis {axis}")
    return first_elements(node, axis, k, largest=node.flag("largest", 1))


def first_elements(
    node: Node, axis: int, k: int, *, largest: bool, count: Sequence[relax.Expr] = ()
) -> relax.Expr:
    """Return the first elements in order, and their places; ``count`` may say how many count."""
    shape, dtype = node.shape(), dtype_of(node.data)
    rows = around(shape, axis)
    kernel = lower_top_k(rows, k, largest=largest, dtype=dtype, counted=bool(count))
    results = [((rows[0], k, rows[2]), each) for each in (dtype, "int64")]
    flat = node.op.reshape(node.data, rows)
    ways = KernelRows(f"largest={largest}", [([axis], [axis, axis]) for axis in (0, 2)])
    marked = None if count else ways
    found = node.bind(node.call("top_k", kernel, [flat, *count], results, marked))
    result = (*shape[:axis], k, *shape[axis + 1 :])
    return relax.Tuple([node.op.reshape(relax.TupleGetItem(found, i), result) for i in range(2)])


def _arg_extremum(node: Node, *, largest: bool) -> relax.Expr:
    """ArgMax and ArgMin, where NaN counts as the best infinity."""
    shape, axis, last = node.shape(), node.axis(0), node.flag("select_last_index")
    rows = around(shape, axis)
    kernel = lower_arg_extremum(rows, dtype_of(node.data), largest=largest, last=last)
    flat = node.op.reshape(node.data, rows)
    results = [((rows[0], rows[2]), "int64")]
    batch_rows = KernelRows(f"largest={largest} last={last}", [([0], [0]), ([2], [1])])
    found = node.call("arg_extremum", kernel, [flat], results, batch_rows)
    kept = [1] if node.flag("keepdims", 1) else []
    return relax.op.reshape(found, (*shape[:axis], *kept, *shape[axis + 1 :]))


def _hardmax(node: Node) -> relax.Expr:
    """Hardmax, where NaN counts as infinity."""
    axis, rank = int(node.attrs.get("axis", -1)), len(node.shape())
    alone = replace(node, attrs={"axis": axis, "keepdims": 1})
    places = np.arange(node.shape()[axis]).reshape(-1, *(1,) * (rank - 1 - axis % rank))
    largest = node.emit(_arg_extremum(alone, largest=True))
    return relax.op.astype(node.op.equal(largest, const(places)), dtype_of(node.data))


def _cumulative_sum(node: Node) -> relax.Expr:
    shape = node.shape()
    rows = around(shape, positive_axis(int(node.required(1).item()), len(shape)))
    exclusive, reverse, dtype = node.flag("exclusive"), node.flag("reverse"), dtype_of(node.data)
    kernel = lower_cumulative_sum(rows, dtype, exclusive=exclusive, reverse=reverse)
    flat = node.op.reshape(node.data, rows)
    ways = [([axis], [axis]) for axis in (0, 2)]
    batch_rows = KernelRows(f"exclusive={exclusive} reverse={reverse}", ways)
    found = node.call("cumulative_sum", kernel, [flat], [(rows, dtype)], batch_rows)
    return relax.op.reshape(found, shape)


_Converter = Callable[[Node], relax.Expr]
_Step = Callable[[relax.Expr], relax.Expr]
_Fold = Callable[..., relax.Expr]


def _reduction(fold: _Fold, before: _Step | None = None, after: _Step | None = None) -> _Converter:
    """Return the converter of ``after(fold(before(x)))``; without axes there is no fold."""

    def convert(node: Node) -> relax.Expr:
        data, axes = _operands(node)
        if before is not None:
            data = node.emit(before(data))
        if axes != []:
            data = node.emit(fold(data, axis=axes, keepdims=node.flag("keepdims", 1)))
        return data if after is None else after(data)

    is_real = after is not None or fold is relax.op.mean
    return _of_integers_in_float64(convert) if is_real else convert


def _extremum(fold: _Fold) -> _Converter:
    """Return the converter of ReduceMax or ReduceMin, which also take booleans."""

    def convert(node: Node) -> relax.Expr:
        data, axes = _operands(node)
        if axes == []:
            return data
        keeps = node.flag("keepdims", 1)
        if dtype_of(data) != "bool":
            return fold(data, axis=axes, keepdims=keeps)
        bits = node.op.astype(data, "uint8")
        return relax.op.astype(node.emit(fold(bits, axis=axes, keepdims=keeps)), "bool")

    return convert


def _of_integers_in_float64(convert: _Converter) -> _Converter:
    """Return a converter that computes integers in float64 and rounds towards zero."""

    def converted(node: Node) -> relax.Expr:
        data = node.data
        if not is_integer(data):
            return convert(node)
        wide = node.op.astype(data, "float64")
        found = node.emit(convert(replace(node, inputs=[wide, *node.inputs[1:]])))
        return as_type(node, found, dtype_of(data))

    return converted


@_of_integers_in_float64
def _log_sum_exp(node: Node) -> relax.Expr:
    """ReduceLogSumExp, also of infinities, because the shift is clipped to finite numbers."""
    data, axes = _operands(node)
    if axes == []:
        return data
    largest = node.op.max(data, axis=axes, keepdims=True)
    bound = float(np.finfo(dtype_of(data)).max)
    shift = node.op.clip(largest, -bound, bound)
    terms = node.op.exp(node.op.subtract(data, shift))
    total = node.op.sum(terms, axis=axes, keepdims=True)
    result = node.op.add(node.op.log(total), shift)
    return result if node.flag("keepdims", 1) else relax.op.squeeze(result, axes)


def _square(data: relax.Expr) -> relax.Expr:
    return relax.op.multiply(data, data)


def _operands(node: Node) -> tuple[relax.Expr, list[int] | None]:
    """Return the data and the axes: None for all axes, an empty list for none."""
    data = node.data
    rank = int(data.ty.ndim)
    chosen = node.constant(1)
    axes = [] if chosen is None else [int(axis) for axis in chosen.reshape(-1)]
    if not axes:
        return data, [] if node.flag("noop_with_empty_axes") else None
    if any(not -rank <= axis < rank for axis in axes):
        raise ValueError(f"its axes {axes} are out of range for {rank} dimensions")
    return data, sorted({axis % rank for axis in axes})


def _batch_norm(node: Node) -> relax.Expr:
    """BatchNormalization in inference: output 0 of ``relax.nn.batch_norm``."""
    data = node.data
    result = relax.op.nn.batch_norm(
        data,
        *(as_type(node, value, dtype_of(data)) for value in node.inputs[1:5]),
        axis=1,
        epsilon=node.number("epsilon", 1e-5),
        training=False,
    )
    return relax.TupleGetItem(node.emit(result), 0)


def _instance_norm(node: Node) -> relax.Expr:
    """InstanceNormalization: a group normalisation with groups of one channel."""
    data, gamma, beta = node.inputs
    axes, epsilon = [*range(2, len(node.shape()))], node.number("epsilon", 1e-5)
    return relax.op.nn.group_norm(data, gamma, beta, node.shape()[1], 1, axes, epsilon)


def _layer_norm(node: Node) -> relax.Expr:
    """LayerNormalization over the last axes, first output only."""
    axes = _last_axes(node)
    extents = [node.shape()[axis] for axis in axes]
    gamma, beta = node.inputs[1], node.optional(2)
    if beta is None:
        beta = const(np.zeros(extents, dtype_of(node.data)))
    gamma, beta = (_broadcast(value, extents) for value in (gamma, beta))
    epsilon = node.number("epsilon", 1e-5)
    return relax.op.nn.layer_norm(node.data, gamma, beta, axes, epsilon)


def _rms_norm(node: Node) -> relax.Expr:
    data = node.data
    mean = relax.op.mean(_square(data), axis=_last_axes(node), keepdims=True)
    base = relax.op.add(mean, scalar(node.number("epsilon", 1e-5), data))
    return relax.op.multiply(relax.op.divide(data, relax.op.sqrt(base)), node.inputs[1])


def _mean_variance_norm(node: Node) -> relax.Expr:
    """MeanVarianceNormalization, centred before squaring, with ONNX's epsilon of 1e-9."""
    data, axes = node.data, node.ints("axes", (0, 2, 3))
    mean = relax.op.mean(data, axis=axes, keepdims=True)
    centred = node.op.subtract(data, mean)
    variance = relax.op.mean(_square(centred), axis=axes, keepdims=True)
    return relax.op.divide(centred, relax.op.add(relax.op.sqrt(variance), scalar(1e-9, data)))


def _lp_normalization(node: Node) -> relax.Expr:
    """LpNormalization: x divided by its 1- or 2-norm along an axis; 0 where the norm is 0."""
    data, axis, p = node.data, int(node.attrs.get("axis", -1)), int(node.attrs.get("p", 2))
    if p not in (1, 2):
        raise ValueError(f"its p {p} is neither 1 nor 2")
    powers = relax.op.abs(data) if p == 1 else _square(data)
    norm = relax.op.sum(powers, axis=axis, keepdims=True)
    # x is 0 wherever its norm is, so any other divisor gives the 0 that ONNX requires.
    norm = node.emit(norm if p == 1 else relax.op.sqrt(norm))
    is_zero = relax.op.equal(norm, scalar(0.0, data))
    return relax.op.divide(data, relax.op.where(is_zero, scalar(1.0, data), norm))


def _last_axes(node: Node) -> list[int]:
    rank = len(node.shape())
    return list(range(int(node.attrs.get("axis", -1)) % rank, rank))


def _broadcast(value: relax.Expr, extents: list[int]) -> relax.Expr:
    array = constant_value(value)
    if array is None:
        return relax.op.broadcast_to(value, extents)
    return const(np.ascontiguousarray(np.broadcast_to(array, extents)))


CONVERTERS: Converters = {
    "ArgMax": partial(_arg_extremum, largest=True),
    "ArgMin": partial(_arg_extremum, largest=False),
    "BatchNormalization": _batch_norm,
    "CumSum": _cumulative_sum,
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_norm,
    "RMSNormalization": _rms_norm,
    "ReduceL1": _reduction(relax.op.sum, before=relax.op.abs),
    "ReduceL2": _reduction(relax.op.sum, before=_square, after=relax.op.sqrt),
    "ReduceLogSum": _reduction(relax.op.sum, after=relax.op.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extremum(relax.op.max),
    "ReduceMean": _reduction(relax.op.mean),
    "ReduceMin": _extremum(relax.op.min),
    "ReduceProd": _reduction(relax.op.prod),
    "ReduceSum": _reduction(relax.op.sum),
    "ReduceSumSquare": _reduction(relax.op.sum, before=_square),
    "TopK": _top_k,
}
