"""Elementwise operators whose TVM translation hides, misreads or slows them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from tvm import relax

from neocpu.frontend.node import Node, constant_value, dtype_of, scalar


def clip(node: Node) -> relax.Expr:
    """Clip as relu, clip, minimum or maximum: TVM's importer emits opaque TIR for it."""
    data = node.inputs[0]
    low, high = (_bound(node, index) for index in (1, 2))
    if low is not None and high is not None and low <= high:
        return relax.op.clip(data, low, high)
    if low == 0 and high is None and node.optional(2) is None:
        return relax.op.nn.relu(data)
    # With bounds computed at run time, or crossed ones, ONNX means min(max(x, low), high).
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


def variadic(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Callable[[Node], relax.Expr]:
    """Fold an n-ary operator pairwise: TVM's importer stacks the inputs and reduces the stack."""

    def convert(node: Node) -> relax.Expr:
        return functools.reduce(lambda left, right: node.emit(op(left, right)), node.inputs)

    return convert


def mean(node: Node) -> relax.Expr:
    """Mean of n broadcast inputs."""
    total = variadic(relax.op.add)(node)
    if len(node.inputs) == 1:
        return total
    return relax.op.divide(total, scalar(len(node.inputs), total))


def power(node: Node) -> relax.Expr:
    """Pow, with the usual exponents as products and roots, which vectorise."""
    base, exponent = node.inputs
    value = constant_value(exponent)
    if value is not None and value.size == 1 and value.ndim <= len(node.shape()):
        simple = {0.5: relax.op.sqrt, 1.0: lambda x: x, 2.0: lambda x: relax.op.multiply(x, x)}
        if value.item() in simple and (value.item() != 0.5 or dtype_of(base).startswith("float")):
            return simple[value.item()](base)
    # The exponent may be of another type than the base; the result has the base's. TVM raises
    # floating-point numbers only.
    dtype = dtype_of(base)
    floating = dtype if dtype.startswith("float") else "float64"
    base, exponent = (node.emit(_as_type(value, floating)) for value in (base, exponent))
    return _as_type(node.emit(relax.op.power(base, exponent)), dtype)


def _as_type(value: relax.Expr, dtype: str) -> relax.Expr:
    return value if dtype_of(value) == dtype else relax.op.astype(value, dtype)


def mish(node: Node) -> relax.Expr:
    """Mish, x * tanh(softplus(x)), without overflow for large x.

    tanh(ln(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2) with e = exp(min(x, 20)): beyond 20 it is 1.
    """
    data = node.inputs[0]
    e = node.emit(relax.op.exp(relax.op.minimum(data, scalar(20.0, data))))
    n = node.emit(relax.op.multiply(e, relax.op.add(e, scalar(2.0, data))))
    return relax.op.multiply(data, relax.op.divide(n, relax.op.add(n, scalar(2.0, data))))


def thresholded_relu(node: Node) -> relax.Expr:
    """ThresholdedRelu: x above alpha, else 0."""
    data = node.inputs[0]
    above = relax.op.greater(data, scalar(float(node.attrs.get("alpha", 1.0)), data))
    return relax.op.where(above, data, scalar(0.0, data))


def elu(node: Node) -> relax.Expr:
    """Elu: x above 0, else alpha * (exp(x) - 1)."""
    return _exponential_unit(node, float(node.attrs.get("alpha", 1.0)), 1.0)


def selu(node: Node) -> relax.Expr:
    """Selu: gamma times Elu."""
    alpha = float(node.attrs.get("alpha", 1.67326319217681884765625))
    return _exponential_unit(node, alpha, float(node.attrs.get("gamma", 1.05070102214813232421875)))


def _exponential_unit(node: Node, alpha: float, gamma: float) -> relax.Expr:
    data = node.inputs[0]
    below = relax.op.exp(relax.op.minimum(data, scalar(0.0, data)))
    below = relax.op.multiply(relax.op.subtract(below, scalar(1.0, data)), scalar(alpha, data))
    result = relax.op.add(relax.op.nn.relu(data), below)
    return result if gamma == 1.0 else relax.op.multiply(result, scalar(gamma, data))


def lp_normalization(node: Node) -> relax.Expr:
    """LpNormalization: x divided by its 1- or 2-norm along an axis; 0 where the norm is 0."""
    data, axis = node.inputs[0], int(node.attrs.get("axis", -1))
    if int(node.attrs.get("p", 2)) == 1:
        norm = relax.op.sum(relax.op.abs(data), axis=axis, keepdims=True)
    else:
        norm = relax.op.sqrt(
            relax.op.sum(relax.op.multiply(data, data), axis=axis, keepdims=True)
        )
    # x is 0 wherever its norm is, so that any other divisor gives the 0 ONNX asks for.
    norm = node.emit(norm)
    is_zero = relax.op.equal(norm, scalar(0.0, data))
    return relax.op.divide(data, relax.op.where(is_zero, scalar(1.0, data), norm))


def layer_norm(node: Node) -> relax.Expr:
    """LayerNormalization over the last axes, first output only."""
    node.refuse_outputs("the mean and deviation outputs are not supported")
    data, gamma = node.inputs[0], node.inputs[1]
    rank = len(node.shape())
    axes = list(range(int(node.attrs.get("axis", -1)) % rank, rank))
    extents = [node.shape()[axis] for axis in axes]
    beta = node.optional(2)
    if beta is None:
        beta = relax.const(np.zeros(extents, dtype_of(data)))
    gamma, beta = (_broadcast(value, extents) for value in (gamma, beta))
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    return relax.op.nn.layer_norm(data, gamma, beta, axes, epsilon)


def _broadcast(value: relax.Expr, extents: list[int]) -> relax.Expr:
    array = constant_value(value)
    if array is None:
        return relax.op.broadcast_to(value, extents)
    return relax.const(np.ascontiguousarray(np.broadcast_to(array, extents)))


def batch_norm(node: Node) -> relax.Expr:
    """BatchNormalization in inference, output 0 of ``relax.nn.batch_norm``."""
    if int(node.attrs.get("training_mode", 0)):
        raise ValueError("training_mode=1 is not supported: export the model for inference")
    data, gamma, beta, running_mean, running_var = node.inputs
    result = relax.op.nn.batch_norm(
        data,
        gamma,
        beta,
        running_mean,
        running_var,
        axis=1,
        epsilon=float(node.attrs.get("epsilon", 1e-5)),
        training=False,
    )
    return relax.TupleGetItem(node.emit(result), 0)
