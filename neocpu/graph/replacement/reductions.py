"""Sums and means in the forms that kernels compute."""

from __future__ import annotations

from functools import reduce

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    feature_map_shape,
    is_op,
    reduced_axes,
    static_shape,
)
from neocpu.ir.rewriting import Rewrite, summed


@local_rule(Kind.REPLACEMENT, "relax.mean", "relax.sum")
def keep_pixel_axes(expr: Call, rewrite: Rewrite) -> Expr | None:
    """Means and sums over all pixels of a map keep the pixel axes, and a reshape drops them.

    ::

        mean(x, [2, 3])  ->  reshape(mean(x, [2, 3], keepdims=True), (n, c))

    The mean is then one number for each channel of a feature map, which kernels compute in the
    map's own layout. Exporters write the ends of classifiers, and the gates of ECA, without these
    axes.
    """
    shape = static_shape(expr)
    if expr.attrs.keepdims or shape is None or feature_map_shape(expr.args[0]) is None:
        return None
    if reduced_axes(expr) != [2, 3]:
        return None
    reduce = relax.op.mean if is_op(expr, "relax.mean") else relax.op.sum
    return relax.op.reshape(rewrite.emit(reduce(expr.args[0], [2, 3], keepdims=True)), shape)


@local_rule(Kind.REPLACEMENT, "relax.sum")
def sum_of_concat(expr: Call, rewrite: Rewrite) -> Expr | None:
    """A Sum over the axis along which tensors are stacked adds them to each other.

    ::

        sum(stack([x, y, z], axis), axis)                 ->  x + y + z
        sum(concat([x[..., None], y[..., None]], -1), -1) ->  x + y

    BiFPN fuses maps of one size in this way: each is weighted, unsqueezed and concatenated with the
    others. The importer writes ONNX's Sum as a sum of a stack, too.
    """
    stack, shape = rewrite.sole_definition(expr.args[0]), static_shape(expr)
    if stack is None or shape is None:
        return None
    if is_op(stack, "relax.stack"):
        terms, rank = rewrite.definition(stack.args[0]), len(static_shape(stack) or ())
        if expr.attrs.keepdims or not isinstance(terms, relax.Tuple):
            return None
        over_stack = reduced_axes(expr) == [int(stack.attrs.axis or 0) % rank]
        return summed(terms.fields, rewrite) if over_stack else None
    found = inputs_of(stack, rewrite.definition)
    if found is None or reduced_axes(expr) != [found[0]]:
        return None
    axis, inputs = found
    if any(extent_of(each, axis) != 1 for each in inputs):
        return None
    return summed([rewrite.emit(relax.op.reshape(each, shape)) for each in inputs], rewrite)


@local_rule(Kind.REPLACEMENT, "relax.add")
def factor_sums(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A map that is added to its product with a smaller tensor is multiplied once.

    ::

        x + x * g        ->  x * (1 + g)
        x + (x * g + c)  ->  x * (1 + g) + c    # c is constant

    ConvNeXt V2 writes its response normalisation in this way, and BiSeNet the attention that it
    adds to its input. ``g`` has fewer elements than ``x``: one for all pixels of a channel, for
    example. The operator that reads the product can multiply as it reads ``x``, so that the map is
    not written once more. An infinite ``x`` stays infinite where it would meet its own opposite,
    for ``g`` between -1 and 0: docs/accuracy.md.
    """
    if not dtype_of(expr).startswith("float"):
        return None
    for data, other in (expr.args, reversed(expr.args)):
        product, constant = rewrite.sole_definition(other), None
        if is_op(product, "relax.add"):
            constant = product.args[1]
            if constant_value(constant) is None:
                continue
            product = rewrite.sole_definition(product.args[0])
        factors = _others(product, data, rewrite)
        if factors is None or not _is_smaller(factors, data):
            continue
        one = make_const(np.ones((), dtype_of(expr)))
        factor = reduce(lambda a, b: rewrite.emit(relax.op.multiply(a, b)), factors)
        whole = relax.op.multiply(data, rewrite.emit(relax.op.add(factor, one)))
        return whole if constant is None else relax.op.add(rewrite.emit(whole), constant)
    return None


def _others(product: Expr | None, data: Expr, rewrite: Rewrite) -> list[Expr] | None:
    if not is_op(product, "relax.multiply"):
        return None
    for one, other in (product.args, reversed(product.args)):
        if one.same_as(data):
            return [other]
        inner = _others(rewrite.sole_definition(one), data, rewrite)
        if inner is not None:
            return [*inner, other]
    return None


def _is_smaller(factors: list[Expr], data: Expr) -> bool:
    """Whether the product of factors has fewer elements than the data, and broadcasts to them."""
    shape, shapes = static_shape(data), [static_shape(factor) for factor in factors]
    known = [each for each in shapes if each is not None]
    if shape is None or len(known) < len(shapes):
        return False
    small = np.broadcast_shapes(*known)
    return int(np.prod(small)) < int(np.prod(shape)) and np.broadcast_shapes(small, shape) == shape
