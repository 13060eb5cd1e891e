"""Quantisations and their inverses move up, over operators that keep values, until they meet.

Quantisers leave a pooling or a concatenation between integers, or in float32 in front of a
quantisation. Either hides that what comes before computes values of a grid::

    dequantize(max_pool(quantize(conv)))     -> max_pool(dequantize(quantize(conv)))
    dequantize(quantize(concat(conv, conv))) -> concat(dequantize(quantize(conv)), …)

Rounding to a grid is monotone and element by element, so that maxima and places may come after it.
"""

from __future__ import annotations

from typing import Final

import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.relax_utils import (
    Expr,
    Rewrite,
    constant_value,
    is_op,
    make_const,
    rewrite_function,
)

_KEEPING: Final = (
    "relax.expand_dims",
    "relax.flatten",
    "relax.nn.max_pool2d",
    "relax.permute_dims",
    "relax.reshape",
    "relax.squeeze",
    "relax.strided_slice",
)
"""Operators whose results are among the values of what they read first."""


@relax.transform.function_pass(opt_level=0, name="MoveQuantisation")
class MoveQuantisation:
    """Bring rounding to a grid to what computes the values."""

    def transform_function(
        self, func: relax.Function, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Return ``func`` with what keeps values after quantisations and their inverses."""
        return rewrite_function(func, _move)


def _move(expr: Expr, rewrite: Rewrite) -> Expr | None:
    if not is_op(expr, "relax.quantize", "relax.dequantize"):
        return None
    assert isinstance(expr, Call)
    # One scale for all: an axis would move with the elements.
    if any(getattr(constant_value(arg), "size", 0) != 1 for arg in expr.args[1:]):
        return None
    inner = rewrite.sole_definition(expr.args[0])
    if not isinstance(inner, Call):
        return None
    if is_op(inner, *_KEEPING):
        first = rewrite.emit(_of(expr, inner.args[0]))
        return Call(inner.op, [first, *inner.args[1:]], inner.attrs, inner.ty_args)
    if is_op(inner, "relax.concat"):
        parts = rewrite.definition(inner.args[0])
        if isinstance(parts, relax.Tuple):
            moved = [rewrite.emit(_of(expr, part)) for part in parts.fields]
            return relax.op.concat(moved, int(inner.attrs.axis))
    return None


def _of(change: Call, data: Expr) -> Call:
    """Return a quantisation or its inverse, of other data: of all of its elements alike."""
    numbers = [constant_value(arg) for arg in change.args[1:]]
    scale, zero = (make_const(number.reshape(())) for number in numbers if number is not None)
    make = relax.op.quantize if is_op(change, "relax.quantize") else relax.op.dequantize
    return make(data, scale, zero, 0, str(change.attrs.out_dtype))
