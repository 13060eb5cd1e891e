"""Operators that are not computed as TVM defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import tvm
from tvm import relax, tirx, topi
from tvm.ir import Call

from neocpu.planning.operators.norm_calls import TAKES_ELEMENTWISE
from neocpu.relax_utils import OPAQUE, constant_value, static_shape
from neocpu.schedules.operators.quantise import dequantise, quantise
from neocpu.schedules.operators.select import SELECT, select
from neocpu.schedules.operators.statistics.normalization import group_norm, layer_norm

_FUSING: Final = {"op_pattern": TAKES_ELEMENTWISE}

_WHERE: Final = tvm.ir.Op.get("relax.where").get_attr("FLegalize")
"""How TVM computes it."""

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


def _quantise(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    attrs = call.attrs
    return bb.call_te(quantise, *call.args, int(attrs.axis), str(attrs.out_dtype))


def _dequantise(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    return bb.call_te(dequantise, *call.args, int(call.attrs.axis))


def _where(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    """A selection by one condition is a kernel of its own, so that what it reads may be skipped."""
    condition, then, other = map(static_shape, call.args)
    if call.args[1].same_as(call.args[2]):
        return call.args[1]
    if condition != () or then is None or then != other:
        return _WHERE(bb, call)
    opaque = {"op_pattern": OPAQUE, SELECT: 1}
    return bb.call_te(select, *call.args, primfunc_attrs=opaque)


def _power(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    """A power by a constant is TVM's, but for what TVM prints of every exponent from 3 on.

    It does not look into bits, which LLVM makes the same constant of.
    """
    exponent = constant_value(call.args[1])
    if exponent is None or exponent.ndim or exponent.dtype not in (np.float32, np.float64):
        return _POWER(bb, call)
    kind = f"int{8 * exponent.itemsize}"
    bits = tirx.const(int(exponent.view(kind)), kind)
    return bb.call_te(topi.power, call.args[0], tirx.reinterpret(str(exponent.dtype), bits))


LEGALIZATIONS: Final[Mapping[str, Callable[[relax.BlockBuilder, Call], relax.Expr]]] = {
    "relax.dequantize": _dequantise,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.power": _power,
    "relax.quantize": _quantise,
    "relax.where": _where,
}
"""By operator, what computes a call of it."""
