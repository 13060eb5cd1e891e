"""Layer and group normalisation with the variance of centred data, and division by norms.

TOPI takes E[x^2] - E[x]^2 for the variance, which cancels far from zero and may even be negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, tirx, topi

from neocpu.schedules.tir.vector_math import LOG2_E, power_of_two


@dataclass(frozen=True, slots=True)
class Root:
    """The divisor of rows: ``max(sqrt(factor * sum(x * x) + epsilon), least) + added``, with a
    positive `factor` and other numbers that are not negative.
    """

    factor: float = 1.0
    epsilon: float = 0.0
    least: float = 0.0
    added: float = 0.0


def layer_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: Sequence[Any], epsilon: float
) -> te.Tensor:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, over gamma's ``axes`` of data."""
    axes = [int(axis) % len(data.shape) for axis in axes]
    mean, factor = _statistics(data, axes, epsilon)

    def normalized(*at: Any) -> Any:
        row = [index for axis, index in enumerate(at) if axis not in axes]
        column = [at[axis] for axis in axes]
        return (data(*at) - mean(*row)) * factor(*row) * gamma(*column) + beta(*column)

    return te.compute(data.shape, normalized, name="layer_norm")


def group_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, groups: int, epsilon: float
) -> te.Tensor:
    """Return the same over the channels of a group and all axes after them.

    - `data`: a floating-point tensor ``(N, C, ...)``.
    - `gamma`, `beta`: ``(C,)``.
    """
    count, channels, *rest = data.shape
    width = int(channels) // int(groups)
    grouped = te.compute(
        [count, groups, width, *rest],
        lambda n, group, channel, *at: data(n, group * width + channel, *at),
        name="grouped",
    )
    mean, factor = _statistics(grouped, [*range(2, len(grouped.shape))], epsilon)

    def normalized(n: Any, channel: Any, *at: Any) -> Any:
        row = (n, channel // width)
        centred = data(n, channel, *at) - mean(*row)
        return centred * factor(*row) * gamma(channel) + beta(channel)

    return te.compute(data.shape, normalized, name="group_norm")


def divide_by_root(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    axes: Sequence[Any],
    root: Root,
    *,
    centred: bool,
) -> te.Tensor:
    """Return data / root * gamma + beta over ``axes``: RMS and L2 normalisation and the like.

    - `gamma`, `beta`: tensors with the extents of ``axes``.
    - `centred`: whether the mean is first subtracted from the data.
    """
    axes = [int(axis) % len(data.shape) for axis in axes]
    if centred:
        count = tirx.const(prod(int(data.shape[axis]) for axis in axes), data.dtype)
        data = topi.subtract(data, topi.divide(topi.sum(data, axis=axes, keepdims=True), count))
    factor, epsilon, least, added, one = (
        tirx.const(value, data.dtype)
        for value in (root.factor, root.epsilon, root.least, root.added, 1.0)
    )
    squares = topi.multiply(topi.sum(topi.multiply(data, data), axis=axes), factor)
    norm = topi.sqrt(topi.add(squares, epsilon))
    inverse = topi.divide(one, topi.add(topi.maximum(norm, least), added))

    def divided(*at: Any) -> Any:
        row = [index for axis, index in enumerate(at) if axis not in axes]
        column = [at[axis] for axis in axes]
        return data(*at) * inverse(*row) * gamma(*column) + beta(*column)

    return te.compute(data.shape, divided, name="divide_by_root")


def _statistics(data: te.Tensor, axes: list[int], epsilon: float) -> tuple[te.Tensor, te.Tensor]:
    """Return the means over ``axes``, and 1 / sqrt(variance + epsilon)."""
    count = tirx.const(prod(int(data.shape[axis]) for axis in axes), data.dtype)
    mean = topi.divide(topi.sum(data, axis=axes, keepdims=True), count)
    centred = topi.subtract(data, mean)
    variance = topi.divide(topi.sum(topi.multiply(centred, centred), axis=axes), count)
    one, least = (tirx.const(value, data.dtype) for value in (1.0, epsilon))
    factor = topi.divide(one, topi.sqrt(topi.add(variance, least)))
    return topi.squeeze(mean, axis=axes), factor


def softmax(data: te.Tensor, axis: int) -> te.Tensor:
    """Return ``exp(x - largest) / sum`` as a product with the reciprocal, which is faster."""
    axis %= len(data.shape)
    kept = [extent for place, extent in enumerate(data.shape) if place != axis]

    def row(at: Sequence[Any]) -> list[Any]:
        return [index for place, index in enumerate(at) if place != axis]

    def reduced(fold: Any, values: te.Tensor, name: str) -> te.Tensor:
        k = te.reduce_axis((0, values.shape[axis]), name="k")

        def of(*at: Any) -> Any:
            return fold(values(*at[:axis], k, *at[axis:]), axis=k)

        return te.compute(kept, of, name=name)

    largest = reduced(te.max, data, "softmax_largest")
    powers = te.compute(
        data.shape, lambda *at: _power(data(*at) - largest(*row(at))), name="softmax_powers"
    )
    total = reduced(te.sum, powers, "softmax_total")
    one = tirx.const(1, str(data.dtype))
    factor = te.compute(kept, lambda *at: one / total(*at), name="softmax_factor")
    return te.compute(data.shape, lambda *at: powers(*at) * factor(*row(at)), name="softmax")


def _power(distance: Any) -> Any:
    """Return the power of e of a number that is not positive."""
    if str(distance.ty.dtype) != "float32":
        return tirx.exp(distance)
    return power_of_two(distance * tirx.const(LOG2_E, "float32"))
