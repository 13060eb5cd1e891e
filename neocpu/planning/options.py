"""How a caller wants layouts to be chosen."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import cast, get_args

from neocpu.planning.costs import CostModel
from neocpu.planning.network import Network
from neocpu.planning.problem import LayoutPlan, OptLevel, plan_layouts
from neocpu.schedules.errors import UsageError, did_you_mean
from neocpu.search.limits import SearchLimits
from neocpu.search.plan import Solver

_log = logging.getLogger("neocpu")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How far layouts are optimised, by which solver, and for how long."""

    opt: OptLevel
    solver: Solver
    limits: SearchLimits

    @classmethod
    def parse(cls, opt: str, solver: str, seconds: float | None) -> PlanOptions:
        """Check the options of ``neocpu compile``.

        Raises
        ------
        UsageError
        """
        return cls(_opt_level(opt), _solver(solver), _limits(solver, seconds))

    def plan(self, network: Network, costs: CostModel) -> LayoutPlan:
        """Choose layouts and schemes; warn if there may be a better plan."""
        plan = plan_layouts(network, costs, self.opt, self.solver, self.limits)
        if not plan.search.proven:
            _log.warning("the layout plan is %s", plan.search.verdict)
        return plan


def _opt_level(name: str) -> OptLevel:
    try:
        return OptLevel(name)
    except ValueError:
        known = [str(level) for level in OptLevel]
        hint = did_you_mean(name, known)
        raise UsageError(f"unknown --opt {name!r}; known: {', '.join(known)}{hint}") from None


def _solver(name: str) -> Solver:
    known = get_args(Solver)
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"unknown --solver {name!r}; known: {', '.join(known)}{hint}")
    return cast(Solver, name)


def _limits(solver: str, seconds: float | None) -> SearchLimits:
    if seconds is None:
        return SearchLimits()
    if solver in ("exact", "pbqp"):
        why = "takes as long as it needs" if solver == "exact" else "has nothing to limit"
        raise UsageError(f"--search-seconds is for --solver auto or dp: {solver} {why}")
    if not 0 <= seconds < math.inf:
        raise UsageError(f"--search-seconds must be seconds, 0 or more, got {seconds}")
    return SearchLimits(seconds)
