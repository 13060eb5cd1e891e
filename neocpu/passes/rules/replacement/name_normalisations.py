"""Find layer and instance normalisations in the operators that exporters write them as.

Before opset 17 PyTorch wrote ``(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon)``, then a
product and a sum. Named, they are one kernel, and other rules can move past them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.relax_utils import (
    Array,
    Expr,
    Rewrite,
    constant_value,
    dtype_of,
    is_op,
    make_const,
    static_shape,
    with_rank,
)

_NAMED = ("relax.nn.layer_norm", "relax.nn.group_norm")


def _name(expr: Expr, rewrite: Rewrite) -> Expr | None:
    found = _centred_and_deviation(expr, rewrite)
    if found is None or dtype_of(expr) != "float32":
        return None
    centred, deviation = found
    difference = rewrite.definition(centred)
    if not is_op(difference, "relax.subtract"):
        return None
    data = difference.args[0]
    shape, mean = static_shape(data), rewrite.sole_definition(difference.args[1])
    if shape is None or mean is None or not is_op(mean, "relax.mean"):
        return None
    axes = _axes(mean, len(shape))
    if not mean.args[0].same_as(data) or axes is None:
        return None
    epsilon = _epsilon(deviation, centred, axes, rewrite)
    return None if epsilon is None else _normalised(data, shape, axes, epsilon)


def _centred_and_deviation(expr: Expr, rewrite: Rewrite) -> tuple[Expr, Expr] | None:
    """Return what is divided by a root, and what the root is of."""
    if is_op(expr, "relax.divide"):
        root = rewrite.sole_definition(expr.args[1])
        if root is None or not is_op(root, "relax.sqrt"):
            return None
        return expr.args[0], root.args[0]
    for centred, factor in (expr.args, reversed(expr.args)):
        root = rewrite.sole_definition(factor)
        if root is not None and is_op(root, "relax.rsqrt"):
            return centred, root.args[0]
    return None


def _axes(mean: Call, rank: int) -> list[int] | None:
    """Return over what a mean is that keeps the rank; None of another."""
    if not mean.attrs.keepdims or mean.attrs.axis is None:
        return None
    return sorted(int(axis) % rank for axis in mean.attrs.axis)


def _epsilon(deviation: Expr, centred: Expr, axes: list[int], rewrite: Rewrite) -> float | None:
    """Return what is added to the variance along ``axes``, if that is what ``deviation`` is of."""
    total = rewrite.sole_definition(deviation)
    if total is None or not is_op(total, "relax.add"):
        return None
    least, mean = constant_value(total.args[1]), rewrite.sole_definition(total.args[0])
    if least is None or least.size != 1 or not is_op(mean, "relax.mean"):
        return None
    assert mean is not None
    if static_shape(total) != static_shape(mean):
        return None  # the constant has more dimensions
    square, rank = rewrite.sole_definition(mean.args[0]), len(static_shape(centred) or ())
    if square is None or not is_op(square, "relax.multiply") or _axes(mean, rank) != axes:
        return None
    return float(least.item()) if all(arg.same_as(centred) for arg in square.args) else None


def _normalised(data: Expr, shape: tuple[int, ...], axes: list[int], epsilon: float) -> Expr | None:
    if len(shape) > 3 and axes == list(range(2, len(shape))):
        one, zero = np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32)
        return relax.op.nn.group_norm(
            data, make_const(one), make_const(zero), shape[1], 1, axes, epsilon
        )
    extents = [shape[axis] for axis in axes]
    one, zero = np.ones(extents, np.float32), np.zeros(extents, np.float32)
    return relax.op.nn.layer_norm(data, make_const(one), make_const(zero), axes, epsilon)


def _absorb(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Fold a product or a sum after a normalisation into its own."""
    constant, made = constant_value(expr.args[1]), rewrite.sole_definition(expr.args[0])
    if constant is None or made is None or not is_op(made, *_NAMED):
        return None
    data, *affine = made.args
    gamma, beta = map(constant_value, affine)
    if gamma is None or beta is None or static_shape(expr) != static_shape(made):
        return None
    constant = _along(made, constant, gamma.shape)
    if constant is None:
        return None
    if is_op(expr, "relax.multiply"):
        gamma, beta = (np.multiply(each, constant, dtype=np.float64) for each in (gamma, beta))
    else:
        beta = np.add(beta, constant, dtype=np.float64)
    args = [data, *(make_const(each.astype(np.float32)) for each in (gamma, beta))]
    return Call(made.op, args, made.attrs, made.ty_args, ret_ty=made.ty)


def _along(call: Call, constant: Array, extents: tuple[int, ...]) -> Array | None:
    """Return a constant as one of the shape of a normalisation's own; None if it varies more."""
    shape = static_shape(call) or ()
    if is_op(call, "relax.nn.group_norm"):
        axes = [1]
    else:
        axes = [int(axis) % len(shape) for axis in call.attrs.axes]
    whole = with_rank(constant, len(shape)).shape
    if axes != sorted(axes) or any(e > 1 for i, e in enumerate(whole) if i not in axes):
        return None
    return np.broadcast_to(constant.reshape([whole[axis] for axis in axes]), extents)


NAME_NORMALISATIONS: Final = LocalRule(
    "name-normalisations",
    Kind.REPLACEMENT,
    "Means, differences and roots that are a layer or instance normalisation become it.",
    operators=("relax.divide", "relax.multiply"),
    apply=_name,
)
SCALE_NORMALISATIONS: Final = LocalRule(
    "scale-normalisations",
    Kind.REPLACEMENT,
    "What a normalisation is multiplied by, or what is added to it, becomes its own.",
    operators=("relax.multiply", "relax.add"),
    apply=_absorb,
)
