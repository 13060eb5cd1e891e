"""Weights that fill a line of a tile: of a window's columns side by side, or of several groups.

Groups narrower than a block of input channels are multiplied together, each with zeros for the
inputs of the others. An infinity or NaN therefore makes NaN of the whole wide group.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.convolutions.matrix_products.matrix_tiling import JOINED_BLOCK
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

Number = TypeVar("Number", bound=np.generic)


def with_joined_columns(weights: NDArray[Number]) -> NDArray[Number]:
    """Return OIHW weights for windows of one column, whose channels include all columns."""
    o, i, kernel_h, kernel_w = weights.shape
    blocks = np.pad(weights, ((0, 0), (0, JOINED_BLOCK - i), (0, 0), (0, 0)))
    beside = blocks.transpose(0, 3, 1, 2).reshape(o, kernel_w * JOINED_BLOCK, kernel_h, 1)
    return np.ascontiguousarray(beside)


def in_wide_groups(workload: Conv2dWorkload, block: int) -> Conv2dWorkload:
    """Return the workload with as many groups in one as make up whole ``block``s of inputs."""
    w = workload
    width = w.image_channels // w.groups
    joined = block // math.gcd(width, block)
    return w if w.groups == 1 or w.groups % joined else replace(w, groups=w.groups // joined)


def with_wide_groups(
    weights: NDArray[Number], workload: Conv2dWorkload, wide: Conv2dWorkload
) -> NDArray[Number]:
    """Return OIHW weights of the wide groups, with zeros between the groups in one."""
    o, i, *kernel = weights.shape
    joined = workload.groups // wide.groups
    found = np.zeros((wide.groups, joined, o // workload.groups, joined, i, *kernel), weights.dtype)
    given = weights.reshape(wide.groups, joined, o // workload.groups, i, *kernel)
    for number in range(joined):
        found[:, number, :, number] = given[:, number]
    return found.reshape(o, joined * i, *kernel)
