"""Multiply a feature map once that is added to a multiple of itself.

::

    x + x * g        ->  x * (1 + g)
    x + (x * g + c)  ->  x * (1 + g) + c    # c is constant

ConvNeXt V2 writes its response normalisation in this way, and BiSeNet the attention that it adds to
its input. ``g`` has fewer elements than ``x``: one for all pixels of a channel, for example. The
operator that reads the product can multiply as it reads ``x``, so that the map is not written once
more. An infinite ``x`` stays infinite where it would meet its own opposite, for ``g`` between -1
and 0: docs/accuracy.md.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

import numpy as np
from tvm import relax

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import Expr, dtype_of, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _factor(expr: Expr, rewrite: Rewrite) -> Expr | None:
    if not dtype_of(expr).startswith("float"):
        return None
    for data, other in (expr.args, reversed(expr.args)):
        product, constant = rewrite.sole_definition(other), None
        if product is not None and is_op(product, "relax.add"):
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
    assert product is not None
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


FACTOR_SUMS: Final = LocalRule(
    "factor-sums",
    Kind.REPLACEMENT,
    "A map that is added to its product with a smaller tensor is multiplied once.",
    operators=("relax.add",),
    apply=_factor,
)
