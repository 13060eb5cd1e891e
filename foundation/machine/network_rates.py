"""Measured rates of CPUs in networks, for predictions of a whole run.

``python -m tests.predictions --own --fit`` writes them; it measures the CPU that it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRates:
    """The rates of a kind of CPU in a network.

    The rates that plans assume rank kernels best, but do not give their times. `cycles`: factors on
    the cycles counted in a kernel's loops, by class (`schedules.estimates.kernel_work.CLASSES`).
    `paces`: factors on the estimated or recorded time of a kernel, by its kind; 1 for other kinds.
    """

    frequency: float  # cycles per second, under load
    own: float  # bytes per second of one core within L2
    beyond: float  # and beyond it
    memory: float  # bytes per second of all cores from memory
    cache: float  # and from the last-level cache
    fork: float  # seconds to enter and leave a parallel loop
    cycles: Mapping[str, float]
    paces: Mapping[str, float] = field(default_factory=dict)


NETWORK_RATES: Final[dict[str, NetworkRates]] = {
    "znver4": NetworkRates(
        frequency=3.690e09,
        own=2.790e10,
        beyond=7.643e10,
        memory=5.031e10,
        cache=1.911e11,
        fork=6.150e-07,
        cycles={
            "vector": 0.469,
            "scalar": 0.108,
            "divide": 0.243,
            "gather": 1.81,
            "library": 0.6,
            "chain": 0.569,
            "index": 0.00984,
            "convert": 2.0,
        },
        paces={
            "attention": 1.03,
            "attention of bfloat16": 1.06,
            "conv2d_depthwise": 1.74,
            "conv2d_depthwise of uint8": 1.26,
            "conv2d_direct": 1.03,
            "conv2d_direct of planes": 1.01,
            "conv2d_dot of bfloat16": 1.03,
            "conv2d_dot of uint8": 0.943,
            "conv2d_grouped": 1.93,
            "conv2d_grouped of uint8": 1.22,
            "conv2d_nchw of planes": 1.43,
            "conv2d_pointwise": 1.15,
            "conv2d_strassen": 1.07,
            "conv2d_winograd": 1.12,
            "conv2d_winograd of bfloat16": 1.12,
            "conv2d_winograd of uint8": 1.03,
            "dense": 1.07,
            "dense of bfloat16": 1.04,
            "dense of few rows": 0.726,
            "measured convolution": 1.07,
            "moving": 0.79,
        },
    ),
    "znver5": NetworkRates(
        frequency=4.050e09,
        own=1.100e11,
        beyond=6.000e10,
        memory=4.000e10,
        cache=1.500e11,
        fork=3.400e-07,
        cycles={
            "vector": 0.997,
            "scalar": 0.107,
            "divide": 0.243,
            "gather": 1.81,
            "library": 0.6,
            "chain": 0.569,
            "index": 0.01,
            "convert": 2.0,
        },
        paces={
            "attention": 0.914,
            "conv2d_depthwise": 1.17,
            "conv2d_direct": 0.898,
            "conv2d_direct of planes": 0.909,
            "conv2d_grouped": 2.01,
            "conv2d_nchw of planes": 0.964,
            "conv2d_pointwise": 0.889,
            "conv2d_winograd": 0.931,
            "dense": 1.0,
            "dense of few rows": 0.533,
            "measured convolution": 1.17,
            "moving": 1.03,
            "product": 0.95,
        },
    ),
}
"""Rates by LLVM's name of the CPU."""
