"""What an operator takes in a running network, of which the search compared costs.

Plans compare kernels with their weights in memory, at rates that rank them best. A prediction adds
up what each takes: at the rates that networks were measured to run at, with the weights where all
of the network's find room. How much longer kernels of a kind were found to take comes to that at
the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from neocpu.foundation.network_rates import NETWORK_RATES
from neocpu.planning.choice import Choice, is_estimated
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

MEASURED_CONVOLUTION: Final = "measured convolution"
"""The kind of convolutions on record, which were measured alone."""
MOVE: Final = "move"
"""That of what moves feature maps, and whose class has records."""

IN_COMPANY: Final = 1.05
"""How much longer a convolution takes between others than alone, on CPUs of which no more is known.
"""


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """What operators take in a network, for one target and thread count.

    Attributes
    ----------
    plan : CpuTarget
        At the rates of plans.
    warm, cold : CpuTarget
        At those of networks: of this one, and of one none of whose weights stay in a cache.
    """

    plan: CpuTarget
    warm: CpuTarget
    cold: CpuTarget
    threads: int

    @classmethod
    def of(cls, target: CpuTarget, threads: int, weight_bytes: float) -> NetworkCosts:
        """Return the costs in a network of so many bytes of weights."""
        warm, cold = (target.in_network(size, threads) for size in (weight_bytes, math.inf))
        return cls(target, warm, cold, threads)

    def convolution(self, workload: Conv2dWorkload, choice: Choice) -> float:
        """Return the seconds of a convolution as a plan chose it, at a pace of 1.

        What is measured had its weights in memory.
        """
        assert choice.scheme is not None
        here = self._estimate(workload, choice.scheme, self.warm)
        if not is_estimated(choice.source):
            alone = self._estimate(workload, choice.scheme, self.cold)
            return choice.seconds * here / alone
        folded = choice.seconds / self._estimate(workload, choice.scheme, self.plan)
        return folded * here

    def pace(self, kind: str) -> float:
        """Return how many times its seconds here a kernel of a kind takes."""
        known = NETWORK_RATES.get(self.plan.mcpu)
        if known is None:
            return IN_COMPANY if kind == MEASURED_CONVOLUTION else 1.0
        return known.paces.get(kind, 1.0)

    def _estimate(self, workload: Conv2dWorkload, scheme: Scheme, target: CpuTarget) -> float:
        return registry.estimate(workload, scheme, target, self.threads)
