"""Find layer, instance, RMS and L2 normalisations in the operators that exporters write.

::

    (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + e)  ->  layer_norm(x)
    x / sqrt(mean(x ** 2) + e)                          ->  division(x, root of mean)
    x / sqrt(sum(x ** 2))                               ->  division(x, root of sum)
    reshape(layer_norm(reshape(x, groups)), x.shape)    ->  group_norm(x, groups)
    layer_norm(x) * gamma + beta                        ->  layer_norm(x, gamma, beta)

These are, in order, `name_normalisations`, `name_norms` (twice), `name_group_norms` and
`scale_normalisations`.

Before opset 17 PyTorch wrote the first form, then a product and a sum. In other forms a number
corrects the variance, or the variance is ``mean(x ** 2) - mean(x) ** 2``, or there is no mean. A
named normalisation is one kernel, and other rules can move past it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.replacement.divisors import Divisor, divisor_of, divisor_of_inverse, is_mean_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import Array, constant_value, make_const, with_rank
from neocpu.ir.expressions import Expr, dtype_of, is_op, known_shape, static_shape
from neocpu.ir.norm_calls import DIVISION, division, normalised_axes
from neocpu.ir.rewriting import Rewrite

_NAMED = ("relax.nn.layer_norm", "relax.nn.group_norm", DIVISION)


def _name(expr: Expr, rewrite: Rewrite, *, centred: bool) -> Expr | None:
    """Find a normalisation, of data less their mean if ``centred``, else of the data."""
    if dtype_of(expr) != "float32":
        return None
    if is_op(expr, "relax.add"):
        return _sum_of_products(expr, rewrite)
    for data, divisor, scale in _divisions(expr, rewrite):
        whole = _spread_of(divisor, rewrite)
        if centred and whole is not None and _is_centred(data, whole, divisor, rewrite):
            return _times(_normalised(whole, divisor), scale, rewrite)
        if not centred and whole is None and divisor.data.same_as(data):
            return _times(division(data, divisor.axes, divisor.root, centred=False), scale, rewrite)
    return None


def _divisions(expr: Expr, rewrite: Rewrite) -> Iterator[tuple[Expr, Divisor, Expr | None]]:
    """Yield data, their divisor, and the quotient's factor; the result has the data's shape."""
    if is_op(expr, "relax.divide"):
        divisor = divisor_of(expr.args[1], rewrite)
        if divisor is None or not divisor.kept:
            return
        if static_shape(expr.args[0]) == static_shape(expr):
            yield expr.args[0], divisor, None
        return
    for data, factor in (expr.args, reversed(expr.args)):
        divisor, scale = _inverse(rewrite.sole_definition(factor), rewrite)
        if divisor is None or not divisor.kept:
            continue
        if static_shape(data) == static_shape(expr):
            yield data, divisor, scale


def _inverse(factor: Any, rewrite: Rewrite) -> tuple[Divisor | None, Expr | None]:
    if is_op(factor, "relax.multiply") and constant_value(factor.args[1]) is not None:
        inverse = rewrite.sole_definition(factor.args[0])
        return divisor_of_inverse(inverse, rewrite), factor.args[1]
    return divisor_of_inverse(factor, rewrite), None


def _spread_of(divisor: Divisor, rewrite: Rewrite) -> Expr | None:
    if divisor.centred:
        return divisor.data
    difference = rewrite.definition(divisor.data)
    if not is_op(difference, "relax.subtract"):
        return None
    whole, mean = difference.args
    return whole if is_mean_of(mean, whole, divisor.axes, rewrite) else None


def _is_centred(data: Expr, whole: Expr, divisor: Divisor, rewrite: Rewrite) -> bool:
    difference = rewrite.definition(data)
    if not is_op(difference, "relax.subtract") or not difference.args[0].same_as(whole):
        return False
    return is_mean_of(difference.args[1], whole, divisor.axes, rewrite)


def _sum_of_products(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Find Keras's ``x * f + (beta - mean(x) * f)``, f one over a deviation, read only here."""
    for one, other in (expr.args, reversed(expr.args)):
        product = rewrite.sole_definition(one)
        rest = rewrite.sole_definition(other)
        if not is_op(product, "relax.multiply") or not is_op(rest, "relax.subtract"):
            continue
        shift, subtracted = constant_value(rest.args[0]), rewrite.sole_definition(rest.args[1])
        if shift is None or not is_op(subtracted, "relax.multiply"):
            continue
        for data, factor in (product.args, reversed(product.args)):
            means = [arg for arg in subtracted.args if not arg.same_as(factor)]
            if len(means) != 1 or len(rewrite.readers(factor)) != 2:
                continue
            divisor, scale = _inverse(rewrite.definition(factor), rewrite)
            if divisor is None or not divisor.kept or static_shape(data) != static_shape(expr):
                continue
            whole = _spread_of(divisor, rewrite)
            if whole is None or not whole.same_as(data):
                continue
            if is_mean_of(means[0], data, divisor.axes, rewrite):
                normal = rewrite.emit(_times(_normalised(data, divisor), scale, rewrite))
                return relax.op.add(normal, rest.args[0])
    return None


def _times(normal: Call, scale: Expr | None, rewrite: Rewrite) -> Call:
    return normal if scale is None else relax.op.multiply(rewrite.emit(normal), scale)


def _normalised(data: Expr, divisor: Divisor) -> Call:
    shape, axes, root = known_shape(data), divisor.axes, divisor.root
    if root.least or root.added:
        return division(data, axes, root, centred=True)
    extents = [shape[axis] for axis in axes]
    # If the mean is over one element less, the divisor is the root of so many variances.
    variances = root.factor * math.prod(extents)
    epsilon, scale = root.epsilon / variances, 1 / math.sqrt(variances)
    if math.isclose(variances, 1, rel_tol=1e-7):
        epsilon, scale = root.epsilon, 1.0
    groups = len(shape) > 3 and axes == list(range(2, len(shape)))
    own = shape[1:2] if groups else extents
    gamma, beta = (make_const(np.full(own, value, np.float32)) for value in (scale, 0))
    if groups:
        return relax.op.nn.group_norm(data, gamma, beta, shape[1], 1, axes, epsilon)
    return relax.op.nn.layer_norm(data, gamma, beta, axes, epsilon)


@local_rule(Kind.REPLACEMENT, "relax.reshape")
def name_group_norms(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Normalisations of groups of channels that are written by reshapes are one operator.

    A product and a sum after it can then become its own scale and shift.
    """
    normal = rewrite.sole_definition(expr.args[0])
    shape = static_shape(expr)
    if not is_op(normal, *_NAMED[:2]) or shape is None or len(shape) < 3:
        return None
    inner = static_shape(normal) or ()
    affine = [constant_value(arg) for arg in normal.args[1:]]
    if len(inner) < 3 or normalised_axes(normal) != list(range(2, len(inner))):
        return None
    if inner[0] != shape[0] or shape[1] % inner[1] or inner[1] == shape[1]:
        return None
    if is_op(normal, "relax.nn.group_norm") and int(normal.attrs.num_groups) != inner[1]:
        return None
    if any(each is None or not (each == each.flat[0]).all() for each in affine):
        return None
    own = [make_const(np.full(shape[1], each.flat[0])) for each in affine if each is not None]
    data = rewrite.emit(relax.op.reshape(normal.args[0], shape))
    axes = list(range(2, len(shape)))
    return relax.op.nn.group_norm(data, *own, inner[1], 1, axes, float(normal.attrs.epsilon))


@local_rule(Kind.REPLACEMENT, "relax.multiply", "relax.add")
def scale_normalisations(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A product or sum after a normalisation becomes its own scale or shift."""
    constant, made = constant_value(expr.args[1]), rewrite.sole_definition(expr.args[0])
    if constant is None or not is_op(made, *_NAMED):
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
    shape = static_shape(call) or ()
    if is_op(call, "relax.nn.group_norm"):
        axes = [1]
    else:
        axes = [axis % len(shape) for axis in normalised_axes(call)]
    whole = with_rank(constant, len(shape)).shape
    if axes != sorted(axes) or any(e > 1 for i, e in enumerate(whole) if i not in axes):
        return None
    return np.broadcast_to(constant.reshape([whole[axis] for axis in axes]), extents)


@local_rule(Kind.REPLACEMENT, "relax.add", "relax.divide", "relax.multiply")
def name_normalisations(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Layer and instance normalisations that are written in pieces are one operator."""
    return _name(expr, rewrite, centred=True)


@local_rule(Kind.REPLACEMENT, "relax.divide", "relax.multiply")
def name_norms(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """RMS and L2 normalisations that are written in pieces are one operator."""
    return _name(expr, rewrite, centred=False)
