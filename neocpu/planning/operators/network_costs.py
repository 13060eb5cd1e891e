"""What an operator takes in a running network, of which the search compared costs.

Plans compare kernels with their weights in memory, at rates that rank them best. A prediction adds
up what each takes: at the rates that networks were measured to run at, with the weights where all
of the network's find room. How much longer kernels of a kind were found to take comes to that at
the end.
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
"""What the kind of those ends with that read NCHW: their pixels of a channel lie side by side."""
MOVING: Final = "moving"
"""The kind of what the way of data makes estimated kernels longer by."""

IN_COMPANY: Final = 1.05
"""How much longer a convolution takes between others than alone, on CPUs of which no more is known.
"""


@dataclass(frozen=True, slots=True)
class NetworkTime:
    """Seconds of a kernel in a run, at a pace of 1.

    Attributes
    ----------
    computing : float
        Those it would take with all data in L2; of records, all.
    moving : float
        What the rest of its way makes it longer by.
    kind : str
        Whose pace its computing has.
    source : str
        See `neocpu.planning.choice.Choice`.
    streamed : float
        Bytes of feature maps that it reads and writes: estimates take those that fit for being in
        the L2 of who needs them, where another thread may have made them.
    """

    computing: float
    moving: float
    kind: str
    source: str = ESTIMATED
    streamed: float = 0.0


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """What operators take in a network, for one target and thread count.

    Attributes
    ----------
    plan : CpuTarget
        At the rates of plans.
    warm, cold : CpuTarget
        At those of networks: of this one, and of one none of whose weights stay in a cache.
    near : CpuTarget
        At the clock of networks, were all data in L2.
    """

    plan: CpuTarget
    warm: CpuTarget
    cold: CpuTarget
    near: CpuTarget
    threads: int

    @classmethod
    def of(cls, target: CpuTarget, threads: int, weight_bytes: float) -> NetworkCosts:
        """Return the costs in a network of so many bytes of weights."""
        warm, cold = (
            with_cores(target.in_network(size, threads), threads)
            for size in (weight_bytes, math.inf)
        )
        near = warm.at(replace(warm.rates, own=math.inf, beyond=math.inf, memory=math.inf))
        return cls(with_cores(target, threads), warm, cold, near, threads)

    def convolution(self, workload: Conv2dWorkload, choice: Choice) -> NetworkTime:
        """Return what a convolution takes as a plan chose it.

        What is measured had its weights in memory.
        """
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
        """Return what a kernel takes whose estimate tells it: see `NetworkTime`."""
        computing = estimate(self.near)
        return NetworkTime(computing, estimate(self.warm) - computing, kind, source, streamed)

    def streaming(self, size: float) -> float:
        """Return the seconds in which all threads together move bytes of feature maps."""
        return stream_seconds(math.ceil(size), self.warm, self.threads)

    def pace(self, kind: str) -> float:
        """Return how many times its seconds here a kernel of a kind takes."""
        known = NETWORK_RATES.get(self.plan.mcpu)
        if known is None:
            return IN_COMPANY if kind == MEASURED_CONVOLUTION else 1.0
        paces = known.paces
        return paces.get(kind) or paces.get(kind.rpartition(" of ")[0], 1.0)


def _streamed(workload: Conv2dWorkload) -> float:
    """Return the bytes of a convolution's image, its result, and the maps that its steps read."""
    numerics = workload.numerics
    read = sum(step.operand == TENSOR for step in workload.epilogue)
    written = math.prod(workload.output_shape) * bytes_of(numerics.output)
    return math.prod(workload.input_shape) * bytes_of(numerics.data) + (1 + read) * written
