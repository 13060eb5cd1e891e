"""The time of operators in a running network, as opposed to the costs that the search compares.

Plans compare kernels with their weights in memory, at rates that rank them best. A prediction adds
up the time of each kernel at the rates that were measured in networks, with the weights in the
cache that holds all of the network's weights. In the end, the time of each kind of kernel is
multiplied by the measured pace of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.machine.network_rates import NETWORK_RATES
from neocpu.planning.choice import ESTIMATED, Choice, is_estimated
from neocpu.schedules import registry
from neocpu.schedules.estimates.memory_traffic import stream_seconds, with_cores
from neocpu.schedules.vocabulary.layout import NCHW
from neocpu.schedules.vocabulary.steps import TENSOR
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

MEASURED_CONVOLUTION: Final = "measured convolution"
"""The kind of convolutions on record, which were measured alone."""
OF_PLANES: Final = " of planes"
"""The suffix of the kind of convolutions that read NCHW, where a channel's pixels lie together."""
MOVING: Final = "moving"
"""The kind of the time that estimated kernels spend on moving data."""

IN_COMPANY: Final = 1.05
"""The time of a convolution in a network, as a multiple of its time alone. It stands for CPUs
without measured paces."""


@dataclass(frozen=True, slots=True)
class NetworkTime:
    """The seconds of a kernel in a run, at a pace of 1."""

    computing: float  # seconds with all data in L2; all seconds if they are measured
    moving: float  # additional seconds because data are farther away
    kind: str  # kind whose pace applies to ``computing``
    source: str = ESTIMATED  # source as in `neocpu.planning.choice.Choice`
    streamed: float = 0.0  # bytes of feature maps, which estimates assume in the own L2


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """The time of operators in a network, for one target and thread count."""

    plan: CpuTarget  # target at the rates of plans
    # `warm`, `cold`: the target at the rates of this network, and of a network whose weights fit
    # into no cache.
    warm: CpuTarget
    cold: CpuTarget
    near: CpuTarget  # target at the clock of networks, with all data in L2
    threads: int

    @classmethod
    def of(cls, target: CpuTarget, threads: int, weight_bytes: float) -> NetworkCosts:
        warm, cold = (
            with_cores(target.in_network(size, threads), threads)
            for size in (weight_bytes, math.inf)
        )
        near = warm.at(replace(warm.rates, own=math.inf, beyond=math.inf, memory=math.inf))
        return cls(with_cores(target, threads), warm, cold, near, threads)

    def convolution(self, workload: Conv2dWorkload, choice: Choice) -> NetworkTime:
        """Return the time of a choice; measured convolutions had their weights in memory."""
        scheme, source, streamed = choice.scheme, choice.source, _streamed(workload)
        assert scheme is not None
        estimate = partial(registry.estimate, workload, scheme, threads=self.threads)
        if not is_estimated(source):
            alone = choice.seconds * estimate(self.warm) / estimate(self.cold)
            return NetworkTime(alone, 0.0, MEASURED_CONVOLUTION, source, streamed)
        folded = choice.seconds / estimate(self.plan)
        planes = OF_PLANES if choice.in_format.layout == NCHW else ""
        kind = scheme.template + planes + workload.numerics.kind
        return self.estimated(lambda target: folded * estimate(target), kind, source, streamed)

    def estimated(
        self,
        estimate: Callable[[CpuTarget], float],
        kind: str,
        source: str = ESTIMATED,
        streamed: float = 0.0,
    ) -> NetworkTime:
        computing = estimate(self.near)
        return NetworkTime(computing, estimate(self.warm) - computing, kind, source, streamed)

    def streaming(self, size: float) -> float:
        """Return the seconds in which all threads move so many bytes of feature maps."""
        return stream_seconds(math.ceil(size), self.warm, self.threads)

    def pace(self, kind: str) -> float:
        """Return the factor by which kernels of a kind take longer than their seconds here."""
        known = NETWORK_RATES.get(self.plan.mcpu)
        if known is None:
            return IN_COMPANY if kind == MEASURED_CONVOLUTION else 1.0
        paces = known.paces
        return paces.get(kind) or paces.get(kind.rpartition(" of ")[0], 1.0)


def _streamed(workload: Conv2dWorkload) -> float:
    numerics = workload.numerics
    read = sum(step.operand == TENSOR for step in workload.epilogue)
    written = math.prod(workload.output_shape) * bytes_of(numerics.output)
    return math.prod(workload.input_shape) * bytes_of(numerics.data) + (1 + read) * written
