"""Move quantisations and their inverses before operators that keep values, until they meet."""

from __future__ import annotations

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.redundancy.axis_parts import part_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import SHAPING, Expr, is_nearest, is_op
from neocpu.ir.rewriting import Rewrite

_KEEPING: Final = (*SHAPING, "relax.nn.max_pool2d", "relax.strided_slice")
"""Operators whose results are values of their first operand."""


@local_rule(Kind.REORDERING, "relax.quantize", "relax.dequantize")
def move_quantisation(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Rounding to a grid moves to the operator that computes the values, and happens once.

    Quantisers leave a pooling or a concatenation between integers, or in float32 before a
    quantisation. Either hides that the operators before it compute values on a grid::

        dequantize(max_pool(quantize(conv)))     -> max_pool(dequantize(quantize(conv)))
        dequantize(quantize(concat(conv, conv))) -> concat(dequantize(quantize(conv)), …)
        quantize(split(x)[i])                    -> strided_slice(quantize(x), …)
        quantize(dequantize(x))                  -> x, on the same grid

    Rounding to a grid is monotone and works element by element, so that maxima and moves may come
    after it. Values that are on the grid already are unchanged, because the quotient of a rounded
    product is nearer to its integer than half a step.
    """
    if not is_op(expr, "relax.quantize", "relax.dequantize"):
        return None
    assert isinstance(expr, Call)
    if (kept := _kept(expr, rewrite)) is not None:
        return kept
    # One scale for all: an axis would move with the elements.
    if any(getattr(constant_value(arg), "size", 0) != 1 for arg in expr.args[1:]):
        return None
    inner = rewrite.sole_definition(expr.args[0])
    if isinstance(inner, relax.TupleGetItem):
        inner = _as_slice(inner, rewrite)
    if not isinstance(inner, Call):
        return None
    if _keeps(inner):
        first = rewrite.emit(_of(expr, inner.args[0]))
        return Call(inner.op, [first, *inner.args[1:]], inner.attrs, inner.ty_args)
    if is_op(inner, "relax.concat"):
        parts = rewrite.definition(inner.args[0])
        if isinstance(parts, relax.Tuple):
            moved = [rewrite.emit(_of(expr, part)) for part in parts.fields]
            return relax.op.concat(moved, int(inner.attrs.axis))
    return None


def _split_of(part: Expr | None, rewrite: Rewrite) -> Call | None:
    if not isinstance(part, relax.TupleGetItem):
        return None
    whole = rewrite.definition(part.tuple_value)
    return whole if isinstance(whole, Call) and is_op(whole, "relax.split") else None


def _as_slice(part: relax.TupleGetItem, rewrite: Rewrite) -> Call | None:
    found = part_of(part, rewrite.definition)
    if found is None:
        return None
    return relax.op.strided_slice(found.source, [found.axis], [found.first], [found.end])


def _keeps(call: Expr) -> bool:
    return is_op(call, *_KEEPING) or is_nearest(call)


def _kept(expr: Call, rewrite: Rewrite) -> Expr | None:
    inner = rewrite.definition(expr.args[0])
    if not isinstance(inner, Call):
        return None
    if is_op(expr, "relax.quantize"):
        return inner.args[0] if _undoes(expr, inner) else None
    if is_op(inner, "relax.quantize") and _undoes(inner, expr) and _is_on_grid(inner, rewrite):
        return inner.args[0]
    return None


def _is_on_grid(quantise: Call, rewrite: Rewrite) -> bool:
    """Whether all that ``quantise`` reads comes from dequantisations that it undoes."""
    todo, seen = [quantise.args[0]], set()
    single = quantise.args[1].ty.ndim == 0
    while todo:
        var = todo.pop()
        if var in seen:
            continue
        seen.add(var)
        value = rewrite.definition(var)
        if _undoes(quantise, value):
            continue
        if single and (split := _split_of(value, rewrite)) is not None:
            todo.append(split.args[0])
            continue
        if not single or not isinstance(value, Call):
            return False
        if _keeps(value) or is_op(value, "relax.nn.relu"):
            todo.append(value.args[0])
        elif is_op(value, "relax.concat"):
            parts = rewrite.definition(value.args[0])
            if not isinstance(parts, relax.Tuple):
                return False
            todo.extend(parts.fields)
        else:
            return False
    return True


def _undoes(quantise: Call, dequantise: Expr | None) -> bool:
    """Whether integers that are dequantised and quantised again are the same."""
    if not isinstance(dequantise, Call) or not is_op(dequantise, "relax.dequantize"):
        return False
    values = [constant_value(arg) for call in (quantise, dequantise) for arg in call.args[1:]]
    numbers = [number for number in values if number is not None]
    if len(numbers) < len(values):
        return False
    scale, zero, other, middle = numbers
    same = np.array_equal(scale, other) and np.array_equal(zero, middle)
    along = scale.size == 1 or int(quantise.attrs.axis) == int(dequantise.attrs.axis)
    limits = np.finfo(np.float32)
    exact = scale.min() >= limits.tiny and scale.max() <= limits.max / 256
    return bool(same and along and exact and zero.dtype == middle.dtype)


def _of(change: Call, data: Expr) -> Call:
    numbers = [constant_value(arg) for arg in change.args[1:]]
    scale, zero = (make_const(number.reshape(())) for number in numbers if number is not None)
    make = relax.op.quantize if is_op(change, "relax.quantize") else relax.op.dequantize
    return make(data, scale, zero, 0, str(change.attrs.out_dtype))
