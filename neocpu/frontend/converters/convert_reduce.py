"""Reductions over some axes, all or none, with axes as an input, as in opset 18 and newer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_integer import as_type, is_integer
from neocpu.frontend.converters.node import Node, dtype_of

_Converter = Callable[[Node], relax.Expr]
_Step = Callable[[relax.Expr], relax.Expr]
_Fold = Callable[..., relax.Expr]


def reduction(fold: _Fold, before: _Step | None = None, after: _Step | None = None) -> _Converter:
    """Return the converter of ``after(fold(before(x)))``; without axes there is no fold."""

    def convert(node: Node) -> relax.Expr:
        data, axes = _operands(node)
        if before is not None:
            data = node.emit(before(data))
        if axes != []:
            data = node.emit(fold(data, axis=axes, keepdims=_keeps(node)))
        return data if after is None else after(data)

    is_real = after is not None or fold is relax.op.mean
    return _of_integers_in_float64(convert) if is_real else convert


def extremum(fold: _Fold) -> _Converter:
    """Return the converter of ReduceMax or ReduceMin, which also take booleans."""

    def convert(node: Node) -> relax.Expr:
        data, axes = _operands(node)
        if axes == []:
            return data
        if dtype_of(data) != "bool":
            return fold(data, axis=axes, keepdims=_keeps(node))
        bits = node.emit(relax.op.astype(data, "uint8"))
        return relax.op.astype(node.emit(fold(bits, axis=axes, keepdims=_keeps(node))), "bool")

    return convert


def _of_integers_in_float64(convert: _Converter) -> _Converter:
    """Return a converter that computes integers in float64 and rounds towards zero."""

    def converted(node: Node) -> relax.Expr:
        data = node.inputs[0]
        assert data is not None
        if not is_integer(data):
            return convert(node)
        wide = node.emit(relax.op.astype(data, "float64"))
        found = node.emit(convert(replace(node, inputs=[wide, *node.inputs[1:]])))
        return as_type(node, found, dtype_of(data))

    return converted


@_of_integers_in_float64
def log_sum_exp(node: Node) -> relax.Expr:
    """ReduceLogSumExp, also of infinities, because the shift is clipped to finite numbers."""
    data, axes = _operands(node)
    if axes == []:
        return data
    largest = node.emit(relax.op.max(data, axis=axes, keepdims=True))
    bound = float(np.finfo(dtype_of(data)).max)
    shift = node.emit(relax.op.clip(largest, -bound, bound))
    terms = node.emit(relax.op.exp(node.emit(relax.op.subtract(data, shift))))
    total = node.emit(relax.op.sum(terms, axis=axes, keepdims=True))
    result = node.emit(relax.op.add(node.emit(relax.op.log(total)), shift))
    return result if _keeps(node) else relax.op.squeeze(result, axes)


def square(data: relax.Expr) -> relax.Expr:
    """Return the square of every element."""
    return relax.op.multiply(data, data)


def _operands(node: Node) -> tuple[relax.Expr, list[int] | None]:
    """Return the data and the axes: None for all axes, an empty list for none."""
    data = node.inputs[0]
    assert data is not None
    rank = int(data.ty.ndim)
    chosen = node.constant(1)
    axes = [] if chosen is None else [int(axis) for axis in chosen.reshape(-1)]
    if not axes:
        return data, [] if int(node.attrs.get("noop_with_empty_axes", 0)) else None
    if any(not -rank <= axis < rank for axis in axes):
        raise ValueError(f"its axes {axes} are out of range for {rank} dimensions")
    return data, sorted({axis % rank for axis in axes})


def _keeps(node: Node) -> bool:
    return int(node.attrs.get("keepdims", 1)) != 0
