"""Give each activation, and arithmetic with constants, one spelling."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, make_const, number_of
from neocpu.ir.elementwise import HARD_SWISH, MISH, activation
from neocpu.ir.expressions import SHAPING, Expr, dtype_of, is_op, op_name, static_shape
from neocpu.ir.rewriting import Rewrite

#: Exporters print sqrt(2), sqrt(2 / pi) and 0.044715 with six digits or more.
COEFFICIENT_RTOL = 1e-5

_DEPTH: Final = 8
"""The most consecutive steps of a polynomial; GELU has five. Each may read the one before twice."""

_ROUNDING: Final = (
    "relax.ceil",
    "relax.equal",
    "relax.floor",
    "relax.floor_divide",
    "relax.floor_mod",
    "relax.greater",
    "relax.greater_equal",
    "relax.less",
    "relax.less_equal",
    "relax.mod",
    "relax.not_equal",
    "relax.round",
    "relax.trunc",
)
_KEEPING: Final = (
    *SHAPING,
    "relax.abs",
    "relax.clip",
    "relax.maximum",
    "relax.minimum",
    "relax.nn.relu",
    "relax.where",
)


@local_rule(Kind.REPLACEMENT)
def canonicalize_activations(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """One spelling for each activation, for subtracting and for dividing by a constant.

    ::

        x - c                                    ->  x + -c
        x / c                                    ->  x * (1 / c)
        x ** 2                                   ->  x * x
        maximum(x, 0), clip(clip(x, 0, 9), -1, 6) ->  relu(x), clip(x, 0, 6)
        x * sigmoid(x)                           ->  silu(x)
        0.5 * x * (1 + erf(x / sqrt(2)))         ->  gelu(x)
        x * clip(x + 3, 0, 6) / 6                ->  hard_swish(x)
        x * tanh(log(1 + exp(x)))                ->  mish(x)

    Exporters write SiLU and GELU as the expressions that define them, clip in four ways, and
    subtract or divide by a constant where an add or a multiply can be folded into the weights.
    """
    name = op_name(expr)
    if name in ("relax.subtract", "relax.divide", "relax.power"):
        return _without_inverse(expr, rewrite)
    if name in ("relax.nn.relu", "relax.clip", "relax.maximum", "relax.minimum"):
        return _clamp(expr, rewrite)
    if name in ("relax.add", "relax.multiply") and constant_value(expr.args[0]) is not None:
        # The constant operand is the right one, unless both are.
        if constant_value(expr.args[1]) is None:
            return Call(expr.op, [expr.args[1], expr.args[0]], ret_ty=expr.ty)
    elif name == "relax.multiply":
        for named in (_silu, _gelu, _hard_swish, _mish):
            call = named(expr, rewrite)
            # A constant in pieces may have more dimensions than the data.
            if call is not None and static_shape(call.args[0]) == static_shape(expr):
                return call
    return None


def _without_inverse(call: Call, rewrite: Rewrite) -> Expr | None:
    """Write ``x - c`` as ``x + -c``, ``x / c`` as ``x * (1 / c)`` and ``x ** 2`` as ``x * x``. A
    quotient that is rounded stays: ``41 * (1 / 41)`` is less than 1.
    """
    data, constant = call.args[0], constant_value(call.args[1])
    if constant is None or not np.issubdtype(constant.dtype, np.floating):
        return None
    if is_op(call, "relax.power"):
        square = constant.size == 1 and constant.item() == 2 and _keeps_shape(call)
        return relax.op.multiply(data, data) if square else None
    if is_op(call, "relax.subtract"):
        return relax.op.add(data, make_const(-constant))
    if _is_rounded(rewrite.current, rewrite):
        return None
    with np.errstate(all="ignore"):
        reciprocal = 1 / constant
    if not np.isfinite(reciprocal).all():
        return None
    return relax.op.multiply(data, make_const(reciprocal))


def _is_rounded(var: Var | None, rewrite: Rewrite, depth: int = 3) -> bool:
    """Whether a value becomes an integer or a bool, which may change with the last bit of it."""
    for result, reader in rewrite.readers(var):
        if is_op(reader, *_ROUNDING):
            return True
        if is_op(reader, "relax.astype") and not dtype_of(reader).startswith(("float", "bfloat")):
            return True
        if depth and is_op(reader, *_KEEPING) and _is_rounded(result, rewrite, depth - 1):
            return True
    return False


def _keeps_shape(call: Call) -> bool:
    return static_shape(call) is not None and static_shape(call) == static_shape(call.args[0])


def _bounds(call: Expr | None) -> tuple[Expr, float, float] | None:
    if call is None or not isinstance(call, Call) or not _keeps_shape(call):
        return None
    if not dtype_of(call).startswith("float"):
        return None
    if is_op(call, "relax.nn.relu"):
        return call.args[0], 0.0, math.inf
    if is_op(call, "relax.clip"):
        low, high = (float(bound.value) for bound in call.args[1:])
        return (call.args[0], low, high) if low <= high else None
    if is_op(call, "relax.maximum", "relax.minimum"):
        bound = number_of(call.args[1])
        if bound is None or math.isnan(bound):
            return None
        if is_op(call, "relax.maximum"):
            return call.args[0], bound, math.inf
        return call.args[0], -math.inf, bound
    return None


def _clamp(call: Call, rewrite: Rewrite) -> Expr | None:
    outer = _bounds(call)
    if outer is None:
        return None
    data, low, high = outer
    inner = _bounds(rewrite.sole_definition(data))
    if inner is not None:
        data, inner_low, inner_high = inner
        low, high = (min(max(bound, low), high) for bound in (inner_low, inner_high))
    elif is_op(call, "relax.nn.relu"):
        return None
    if (low, high) == (0.0, math.inf):
        return relax.op.nn.relu(data)
    return None if inner is None else relax.op.clip(data, low, high)


def _silu(call: Call, rewrite: Rewrite) -> Expr | None:
    for data, gate in (call.args, reversed(call.args)):
        sigmoid = rewrite.definition(gate)
        if is_op(sigmoid, "relax.sigmoid") and sigmoid.args[0].same_as(data):
            return relax.op.nn.silu(data)
    return None


def _gelu(call: Call, rewrite: Rewrite) -> Expr | None:
    """Match GELU, with its factors in any order and grouping. Exact: ``0.5 * x * (1 + erf(x /
    sqrt(2)))``; approximate: ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``.
    """
    scale, factors = _scale_and_factors(call, rewrite)
    if len(factors) != 2 or not math.isclose(scale, 0.5, rel_tol=COEFFICIENT_RTOL):
        return None
    for data, gate in (factors, reversed(factors)):
        one_plus = rewrite.definition(gate)
        if not isinstance(data, Var) or not is_op(one_plus, "relax.add"):
            continue
        function = rewrite.definition(one_plus.args[0])
        if number_of(one_plus.args[1]) != 1.0 or not is_op(function, "relax.erf", "relax.tanh"):
            continue
        polynomial = _polynomial(function.args[0], data, rewrite)
        inner = math.sqrt(2 / math.pi)
        if is_op(function, "relax.erf") and _close(polynomial, (0, math.sqrt(0.5), 0, 0)):
            return relax.op.nn.gelu(data)
        if is_op(function, "relax.tanh") and _close(polynomial, (0, inner, 0, 0.044715 * inner)):
            return relax.op.nn.gelu_tanh(data)
    return None


def _hard_swish(call: Call, rewrite: Rewrite) -> Expr | None:
    """Match ``x * clip(x + 3, 0, 6) / 6``, with factors in any order, before or after clipping."""
    scale, factors = _scale_and_factors(call, rewrite)
    if len(factors) != 2:
        return None
    for data, gate in (factors, reversed(factors)):
        clipped = rewrite.definition(gate)
        if not isinstance(data, Var) or not is_op(clipped, "relax.clip"):
            continue
        line = _polynomial(clipped.args[0], data, rewrite)
        bounds = [float(bound.value) * scale for bound in clipped.args[1:]]
        scaled = None if line is None else tuple(each * scale for each in line)
        if _close(scaled, (0.5, 1 / 6, 0, 0)) and np.allclose(bounds, (0, 1), COEFFICIENT_RTOL):
            return activation(HARD_SWISH, data)
    return None


def _mish(call: Call, rewrite: Rewrite) -> Expr | None:
    """Match ``x * tanh(log(1 + exp(x)))``, also with the importer's logarithm without overflow."""
    for data, gate in (call.args, reversed(call.args)):
        tanh = rewrite.definition(gate)
        if not isinstance(data, Var) or not is_op(tanh, "relax.tanh"):
            continue
        softplus = rewrite.definition(tanh.args[0])
        exponent = _exponent(softplus, rewrite)
        if exponent is not None and exponent.same_as(data):
            return activation(MISH, data)
        if not is_op(softplus, "relax.add"):
            continue
        for positive, rest in (softplus.args, reversed(softplus.args)):
            relu, log = rewrite.definition(positive), rewrite.definition(rest)
            distance = _exponent(log, rewrite)
            if is_op(relu, "relax.nn.relu") and relu.args[0].same_as(data):
                if distance is not None and _is_minus_magnitude(distance, data, rewrite):
                    return activation(MISH, data)
    return None


def _exponent(value: Expr, rewrite: Rewrite) -> Expr | None:
    if not is_op(value, "relax.log"):
        return None
    total = rewrite.definition(value.args[0])
    if not is_op(total, "relax.add") or number_of(total.args[1]) != 1.0:
        return None
    exponential = rewrite.definition(total.args[0])
    return exponential.args[0] if is_op(exponential, "relax.exp") else None


def _is_minus_magnitude(value: Expr, data: Var, rewrite: Rewrite) -> bool:
    minus = rewrite.definition(value)
    if not is_op(minus, "relax.negative"):
        return False
    magnitude = rewrite.definition(minus.args[0])
    return is_op(magnitude, "relax.abs") and bool(magnitude.args[0].same_as(data))


def _scale_and_factors(call: Call, rewrite: Rewrite) -> tuple[float, list[Expr]]:
    scale = 1.0
    factors: list[Expr] = []
    for factor in _factors(call, rewrite):
        value = number_of(factor)
        if value is None:
            factors.append(factor)
        else:
            scale *= value
    return scale, factors


def _factors(call: Call, rewrite: Rewrite) -> list[Expr]:
    factors: list[Expr] = []
    for arg in call.args:
        inner = rewrite.sole_definition(arg)
        factors += _factors(inner, rewrite) if is_op(inner, "relax.multiply") else [arg]
    return factors


def _polynomial(
    expr: Expr, x: Var, rewrite: Rewrite, depth: int = _DEPTH
) -> tuple[float, ...] | None:
    """Return the coefficients, by rising degree, of ``expr`` as a cubic polynomial in ``x``. None
    for other expressions, and for those with more than ``depth`` steps.
    """
    if expr.same_as(x):
        return (0.0, 1.0, 0.0, 0.0)
    value = number_of(expr)
    if value is not None:
        return (value, 0.0, 0.0, 0.0)
    call = rewrite.definition(expr)
    if depth == 0 or not is_op(call, "relax.add", "relax.multiply", "relax.power"):
        return None
    left = _polynomial(call.args[0], x, rewrite, depth - 1)
    right = None if left is None else _polynomial(call.args[1], x, rewrite, depth - 1)
    if left is None or right is None:
        return None
    if is_op(call, "relax.add"):
        return tuple(np.add(left, right).tolist())
    if is_op(call, "relax.power"):
        exponent = right[0]
        if any(right[1:]) or exponent != 3 or any((left[0], *left[2:])):
            return None
        return (0.0, 0.0, 0.0, left[1] ** 3)
    product = np.polynomial.polynomial.polymul(left, right)
    product = np.pad(product, (0, 7 - len(product)))
    return None if product[4:].any() else tuple(product[:4].tolist())


def _close(polynomial: tuple[float, ...] | None, expected: tuple[float, ...]) -> bool:
    return polynomial is not None and np.allclose(
        polynomial, expected, rtol=COEFFICIENT_RTOL, atol=1e-9
    )
