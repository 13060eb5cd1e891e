"""A caller's options for planning layouts."""

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
from neocpu.planning.optimisation_levels import LayoutPlan, OptLevel, operator_choices, plan_layouts
from neocpu.planning.precision import Precision, parse_precision
from neocpu.planning.weight_limit import (
    in_seconds,
    most_of_integers,
    plan_sparingly,
    plan_within,
    price_kept,
)
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.template import ConvTemplate
from neocpu.search.solver.plan import SearchLimits

_log = logging.getLogger("neocpu")

_HINT_SECONDS: Final = 1.0  # of a search that only finds out how much bfloat16 would save


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The level of optimisation, the solver, its limits, and limits on the result."""

    opt: OptLevel
    solver: Solver
    limits: SearchLimits
    max_weights: int | None = None  # bytes
    precision: Precision = Precision.AUTO  # numbers in which operators may compute
    packs_at_load: bool = True  # others are made of one when a set is loaded
    small: bool = False  # narrowest wherever possible, even if slower
    narrow: frozenset[str] | None = None  # operators below float32; None for all

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
        """Whether 1x1 convolutions may have prologues: not all ``templates`` support them."""
        allowed = templates is None or any(
            name in templates
            for name, template in registry.TEMPLATES.items()
            if isinstance(template, ConvTemplate) and template.prologues
        )
        # No kernel of bfloat16 applies a prologue.
        in_float = self.precision is not Precision.BF16
        return allowed and in_float and self.opt is not OptLevel.NCHW

    def allowing(self, network: Network, costs: CostModel) -> Network:
        return network.computing(
            self.precision, costs.target, self.small, self.narrow, costs.splits_values
        )

    def plan(self, network: Network, costs: CostModel, fixed_weights: int = 0) -> LayoutPlan:
        """Choose layouts and schemes; warn if there may be a better plan. `fixed_weights` counts
        the bytes of packed weights that no plan changes. Raises UsageError if no plan keeps the
        limit on the weights.
        """
        choosing = self.allowing(network, costs)

        def solve(byte_price: float, *, within: bool = False) -> LayoutPlan:
            priced = replace(costs, byte_price=byte_price, keeps_choices=not within, sparing=within)
            return plan_layouts(choosing, priced, self.opt, self.solver, self.limits)

        limit = self.max_weights
        plan = plan_sparingly(price_kept(costs.target), solve)
        requested = limit is not None
        if not requested:
            limit = most_of_integers(plan, costs, fixed_weights)
        if limit is not None and fixed_weights + plan.weight_bytes > limit:
            # If no plan keeps a limit that the caller did not request, this plan will do.
            with nullcontext() if requested else suppress(UsageError):
                plan = plan_within(limit, fixed_weights, partial(solve, within=True))
        if not plan.search.proven and (requested or not plan.search.relaxed):
            _log.warning("the layout plan is %s", plan.search.verdict)
        return plan

    def lacks_bfloat16(self, network: Network) -> bool:
        """Whether to suggest bfloat16: no precision is requested, and no layer is quantised."""
        has_forms = any(op.forms for op in network.convs) or any(op.forms for op in network.dense)
        return self.precision is Precision.AUTO and self.opt is OptLevel.GLOBAL and not has_forms

    def saved_in_bfloat16(self, network: Network, plain: LayoutPlan, costs: CostModel) -> float:
        """Return the seconds that a plan of float32 would save if bfloat16 were allowed. `network`
        is extracted from the same program as plans of bfloat16 need it.
        """
        halves = replace(self, precision=Precision.BF16, narrow=None)
        limits = replace(self.limits, seconds=min(self.limits.seconds, _HINT_SECONDS))
        choosing = halves.allowing(network, costs)
        price = price_kept(costs.target)
        priced = replace(costs, byte_price=price)
        plan = in_seconds(plan_layouts(choosing, priced, self.opt, "auto", limits), price)

        def seconds(each: LayoutPlan) -> float:
            rest = [op.estimate(costs.target, costs.threads) for op in each.network.dense]
            rest += [op.estimate(costs.target, costs.threads) for op in each.network.products]
            return each.search.cost + math.fsum(rest)

        return max(0.0, seconds(plain) - seconds(plan))

    def levels(self, network: Network, costs: CostModel) -> dict[str, float]:
        """Return the seconds of plans of the lower levels, without a limit on weights."""
        if self.opt is not OptLevel.GLOBAL:
            return {}
        choosing = self.allowing(network, costs)
        price = price_kept(costs.target)
        priced = replace(costs, byte_price=price)
        every = operator_choices(choosing, priced, fold=False)
        seconds = {}
        for opt in (each for each in OptLevel if each is not OptLevel.GLOBAL):
            plan = plan_layouts(choosing, priced, opt, self.solver, self.limits, every)
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
