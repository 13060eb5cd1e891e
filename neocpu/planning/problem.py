"""The levels of layout optimisation: what each may choose from, and the plan it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from neocpu.planning.costs import Choice, CostModel
from neocpu.planning.folds import with_folds
from neocpu.planning.graph import build_graph
from neocpu.planning.network import ConvOp, LayoutOp, Network, Var
from neocpu.schedules.layout import NCHW, DataLayout
from neocpu.search.limits import SearchLimits
from neocpu.search.plan import Plan, Solver, solve


class OptLevel(StrEnum):
    """The paper's ablation (Table 3), each level on top of the one before."""

    NCHW = "nchw"
    CONV_LAYOUT = "conv-layout"
    UNIFORM = "uniform"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, eq=False)
class LayoutPlan:
    """What was decided: one choice per operator, and how good that is.

    Attributes
    ----------
    choices : tuple of Choice
        Parallel to ``network.ops``.
    search : Plan
        The solver's own account: cost, lower bound, gap, seconds.
    via_nchw : bool
        Whether every convolution's result goes back to NCHW (level ``conv-layout``).
    """

    network: Network
    choices: tuple[Choice, ...]
    search: Plan
    opt: OptLevel
    via_nchw: bool = False


def plan_layouts(
    network: Network,
    costs: CostModel,
    opt: OptLevel,
    solver: Solver = "auto",
    limits: SearchLimits | None = None,
) -> LayoutPlan:
    """Choose a layout for every operator and a scheme for every convolution."""

    def plan(choices: Sequence[tuple[Choice, ...]]) -> LayoutPlan:
        via_nchw = opt is OptLevel.CONV_LAYOUT
        graph = build_graph(network, choices, costs, via_nchw)
        found = solve(graph, solver, limits)
        # Behind the operators' come the choices of shared feature maps, which follow from theirs.
        picked = tuple(options[i] for options, i in zip(choices, found.choices, strict=False))
        return LayoutPlan(network, picked, found, opt, via_nchw)

    every = operator_choices(network, costs, fold=opt is OptLevel.GLOBAL)
    if opt is OptLevel.GLOBAL:
        return plan(every)
    if opt is OptLevel.NCHW:
        return plan([_in(c, NCHW) or c for c in every])
    if opt is OptLevel.CONV_LAYOUT:
        return plan(
            [
                _best_blocked(choices) if isinstance(op, ConvOp) else _in(choices, NCHW)
                for op, choices in zip(network.ops, every, strict=True)
            ]
        )
    plans = [plan(_uniform(network, every, block)) for block in _blocks(every)]
    return min(plans, key=lambda one: one.search.cost)


def operator_choices(
    network: Network, costs: CostModel, *, fold: bool = True
) -> list[tuple[Choice, ...]]:
    """Return all ways to run each operator of ``network``, in order.

    With ``fold`` convolutions may take layout transforms into their loads and stores.
    """
    workloads = {conv.workload for conv in network.convs}
    convs = {workload: costs.conv_choices(workload) for workload in workloads}
    if fold:
        convs = {w: with_folds(choices, w, costs) for w, choices in convs.items()}
    blocks = {c.in_layout.block for options in convs.values() for c in options}
    blocks |= {c.out_layout.block for options in convs.values() for c in options}
    layouts = [DataLayout(block) for block in sorted(blocks | {1})]
    inner = network.in_registers
    return [
        convs[op.workload] if isinstance(op, ConvOp) else _layout_choices(op, layouts, costs, inner)
        for op in network.ops
    ]


def _blocks(every: Sequence[Sequence[Choice]]) -> list[int]:
    """All blocks above one that some convolution can write."""
    found = {c.out_layout.block for choices in every for c in choices if c.scheme is not None}
    return sorted(found - {1}) or [1]


def _layout_choices(
    op: LayoutOp, layouts: Sequence[DataLayout], costs: CostModel, in_registers: frozenset[Var]
) -> tuple[Choice, ...]:
    legal = [layout for layout in layouts if _is_legal(op, layout)]
    found = [costs.memory_bound(op, layout, in_registers) for layout in legal]
    return tuple(
        Choice(layout, layout, cost.seconds, cost.source)
        for layout, cost in zip(legal, found, strict=True)
    )


def _is_legal(op: LayoutOp, layout: DataLayout) -> bool:
    # More than half padding is never worth it.
    return layout.block == 1 or layout.block < 2 * op.shape[1]


def _in(choices: Sequence[Choice], layout: DataLayout) -> tuple[Choice, ...]:
    """Return the choices that both read and write ``layout``."""
    return tuple(c for c in choices if c.in_layout == c.out_layout == layout)


def _best_blocked(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """The fastest kernel that writes a blocked layout, whatever it does to its neighbours."""
    blocked = [c for c in choices if c.out_layout.block > 1] or choices
    return (min(blocked, key=lambda choice: choice.seconds),)


def _uniform(
    network: Network, every: Sequence[tuple[Choice, ...]], block: int
) -> list[tuple[Choice, ...]]:
    """Restrict every operator to one block; NCHW where the block is illegal or the input RGB."""
    layout = DataLayout(block)
    restricted = []
    for op, choices in zip(network.ops, every, strict=True):
        kept = _in(choices, layout)
        if not kept and isinstance(op, ConvOp):
            kept = tuple(c for c in choices if c.out_layout == layout)
        restricted.append(kept or _in(choices, NCHW) or choices)
    return restricted
