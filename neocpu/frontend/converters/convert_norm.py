"""Normalisations over statistics of the data, and batch normalisation."""

from __future__ import annotations

import numpy as np
from tvm import relax

from neocpu.frontend.converters.convert_integer import as_type
from neocpu.frontend.converters.node import Node, const, constant_value, dtype_of, scalar


def batch_norm(node: Node) -> relax.Expr:
    """BatchNormalization in inference: output 0 of ``relax.nn.batch_norm``."""
    if int(node.attrs.get("training_mode", 0)):
        raise ValueError("training_mode is not supported: export the model for inference")
    data = node.inputs[0]
    result = relax.op.nn.batch_norm(
        data,
        *(as_type(node, value, dtype_of(data)) for value in node.inputs[1:5]),
        axis=1,
        epsilon=float(node.attrs.get("epsilon", 1e-5)),
        training=False,
    )
    return relax.TupleGetItem(node.emit(result), 0)


def instance_norm(node: Node) -> relax.Expr:
    """InstanceNormalization: a group normalisation with groups of one channel."""
    data, gamma, beta = node.inputs
    axes, epsilon = [*range(2, len(node.shape()))], float(node.attrs.get("epsilon", 1e-5))
    return relax.op.nn.group_norm(data, gamma, beta, node.shape()[1], 1, axes, epsilon)


def layer_norm(node: Node) -> relax.Expr:
    """LayerNormalization over the last axes, first output only."""
    node.refuse_outputs("the mean and deviation outputs are not supported")
    axes = _last_axes(node)
    extents = [node.shape()[axis] for axis in axes]
    gamma, beta = node.inputs[1], node.optional(2)
    if beta is None:
        beta = const(np.zeros(extents, dtype_of(node.inputs[0])))
    gamma, beta = (_broadcast(value, extents) for value in (gamma, beta))
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    return relax.op.nn.layer_norm(node.inputs[0], gamma, beta, axes, epsilon)


def rms_norm(node: Node) -> relax.Expr:
    """RMSNormalization over the last axes."""
    data = node.inputs[0]
    mean = relax.op.mean(relax.op.multiply(data, data), axis=_last_axes(node), keepdims=True)
    base = relax.op.add(mean, scalar(float(node.attrs.get("epsilon", 1e-5)), data))
    return relax.op.multiply(relax.op.divide(data, relax.op.sqrt(base)), node.inputs[1])


def mean_variance_norm(node: Node) -> relax.Expr:
    """MeanVarianceNormalization, centred before squaring, with ONNX's epsilon of 1e-9."""
    data, axes = node.inputs[0], node.ints("axes", (0, 2, 3))
    mean = relax.op.mean(data, axis=axes, keepdims=True)
    centred = node.emit(relax.op.subtract(data, mean))
    variance = relax.op.mean(relax.op.multiply(centred, centred), axis=axes, keepdims=True)
    return relax.op.divide(centred, relax.op.add(relax.op.sqrt(variance), scalar(1e-9, data)))


def lp_normalization(node: Node) -> relax.Expr:
    """LpNormalization: x divided by its 1- or 2-norm along an axis; 0 where the norm is 0."""
    data, axis, p = node.inputs[0], int(node.attrs.get("axis", -1)), int(node.attrs.get("p", 2))
    if p not in (1, 2):
        raise ValueError(f"its p {p} is neither 1 nor 2")
    if p == 1:
        norm = relax.op.sum(relax.op.abs(data), axis=axis, keepdims=True)
    else:
        norm = relax.op.sqrt(relax.op.sum(relax.op.multiply(data, data), axis=axis, keepdims=True))
    # x is 0 wherever its norm is, so any other divisor gives the 0 that ONNX requires.
    norm = node.emit(norm)
    is_zero = relax.op.equal(norm, scalar(0.0, data))
    return relax.op.divide(data, relax.op.where(is_zero, scalar(1.0, data), norm))


def _last_axes(node: Node) -> list[int]:
    rank = len(node.shape())
    return list(range(int(node.attrs.get("axis", -1)) % rank, rank))


def _broadcast(value: relax.Expr, extents: list[int]) -> relax.Expr:
    array = constant_value(value)
    if array is None:
        return relax.op.broadcast_to(value, extents)
    return const(np.ascontiguousarray(np.broadcast_to(array, extents)))
