"""Weights packed in a `KernelLayout`, as most templates read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.layout import KernelLayout
from neocpu.schedules.vocabulary.template import Arguments
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def packed(
    weights: NDArray[np.generic], layout: KernelLayout, shape: tuple[int, ...]
) -> NDArray[np.generic]:
    """Return OIHW weights in a layout; ``shape`` may merge axes and have more blocks of outputs."""
    found = layout.pack(weights)
    missing = math.prod(shape) // math.prod(found.shape[1:]) - len(found)
    if missing:
        found = np.pad(found, [(0, missing), *[(0, 0)] * (found.ndim - 1)])
    return found.reshape(shape)


def packing(
    layout: Callable[[Conv2dWorkload, Any], KernelLayout],
    argument_shapes: Callable[[Conv2dWorkload, Any], Arguments],
) -> Callable[[NDArray[np.generic], Conv2dWorkload, Any], NDArray[np.generic]]:
    """Return the ``pack_weights`` of a template with such weights, padded with zeros."""

    def pack_weights(
        weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: Any
    ) -> NDArray[np.generic]:
        shape, _ = argument_shapes(workload, scheme)[1]
        return packed(weights, layout(workload, scheme), shape)

    return pack_weights
