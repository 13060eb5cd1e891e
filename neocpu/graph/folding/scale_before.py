"""Multiply the weights after a multiplication by constants instead of the data.

::

    conv2d(x * s, w)      ->  conv2d(x, w * s)
    matmul(x * s + t, w)  ->  matmul(x, s * w) + t @ w

A batch normalisation, ``x * s + t``, vanishes before a dense layer (LeViT's head), and before a
convolution without padding: around a padded image there are zeros, not ``t``. A sum that follows no
multiply stays, because ``x + t`` may be far more exact than the sum of products that would take its
place.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.folding.fold_scale import WEIGHTED, data_and_constant
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import Array, constant_value, make_const, vector_along
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _into_weights(call: Expr, rewrite: Rewrite) -> Expr | None:
    weight = constant_value(call.args[1])
    before = rewrite.sole_definition(call.args[0])
    operands = data_and_constant(before)
    if weight is None or before is None or operands is None or weight.dtype.kind != "f":
        return None
    data, constant = operands
    factor = _per_input(call, constant, weight.shape)
    if factor is None:
        return None
    if is_op(before, "relax.multiply"):
        try:
            with np.errstate(over="raise"):
                scaled = np.multiply(weight, factor, dtype=np.float64).astype(weight.dtype)
        except FloatingPointError:
            return None
        return Call(call.op, [data, make_const(scaled)], call.attrs, call.ty_args, ret_ty=call.ty)
    if not _takes_sums(call) or not _is_scaled(data, rewrite):
        return None
    added = np.multiply(weight, factor, dtype=np.float64)
    axes = (0,) if is_op(call, "relax.matmul") else tuple(range(1, weight.ndim))
    bias = added.sum(axes).astype(weight.dtype)
    if not is_op(call, "relax.matmul"):
        bias = bias.reshape(1, -1, *[1] * (len(static_shape(call) or ()) - 2))
    alone = Call(call.op, [data, call.args[1]], call.attrs, call.ty_args, ret_ty=call.ty)
    return relax.op.add(rewrite.emit(alone), make_const(bias))


def _is_scaled(data: Expr, rewrite: Rewrite) -> bool:
    product = rewrite.sole_definition(data)
    return is_op(product, "relax.multiply") and data_and_constant(product) is not None


def _takes_sums(call: Call) -> bool:
    """Whether a constant added to the data adds the same number to a whole output channel."""
    if is_op(call, "relax.matmul"):
        return True
    transposed = call.op.name.endswith("_transpose")
    return not transposed and not any(int(width) for width in call.attrs.padding)


def _per_input(call: Call, constant: Array, weight: tuple[int, ...]) -> Array | None:
    """Return a constant of the data as it broadcasts over the weights; None if it does not."""
    shape = static_shape(call.args[0])
    if shape is None:
        return None
    if is_op(call, "relax.matmul"):
        axis = len(shape) - 1
        if len(weight) != 2:
            return None
    else:
        axis = 1
        if not str(call.attrs.data_layout).startswith("NC"):
            return None
    vector = vector_along(constant, len(shape), axis)
    if vector is None:
        return None
    channels = np.broadcast_to(vector, (shape[axis],))
    if is_op(call, "relax.matmul"):
        return channels.reshape(-1, 1)
    rest = [1] * (len(weight) - 2)
    if call.op.name.endswith("_transpose"):
        return channels.reshape(-1, 1, *rest)
    # (O, I / groups, ...): the group of an output channel says which input channels it reads.
    groups = int(call.attrs.groups)
    factor = np.repeat(channels.reshape(groups, -1), weight[0] // groups, axis=0)
    return factor.reshape(weight[0], weight[1], *rest)


SCALE_BEFORE: Final = LocalRule(
    "scale-before",
    Kind.FOLDING,
    "A multiply or batch normalisation before a convolution or dense layer moves into its weights.",
    operators=WEIGHTED,
    apply=_into_weights,
)
