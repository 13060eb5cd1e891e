"""Operators that are computed otherwise than TVM defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.ir import Call

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import OPAQUE, dtype_of, static_shape
from neocpu.ir.norm_calls import TAKES_ELEMENTWISE
from neocpu.schedules.operators.indexing.lookup import lower_take
from neocpu.schedules.operators.quantised.quantise import dequantise, quantise
from neocpu.schedules.operators.select import SELECT, select
from neocpu.schedules.operators.statistics.normalization import group_norm, layer_norm, softmax

_FUSING: Final = {"op_pattern": TAKES_ELEMENTWISE}

_WHERE: Final = tvm.ir.Op.get("relax.where").get_attr("FLegalize")
"""TVM's own legalization of ``where``."""

_TAKE: Final = tvm.ir.Op.get("relax.take").get_attr("FLegalize")
_WIDE_ROWS: Final = 16
"""Elements from which a row is worth a kernel."""

_POWER: Final = tvm.ir.Op.get("relax.power").get_attr("FLegalize")


def _layer_norm(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    return bb.call_te(
        layer_norm, *call.args, call.attrs.axes, call.attrs.epsilon, primfunc_attrs=_FUSING
    )


def _group_norm(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    attrs = call.attrs
    return bb.call_te(
        group_norm, *call.args, attrs.num_groups, attrs.epsilon, primfunc_attrs=_FUSING
    )


def _softmax(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    return bb.call_te(softmax, call.args[0], int(call.attrs.axis), primfunc_attrs=_FUSING)


def _quantise(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    attrs = call.attrs
    return bb.call_te(quantise, *call.args, int(attrs.axis), str(attrs.out_dtype))


def _dequantise(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    return bb.call_te(dequantise, *call.args, int(call.attrs.axis))


def _where(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    """Make a selection by one condition a kernel of its own, so that its inputs may be skipped."""
    condition, then, other = map(static_shape, call.args)
    if call.args[1].same_as(call.args[2]):
        return call.args[1]
    if condition != () or then is None or then != other:
        return _WHERE(bb, call)
    opaque = {"op_pattern": OPAQUE, SELECT: 1}
    return bb.call_te(select, *call.args, primfunc_attrs=opaque)


def _power(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    """Leave powers by constants to TVM, but hide exponents: it expands those from 3 on."""
    exponent = _scalar(call.args[1])
    if exponent is None:
        return _POWER(bb, call)
    return bb.call_te(topi.power, call.args[0], _opaque(exponent))


def _arithmetic(operator: str, compute: Callable[..., Any]) -> Callable[..., relax.Expr]:
    """Return the legalization of a binary operator that follows IEEE 754.

    TVM takes ``x * 0`` for 0, whatever ``x`` is, ``x / inf`` too, and refuses ``x / 0``.
    """
    by_tvm = tvm.ir.Op.get(operator).get_attr("FLegalize")

    def legalise(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
        values = [_scalar(operand) for operand in call.args]
        if all(value is None or (np.isfinite(value) and value != 0) for value in values):
            return by_tvm(bb, call)
        operands = [
            operand if value is None else _opaque(value)
            for operand, value in zip(call.args, values, strict=True)
        ]
        return bb.call_te(compute, *operands)

    return legalise


def _logical_not(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    """Flip one bit: TVM turns ``!(a < b)`` into ``b <= a``, which is false for NaN as well."""

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(
            data.shape,
            lambda *at: tirx.bitwise_xor(data(*at).astype("uint8"), tirx.const(1, "uint8")).astype(
                "bool"
            ),
            tag=topi.tag.ELEMWISE,
            name="logical_not",
        )

    return bb.call_te(compute, call.args[0])


def _take_rows(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    """Copy whole rows that computed indices select by a kernel: TVM copies number by number.

    Rows selected by constant indices, as in resizes, are better fused with their readers.
    """
    (data, indices), axis = call.args, call.attrs.axis
    shape, places = static_shape(data), static_shape(indices)
    computed = constant_value(indices) is None and str(call.attrs.mode) == "clip"
    if shape is None or places is None or axis is None or not computed:
        return _TAKE(bb, call)
    axis = int(axis) % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    count = math.prod(places)
    if inner < _WIDE_ROWS or not outer * count:
        return _TAKE(bb, call)
    dtype = dtype_of(data)
    kernel = lower_take((outer, shape[axis], inner), count, dtype, dtype_of(indices))
    function = bb.add_func(kernel.with_attr("op_pattern", OPAQUE), "take")
    flat = [
        bb.emit(relax.op.reshape(value, (math.prod(extents),)))
        for value, extents in ((data, shape), (indices, places))
    ]
    kind = relax.TensorType((outer * count * inner,), dtype)
    found = bb.emit(relax.call_tir(function, relax.Tuple(flat), kind))
    return relax.op.reshape(found, (*shape[:axis], *places, *shape[axis + 1 :]))


def _scalar(operand: relax.Expr) -> np.ndarray | None:
    """Return a constant floating-point scalar; None for all else."""
    value = constant_value(operand)
    is_number = value is not None and value.ndim == 0 and value.dtype in (np.float32, np.float64)
    return value if is_number else None


def _opaque(value: np.ndarray) -> Any:
    """Return a number hidden from TVM, from which LLVM makes the same constant."""
    kind, bits = str(value.dtype), 8 * value.itemsize
    if value == 0 and not np.signbit(value):  # TVM would make a null pointer of its bits
        return tirx.abs(_opaque(-value))
    stored = tirx.const(int(value.view(f"int{bits}")), f"int{bits}")
    return tirx.reinterpret(kind, stored)


LEGALIZATIONS: Final[Mapping[str, Callable[[relax.BlockBuilder, Call], relax.Expr]]] = {
    "relax.dequantize": _dequantise,
    "relax.divide": _arithmetic("relax.divide", topi.divide),
    "relax.logical_not": _logical_not,
    "relax.multiply": _arithmetic("relax.multiply", topi.multiply),
    "relax.nn.group_norm": _group_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.softmax": _softmax,
    "relax.power": _power,
    "relax.quantize": _quantise,
    "relax.take": _take_rows,
    "relax.where": _where,
}
"""The legalization of each operator."""
