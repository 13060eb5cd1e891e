"""How a caller wants layouts to be chosen."""

from __future__ import annotations

import logging
import math
from collections.abc import Container
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.option_words import SOLVERS, Solver
from neocpu.planning.costs import CostModel
from neocpu.planning.network import Network
from neocpu.planning.optimisation_levels import (
    LayoutPlan,
    OptLevel,
    operator_choices,
    plan_among,
    plan_layouts,
)
from neocpu.planning.precision import Precision, parse_precision
from neocpu.planning.weight_limit import (
    in_seconds,
    most_of_integers,
    plan_sparingly,
    plan_within,
    price_kept,
)
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import ConvTemplate
from neocpu.search.solver.solver_limits import SearchLimits

_log = logging.getLogger("neocpu")

_HINT_SECONDS: Final = 1.0
"""Of a search that only says what another precision would bring, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How far layouts are optimised, by which solver, for how long, and within how many bytes.

    Attributes
    ----------
    max_weights : int or None
        Limit of the packed weights, in bytes.
    precision : Precision
        In what numbers operators may compute.
    small : bool
        Whether to compute in the narrowest of these wherever the CPU can, faster or not.
    narrow : frozenset of str or None
        Names of the operators that may compute in less than float32; None for all.
    packs_at_load : bool
        Whether a set of shapes is stored with each weight in one packing, of which others are made
        when it is loaded.
    """

    opt: OptLevel
    solver: Solver
    limits: SearchLimits
    max_weights: int | None = None
    precision: Precision = Precision.AUTO
    packs_at_load: bool = True
    small: bool = False
    narrow: frozenset[str] | None = None

    @classmethod
    def parse(
        cls,
        opt: str,
        solver: str,
        seconds: float | None,
        max_weights: int | None = None,
        precision: str = Precision.AUTO,
        packs_at_load: bool = True,
        small: bool = False,
    ) -> PlanOptions:
        """Check the options of ``neocpu compile``.

        Raises
        ------
        UsageError
        """
        if max_weights is not None and (type(max_weights) is not int or max_weights < 0):
            raise UsageError(
                f"max_weights must be a number of bytes, 0 or more, got {max_weights!r}"
            )
        return cls(
            opt=_opt_level(opt),
            solver=_solver(solver),
            limits=_limits(solver, seconds),
            max_weights=max_weights,
            precision=parse_precision(precision),
            packs_at_load=packs_at_load,
            small=small,
        )

    def fuses_prologues(self, templates: Container[str] | None) -> bool:
        """Whether 1x1 convolutions may take what is in front: not all of ``templates`` can."""
        allowed = templates is None or any(
            name in templates
            for name, template in registry.TEMPLATES.items()
            if isinstance(template, ConvTemplate) and template.prologues
        )
        # No kernel of bfloat16 applies any.
        in_float = self.precision is not Precision.BF16
        return allowed and in_float and self.opt is not OptLevel.NCHW

    def allowing(self, network: Network, target: CpuTarget) -> Network:
        """Return a network with those ways to compute operators that are asked for."""
        return network.computing(self.precision, target, self.small, self.narrow)

    def plan(self, network: Network, costs: CostModel, fixed_weights: int = 0) -> LayoutPlan:
        """Choose layouts and schemes; warn if there may be a better plan.

        Parameters
        ----------
        fixed_weights : int
            Bytes of the packed weights that no plan changes.

        Raises
        ------
        UsageError
            If no plan keeps the limit on the weights.
        """
        choosing = self.allowing(network, costs.target)

        def solve(byte_price: float, *, within: bool = False) -> LayoutPlan:
            priced = replace(costs, byte_price=byte_price, keeps_choices=not within, sparing=within)
            return plan_layouts(choosing, priced, self.opt, self.solver, self.limits)

        limit, (*_, bandwidth) = self.max_weights, costs.target.bandwidths
        plan = plan_sparingly(bandwidth, solve)
        asked = limit is not None
        if not asked:
            limit = most_of_integers(plan, costs, fixed_weights)
        if limit is not None and fixed_weights + plan.weight_bytes > limit:
            # Where no plan is as small as nobody asked for, this one does.
            with nullcontext() if asked else suppress(UsageError):
                plan = plan_within(limit, fixed_weights, partial(solve, within=True))
        if not plan.search.proven and (asked or not plan.search.relaxed):
            _log.warning("the layout plan is %s", plan.search.verdict)
        return plan

    def lacks_bfloat16(self, network: Network) -> bool:
        """Whether nobody asked for bfloat16, nor said otherwise what may be rounded."""
        given = any(op.forms for op in network.convs) or any(op.forms for op in network.dense)
        return self.precision is Precision.AUTO and self.opt is OptLevel.GLOBAL and not given

    def saved_in_bfloat16(self, network: Network, plain: LayoutPlan, costs: CostModel) -> float:
        """Return seconds that a plan of float32 would take less if bfloat16 were allowed.

        Parameters
        ----------
        network : Network
            Of the same program, as plans of bfloat16 are made of it.
        """
        halves = replace(self, precision=Precision.BF16, narrow=None)
        limits = replace(self.limits, seconds=min(self.limits.seconds, _HINT_SECONDS))
        choosing = halves.allowing(network, costs.target)
        (*_, bandwidth) = costs.target.bandwidths
        price = price_kept(bandwidth)
        priced = replace(costs, byte_price=price)
        plan = in_seconds(plan_layouts(choosing, priced, self.opt, "auto", limits), price)

        def seconds(each: LayoutPlan) -> float:
            rest = [op.estimate(costs.target, costs.threads) for op in each.network.dense]
            rest += [op.estimate(costs.target, costs.threads) for op in each.network.products]
            return each.search.cost + math.fsum(rest)

        return max(0.0, seconds(plain) - seconds(plan))

    def levels(self, network: Network, costs: CostModel) -> dict[str, float]:
        """Return seconds of the plans that optimise layouts less, whatever their weights take."""
        if self.opt is not OptLevel.GLOBAL:
            return {}
        choosing = self.allowing(network, costs.target)
        (*_, bandwidth) = costs.target.bandwidths
        price = price_kept(bandwidth)
        priced = replace(costs, byte_price=price)
        every = operator_choices(choosing, priced, fold=False)
        seconds = {}
        for opt in (each for each in OptLevel if each is not OptLevel.GLOBAL):
            plan = plan_among(choosing, every, priced, opt, self.solver, self.limits)
            seconds[str(opt)] = in_seconds(plan, price).search.cost
        return {name: cost for name, cost in seconds.items() if math.isfinite(cost)}


def _opt_level(name: str) -> OptLevel:
    try:
        return OptLevel(name)
    except ValueError:
        known = [str(level) for level in OptLevel]
        hint = did_you_mean(name, known)
        raise UsageError(f"unknown --opt {name!r}; known: {', '.join(known)}{hint}") from None


def _solver(name: str) -> Solver:
    if name not in SOLVERS:
        hint = did_you_mean(name, SOLVERS)
        raise UsageError(f"unknown --solver {name!r}; known: {', '.join(SOLVERS)}{hint}")
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
