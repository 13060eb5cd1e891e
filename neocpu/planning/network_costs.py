"""What an operator takes in a running network, of which the search compared costs.

Plans compare kernels with their weights in memory, at rates that rank them best. A prediction adds
up what each takes: at the rates that networks were measured to run at, with the weights where all
of the network's find room, and as much longer as kernels of its template were found to take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from neocpu.planning.choice import Choice, is_estimated
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

PACE: Final[dict[str, dict[str, float]]] = {
    "znver5": {
        "conv2d_depthwise": 1.3,
        "conv2d_grouped": 1.4,
        "conv2d_pointwise": 1.05,
        "conv2d_winograd": 1.05,
        "attention": 1.4,
        "product": 1.4,
        "dense": 1.1,
        "dense of few rows": 0.9,
    }
}
"""How many times its estimate a kernel takes, by CPU and template; 1 where nothing is said.

Found by comparing estimates at these rates with the CPU's tuning records, of the schemes that
plans choose without them, and of other kernels with what they take in networks.
"""

IN_COMPANY: Final = 1.05
"""How much longer a kernel takes between others than alone, as it was measured."""


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
        """Return the seconds of a convolution as a plan chose it.

        What is measured had its weights in memory.
        """
        assert choice.scheme is not None
        here = self._estimate(workload, choice.scheme, self.warm)
        if not is_estimated(choice.source):
            alone = self._estimate(workload, choice.scheme, self.cold)
            return IN_COMPANY * choice.seconds * here / alone
        folded = choice.seconds / self._estimate(workload, choice.scheme, self.plan)
        return folded * here * self.pace(choice.scheme.template)

    def pace(self, template: str) -> float:
        """Return how many times its estimate a kernel of a template takes."""
        return PACE.get(self.plan.mcpu, {}).get(template, 1.0)

    def _estimate(self, workload: Conv2dWorkload, scheme: Scheme, target: CpuTarget) -> float:
        return registry.estimate(workload, scheme, target, self.threads)
