"""Elementwise operators that TVM's importer hides from fusion, gets wrong or makes slow."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_integer import as_type, integer_binary, is_integer
from neocpu.frontend.converters.node import Converters, Node, constant_value, dtype_of, scalar
from neocpu.ir.elementwise import MISH, activation


def _clip(node: Node) -> relax.Expr:
    """Clip as relu, clip, minimum or maximum: TVM's importer emits opaque TIR for it."""
    data = node.data
    low, high = (_bound(node, index) for index in (1, 2))
    if low is not None and high is not None and low <= high:
        return relax.op.clip(data, low, high)
    if low == 0 and high is None and node.optional(2) is None:
        return relax.op.nn.relu(data)
    # If bounds are computed at run time, or crossed, ONNX means min(max(x, low), high).
    result = data
    for index, op in ((1, relax.op.maximum), (2, relax.op.minimum)):
        bound = node.optional(index)
        if bound is not None:
            result = node.emit(op(result, bound))
    return result


def _bound(node: Node, index: int) -> float | int | None:
    value = node.optional(index)
    array = None if value is None else constant_value(value)
    if array is None or array.size != 1:
        return None
    bound: float | int = array.item()
    return None if bound != bound or bound in (-np.inf, np.inf) else bound


def _prelu(node: Node) -> relax.Expr:
    """PRelu, if the slopes broadcast to the data: TVM notices others only in code generation."""
    shape, slopes = node.shape(), node.shape(1)
    fits = zip(reversed(shape), reversed(slopes), strict=False)
    if len(slopes) > len(shape) or any(slope not in (1, extent) for extent, slope in fits):
        raise ValueError(f"its slopes {list(slopes)} do not fit its data {list(shape)}")
    if not shape or is_integer(node.data):  # TVM supports neither
        data, slope = node.inputs
        below = node.op.less(data, scalar(0, data))
        return relax.op.where(below, node.op.multiply(data, slope), data)
    return node.convert_by_tvm("PRelu", node.inputs)


def _variadic(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Callable[[Node], relax.Expr]:
    """Fold an n-ary operator pairwise; TVM's importer stacks the inputs and reduces the stack."""

    def convert(node: Node) -> relax.Expr:
        return functools.reduce(lambda left, right: node.emit(op(left, right)), node.inputs)

    return convert


def _mean(node: Node) -> relax.Expr:
    total = _variadic(relax.op.add)(node)
    if len(node.inputs) == 1:
        return total
    return relax.op.divide(total, scalar(len(node.inputs), total))


_SIMPLE_POWERS: Mapping[float, Callable[[relax.Expr], relax.Expr]] = {
    0.0: lambda x: relax.op.full(x.ty.shape, scalar(1, x), dtype_of(x)),
    0.5: relax.op.sqrt,
    1.0: lambda x: x,
    2.0: lambda x: relax.op.multiply(x, x),
    3.0: lambda x: relax.op.multiply(relax.op.multiply(x, x), x),
}


def _power(node: Node) -> relax.Expr:
    """Pow, with the usual exponents as products and roots, which vectorise."""
    base, exponent = node.inputs
    dtype = dtype_of(base)
    # The exponent may be of another type than the base. The result has the base's type.
    floating = dtype if dtype.startswith("float") else "float64"
    value = constant_value(exponent)
    if value is not None and value.size == 1 and value.ndim <= len(node.shape()):
        simple = _SIMPLE_POWERS.get(value.item())
        if simple is not None and (dtype == floating or value.item() != 0.5):
            return simple(base)
    if is_integer(base) and is_integer(exponent):
        return integer_binary(node, "power", base, exponent)
    base, exponent = (as_type(node, value, floating) for value in (base, exponent))
    return as_type(node, node.op.power(base, exponent), dtype)


def _thresholded_relu(node: Node) -> relax.Expr:
    data = node.data
    above = relax.op.greater(data, scalar(node.number("alpha", 1.0), data))
    return relax.op.where(above, data, scalar(0.0, data))


def _elu(node: Node) -> relax.Expr:
    return _exponential_unit(node, node.number("alpha", 1.0), 1.0)


def _selu(node: Node) -> relax.Expr:
    alpha = node.number("alpha", 1.67326319217681884765625)
    return _exponential_unit(node, alpha, node.number("gamma", 1.05070102214813232421875))


def _exponential_unit(node: Node, alpha: float, gamma: float) -> relax.Expr:
    data = node.data
    below = relax.op.exp(relax.op.minimum(data, scalar(0.0, data)))
    below = relax.op.multiply(relax.op.subtract(below, scalar(1.0, data)), scalar(alpha, data))
    result = _above_zero(node, below, alpha)
    return result if gamma == 1.0 else relax.op.multiply(result, scalar(gamma, data))


def _above_zero(node: Node, below: relax.Expr, alpha: float) -> relax.Expr:
    """Return the data above 0, and ``below`` elsewhere; ``below`` is 0 * ``alpha`` above 0."""
    data = node.data
    if math.isfinite(alpha):
        return relax.op.add(relax.op.nn.relu(data), below)
    return relax.op.where(relax.op.greater(data, scalar(0.0, data)), data, node.emit(below))


def _celu(node: Node) -> relax.Expr:
    data, alpha = node.data, node.number("alpha", 1.0)
    below = relax.op.multiply(relax.op.minimum(data, scalar(0.0, data)), scalar(1 / alpha, data))
    below = relax.op.subtract(relax.op.exp(below), scalar(1.0, data))
    return _above_zero(node, relax.op.multiply(below, scalar(alpha, data)), alpha)


def _hard_sigmoid(node: Node) -> relax.Expr:
    """HardSigmoid: alpha * x + beta, clipped to 0 and 1; a NaN parameter makes all NaN."""
    alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
    if math.isnan(alpha) or math.isnan(beta):
        return relax.op.multiply(node.data, scalar(math.nan, node.data))
    return node.convert_by_tvm("HardSigmoid", node.inputs)


def _swish(node: Node) -> relax.Expr:
    data, alpha = node.data, node.number("alpha", 1.0)
    if alpha == 1.0:
        return relax.op.nn.silu(data)
    return relax.op.multiply(data, relax.op.sigmoid(relax.op.multiply(data, scalar(alpha, data))))


def _is_inf(node: Node) -> relax.Expr:
    negative, positive = (node.flag(f"detect_{sign}", 1) for sign in ("negative", "positive"))
    if negative and positive:
        return relax.op.isinf(node.data)
    wanted = np.inf if positive else -np.inf if negative else np.nan
    return relax.op.equal(node.data, scalar(wanted, node.data))


def _sinh(node: Node) -> relax.Expr:
    """Sinh as tanh(x) * cosh(x): LLVM has none, and this is exact for small x."""
    data = node.data
    return relax.op.multiply(relax.op.tanh(data), _cosh(node))


def _cosh(node: Node) -> relax.Expr:
    """Cosh as (h^2 + 1 / h^2) / 2 with h = exp(|x| / 2), which overflows only if cosh does."""
    data = node.data
    half = scalar(0.5, data)
    h = node.op.exp(relax.op.multiply(relax.op.abs(data), half))
    grown = node.op.multiply(relax.op.multiply(h, half), h)
    return relax.op.add(grown, relax.op.divide(relax.op.divide(half, h), h))


def _sign(node: Node) -> relax.Expr:
    """Sign; TVM needs a negative constant, which unsigned types lack, and returns 0 for NaN."""
    data = node.data
    if dtype_of(data).startswith("uint"):
        return relax.op.minimum(data, scalar(1, data))
    found = relax.op.sign(data)
    if is_integer(data):
        return found
    return relax.op.where(node.op.isnan(data), data, node.emit(found))


def _shrink(node: Node) -> relax.Expr:
    """Shrink; integers are computed in floating point and rounded towards zero."""
    data = node.data
    dtype = dtype_of(data)
    wide = data if dtype.startswith("float") else node.op.astype(data, "float64")
    limit, bias = node.number("lambd", 0.5), node.number("bias", 0.0)
    low = relax.op.where(
        relax.op.less(wide, scalar(-limit, wide)),
        relax.op.add(wide, scalar(bias, wide)),
        scalar(0.0, wide),
    )
    above = relax.op.greater(wide, scalar(limit, wide))
    result = relax.op.where(above, relax.op.subtract(wide, scalar(bias, wide)), node.emit(low))
    return result if wide is data else relax.op.astype(node.emit(result), dtype)


def _equal(node: Node) -> relax.Expr:
    """Equal; booleans by xor for LLVM's sake, and NaN differs from itself, unlike in TVM."""
    left, right = node.inputs
    if left.same_as(right) and dtype_of(left).startswith("float"):
        return relax.op.logical_not(node.op.isnan(left))
    if dtype_of(left) != "bool":
        return relax.op.equal(left, right)
    return relax.op.logical_not(node.op.logical_xor(left, right))


CONVERTERS: Converters = {
    "Celu": _celu,
    "Clip": _clip,
    "Cosh": _cosh,
    "Dropout": lambda node: node.data,  # `expansions.formulas` writes its other forms
    "Elu": _elu,
    "Equal": _equal,
    "HardSigmoid": _hard_sigmoid,
    "IsInf": _is_inf,
    "Max": _variadic(relax.op.maximum),
    "Mean": _mean,
    "Min": _variadic(relax.op.minimum),
    # x * tanh(softplus(x)), without overflow for large x.
    "Mish": lambda node: activation(MISH, node.data),
    "PRelu": _prelu,
    "Pow": _power,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sign": _sign,
    "Sinh": _sinh,
    "Sum": _variadic(relax.op.add),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
}
