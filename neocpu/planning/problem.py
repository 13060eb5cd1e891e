"""Build the layout graph of a network and read a plan back from its solution (paper §3.3.2).

Every operator is a node of its own, joins included: a join's layout is free, and each of its inputs
is transformed at its own cost. What is fixed to NCHW (the network's inputs and outputs, and what
layout-dependent operators touch) is no node but part of its neighbour's cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from neocpu.planning.costs import Choice, CostModel
from neocpu.planning.network import ConvOp, LayoutOp, Network, Read, Var
from neocpu.schedules.layout import NCHW, DataLayout
from neocpu.search.layout_graph import LayoutEdge, LayoutGraph, LayoutNode
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
    network: Network, costs: CostModel, opt: OptLevel, solver: Solver = "auto"
) -> LayoutPlan:
    """Choose a layout for every operator and a scheme for every convolution."""
    workloads = {conv.workload for conv in network.convs}
    convs = {workload: costs.conv_choices(workload) for workload in workloads}
    blocks = {c.in_layout.block for options in convs.values() for c in options}
    blocks |= {c.out_layout.block for options in convs.values() for c in options}
    layouts = [DataLayout(block) for block in sorted(blocks | {1})]
    inner = network.in_registers
    every = [
        convs[op.workload] if isinstance(op, ConvOp) else _layout_choices(op, layouts, costs, inner)
        for op in network.ops
    ]
    if opt is OptLevel.GLOBAL:
        return _solve(network, every, costs, opt, solver)
    if opt is OptLevel.NCHW:
        return _solve(network, [_in(c, NCHW) or c for c in every], costs, opt, solver)
    if opt is OptLevel.CONV_LAYOUT:
        fixed = [
            _best_blocked(choices) if isinstance(op, ConvOp) else _in(choices, NCHW)
            for op, choices in zip(network.ops, every, strict=True)
        ]
        return _solve(network, fixed, costs, opt, solver)
    plans = [
        _solve(network, _uniform(network, every, block), costs, opt, solver)
        for block in _blocks(every)
    ]
    return min(plans, key=lambda plan: plan.search.cost)


def _blocks(every: Sequence[Sequence[Choice]]) -> list[int]:
    """All blocks above one that some convolution can write."""
    found = {c.out_layout.block for choices in every for c in choices if c.scheme is not None}
    return sorted(found - {1}) or [1]


def _layout_choices(
    op: LayoutOp, layouts: Sequence[DataLayout], costs: CostModel, in_registers: frozenset[Var]
) -> tuple[Choice, ...]:
    return tuple(
        Choice(layout, layout, costs.memory_bound(op, layout, in_registers))
        for layout in layouts
        if _is_legal(op, layout)
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


def _solve(
    network: Network,
    choices: Sequence[tuple[Choice, ...]],
    costs: CostModel,
    opt: OptLevel,
    solver: Solver,
) -> LayoutPlan:
    via_nchw = opt is OptLevel.CONV_LAYOUT
    graph = build_graph(network, choices, costs, via_nchw)
    solution = solve(graph, solver)
    chosen = tuple(options[i] for options, i in zip(choices, solution.choices, strict=True))
    return LayoutPlan(network, chosen, solution, opt, via_nchw)


def build_graph(
    network: Network,
    choices: Sequence[tuple[Choice, ...]],
    costs: CostModel,
    via_nchw: bool = False,
) -> LayoutGraph:
    """Return the layout graph: a node per operator, an edge per feature map between two.

    With ``via_nchw`` every feature map is stored in NCHW between operators.
    """
    producers = {op.result: index for index, op in enumerate(network.ops)}
    inner = network.in_registers
    own = [[choice.seconds for choice in options] for options in choices]
    edges: list[LayoutEdge] = []
    for index, op in enumerate(network.ops):
        stored = op.result in network.nchw_reads or via_nchw
        for i, choice in enumerate(choices[index]):
            if stored:
                own[index][i] += costs.transform(op.shape, choice.out_layout, NCHW)
        for read in op.reads:
            source = producers.get(read.var)
            if source is None or via_nchw:
                for i, choice in enumerate(choices[index]):
                    own[index][i] += costs.transform(read.shape, NCHW, wanted(read, choice))
            else:
                matrix = _transforms(
                    read, choices[source], choices[index], costs, fused=read.var in inner
                )
                edges.append(LayoutEdge(source, index, matrix))
    nodes = tuple(
        LayoutNode(op.name, tuple(map(str, options)), tuple(seconds))
        for op, options, seconds in zip(network.ops, choices, own, strict=True)
    )
    return LayoutGraph(nodes, tuple(edges))


def wanted(read: Read, choice: Choice) -> DataLayout:
    """Layout an operator reads one of its feature maps in, under ``choice``."""
    return choice.out_layout if read.in_output_layout else choice.in_layout


def _transforms(
    read: Read,
    producer: Sequence[Choice],
    consumer: Sequence[Choice],
    costs: CostModel,
    *,
    fused: bool,
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    pairs = {(p.out_layout, wanted(read, c)): 0.0 for p in producer for c in consumer}
    for source, dest in pairs:
        pairs[source, dest] = costs.transform(read.shape, source, dest)
        if fused and source != dest:  # neither operator was charged for it
            pairs[source, dest] += costs.store_and_load(read.shape, source, dest)
    rows = [[pairs[p.out_layout, wanted(read, c)] for c in consumer] for p in producer]
    return np.array(rows, dtype=np.float64).reshape(len(producer), len(consumer))
