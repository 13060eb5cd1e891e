"""Turn inference batch normalization into one multiply and one add per channel.

::

    batch_norm(x, gamma, beta, mean, var)  ->  x * scale + shift

``y = (x - mean) / sqrt(var + eps) * gamma + beta`` is ``x * scale + shift`` with constants. After
a convolution `FOLD_SCALE` then moves both into its weights and bias; before one (DenseNet's
pre-activation) or after a concat they stay, and fuse with the activation that follows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import TUPLE_ITEM, Kind, LocalRule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _fold_batch_norm(expr: Expr, rewrite: Rewrite) -> Expr | None:
    if not isinstance(expr, relax.TupleGetItem) or expr.index != 0:
        return None
    call = rewrite.definition(expr.tuple_value)
    if not is_op(call, "relax.nn.batch_norm") or call.attrs.training:
        return None
    return _scale_and_shift(call, rewrite)


def _scale_and_shift(call: Call, rewrite: Rewrite) -> Expr | None:
    data, *statistics = call.args
    shape = static_shape(data)
    values = [constant_value(arg) for arg in statistics]
    if shape is None or any(value is None for value in values):
        return None
    # In float64: a variance near zero makes the scale large, and its rounding error with it.
    gamma, beta, mean, variance = (np.asarray(value, np.float64) for value in values)
    attrs = call.attrs
    with np.errstate(all="ignore"):  # for a variance of zero or below, the model's are not finite
        scale = 1.0 / np.sqrt(variance + attrs.epsilon)
        if attrs.scale:
            scale = scale * gamma
        shift = -mean * scale
        if attrs.center:
            shift = shift + beta
        scale, shift = (each.astype(dtype_of(data)) for each in (scale, shift))
    axis = attrs.axis % len(shape)
    per_channel = tuple(extent if i == axis else 1 for i, extent in enumerate(shape))
    scaled = rewrite.emit(relax.op.multiply(data, make_const(scale.reshape(per_channel))))
    return relax.op.add(scaled, make_const(shift.reshape(per_channel)))


FOLD_BATCH_NORM: Final = LocalRule(
    "fold-batch-norm",
    Kind.FOLDING,
    "Batch normalisation becomes a multiply and an add per channel.",
    operators=(TUPLE_ITEM,),
    apply=_fold_batch_norm,
)
