"""Blocks that several families of networks share."""

from __future__ import annotations

from collections.abc import Callable

from neocpu.frontend.models.network_builder import BATCH_NORM_EPSILON, NetworkBuilder, Value

Activation = Callable[[NetworkBuilder, Value, str], Value]
"""A method of the builder, such as ``NetworkBuilder.relu6``."""


def conv_norm_activation(
    net: NetworkBuilder,
    x: Value,
    name: str,
    channels: int,
    kernel: int,
    *,
    activation: Activation,
    stride: int = 1,
    groups: int = 1,
    gain: float = 1.0,
    epsilon: float = BATCH_NORM_EPSILON,
) -> Value:
    """Add torchvision's layer of this name; except for the stride, the image keeps its size.

    Parameters
    ----------
    gain, epsilon : float
        The gain and epsilon of the batch norm.
    """
    padding = kernel // 2
    x = net.conv(x, f"{name}.0", channels, kernel, stride=stride, padding=padding, groups=groups)
    x = net.batch_norm(x, f"{name}.1", gain=gain, epsilon=epsilon)
    return activation(net, x, f"{name}.2")
