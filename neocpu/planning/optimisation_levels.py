"""The levels of layout optimisation: the choices of each level, and its plan."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from neocpu.foundation.option_words import Solver
from neocpu.planning.choice import Choice
from neocpu.planning.convolution_choices import convolution_choices
from neocpu.planning.costs import CostModel
from neocpu.planning.network import Network
from neocpu.planning.network_graph import build_graph
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.layout_op import Around, LayoutOp
from neocpu.planning.quantised.grids import STORED
from neocpu.schedules.vocabulary.accuracy import SHORT_SUMS
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout, Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.plan import Plan, SearchLimits, solve


class OptLevel(StrEnum):
    """The levels of the paper's ablation (Table 3), each on top of the one before."""

    NCHW = "nchw"
    CONV_LAYOUT = "conv-layout"
    UNIFORM = "uniform"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """The choices that a plan was selected from."""

    choices: Sequence[tuple[Choice, ...]]  # choices of each operator, parallel to those of its node
    graph: LayoutGraph  # costs of all combinations of choices
    byte_price: float
    # The additional price in seconds of each choice, for operators with weights that plans for
    # several shapes share: the price of a packing that no other operator and no other plan needs.
    packings: Mapping[int, Sequence[float]] = field(default_factory=dict)

    def paid(self, node: int) -> Sequence[float]:
        choices = self.choices[node]
        more = self.packings.get(node) or [0.0] * len(choices)
        return [self.byte_price * c.weight_bytes + m for c, m in zip(choices, more, strict=True)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayoutPlan:
    """One choice per operator, and how good these choices are."""

    network: Network
    choices: tuple[Choice, ...]  # choices, parallel to ``network.ops``
    search: Plan  # the solver's result: cost, lower bound, gap, seconds
    opt: OptLevel
    via_nchw: bool = False  # level ``conv-layout``
    offer: Offer | None = None  # choices that it was selected from

    @property
    def weight_bytes(self) -> int:
        """The bytes of packed weights, without those that no plan changes."""
        return sum(choice.weight_bytes for choice in self.choices)


def plan_layouts(
    network: Network,
    costs: CostModel,
    opt: OptLevel,
    solver: Solver = "auto",
    limits: SearchLimits | None = None,
    among: Sequence[tuple[Choice, ...]] | None = None,
) -> LayoutPlan:
    """Choose layouts and schemes; `among`: the result of `operator_choices`, or None to ask it."""
    if among is None:
        among = operator_choices(network, costs, fold=opt is OptLevel.GLOBAL)

    def plan(choices: Sequence[tuple[Choice, ...]]) -> LayoutPlan:
        via_nchw = opt is OptLevel.CONV_LAYOUT
        graph = build_graph(network, choices, costs, via_nchw)
        found = solve(graph, solver, limits)
        # The choices of shared feature maps come last; they follow from those of the operators.
        selected = tuple(options[i] for options, i in zip(choices, found.choices, strict=False))
        offer = Offer(choices, graph, costs.byte_price)
        return LayoutPlan(
            network=network, choices=selected, search=found, opt=opt, via_nchw=via_nchw, offer=offer
        )

    if opt is OptLevel.GLOBAL:
        return plan(among)
    if opt is OptLevel.NCHW:
        return plan([_in(c, NCHW) or c for c in among])
    if opt is OptLevel.CONV_LAYOUT:
        return plan(
            [
                _best_blocked(choices, costs) if isinstance(op, ConvOp) else _in(choices, NCHW)
                for op, choices in zip(network.ops, among, strict=True)
            ]
        )
    plans = [plan(_uniform(network, among, block)) for block in _blocks(among)]
    return min(plans, key=lambda one: one.search.cost)


def operator_choices(
    network: Network, costs: CostModel, *, fold: bool = True
) -> list[tuple[Choice, ...]]:
    """Return all ways to run each operator, in order; `fold`: with layout transforms folded."""
    convs: dict[_ConvKind, tuple[Choice, ...]] = {}
    rows = frozenset(network.rows.values() if fold else ())
    for kind in {kind for conv in network.convs for kind in conv.ways}:
        workload, finite = kind
        admitted = costs if finite else replace(costs, admission=SHORT_SUMS)
        convs[kind] = convolution_choices(workload, admitted, fold=fold, rows=rows)
    blocks = {c.in_format.layout.block for options in convs.values() for c in options}
    blocks |= {c.out_format.layout.block for options in convs.values() for c in options}
    layouts = [DataLayout(block) for block in sorted((blocks | {1}) - _whole(rows, costs.target))]
    inner = network.in_registers
    around = functools.cache(lambda form: Around(inner, network.copied_parts(form)))

    def own_rows(op: LayoutOp) -> list[DataLayout]:
        whole = DataLayout(op.shape[1])
        fits = isinstance(op, ElementwiseOp) and Format(whole, op.dtype) in rows
        return [whole] if fits and whole not in layouts else []

    def memory_bound(op: LayoutOp) -> tuple[Choice, ...]:
        legal = [
            (Format(layout, read), Format(layout, written))
            for read, written in op.dtypes
            for layout in (*layouts, *own_rows(op))
            if _is_legal(op, layout)
        ]
        legal += [
            forms
            for forms in op.between
            if forms[1].layout in layouts
            and _is_legal(op, forms[1].layout)
            # Nothing fuses with such a kernel: values in registers would have to be stored for it.
            and inner.isdisjoint({op.result, *(read.var for read in op.reads)})
        ]
        found = [op.cost(form, costs, around(form)) for _, form in legal]
        return tuple(
            Choice(
                in_format=in_format,
                out_format=out_format,
                seconds=cost.seconds,
                source=cost.source,
                weight_bytes=op.constant_bytes(out_format, costs.target),
            )
            for (in_format, out_format), cost in zip(legal, found, strict=True)
        )

    def computing(conv: ConvOp) -> tuple[Choice, ...]:
        every = [choice for kind in conv.ways for choice in convs[kind]]
        if conv.rounds:  # storing integers costs as much as storing float32
            of_float = convs[conv.workload, conv.finite_weights]
            stored = ((choice, Format(choice.out_format.layout, STORED)) for choice in of_float)
            every += (replace(choice, out_format=out) for choice, out in stored)
        return tuple(sorted(every, key=costs.price))

    return [computing(op) if isinstance(op, ConvOp) else memory_bound(op) for op in network.ops]


def _whole(rows: Set[Format], target: CpuTarget) -> set[int]:
    """Return the blocks of rows that are too long to be offered to all operators."""
    return {form.layout.block for form in rows if form.layout.block > 4 * target.lanes(form.dtype)}


# A workload, and whether its weights are finite. Winograd's algorithm adds up weights with both
# signs, which makes NaN of an infinite weight; schemes that strict accuracy admits keep infinities.
_ConvKind: TypeAlias = tuple[Conv2dWorkload, bool]


def _blocks(every: Sequence[Sequence[Choice]]) -> list[int]:
    found = {
        c.out_format.layout.block for choices in every for c in choices if c.scheme is not None
    }
    return sorted(found - {1}) or [1]


def _is_legal(op: LayoutOp, layout: DataLayout) -> bool:
    # A layout that is more than half padding is never worth it.
    return layout.block == 1 or layout.block < 2 * op.shape[1]


def _in(choices: Sequence[Choice], layout: DataLayout) -> tuple[Choice, ...]:
    return tuple(c for c in choices if c.in_format.layout == c.out_format.layout == layout)


def _best_blocked(choices: Sequence[Choice], costs: CostModel) -> tuple[Choice, ...]:
    """Return the fastest kernel that writes a blocked layout, whatever its neighbours cost."""
    blocked = [c for c in choices if c.out_format.layout.block > 1] or choices
    return (min(blocked, key=costs.price),)


def _uniform(
    network: Network, every: Sequence[tuple[Choice, ...]], block: int
) -> list[tuple[Choice, ...]]:
    """Restrict operators to one block, or to NCHW; convolutions of images only write the block."""
    layout = DataLayout(block)
    restricted = []
    for op, choices in zip(network.ops, every, strict=True):
        kept = _in(choices, layout)
        if not kept and isinstance(op, ConvOp):
            kept = tuple(c for c in choices if c.out_format.layout == layout)
        restricted.append(kept or _in(choices, NCHW) or choices)
    return restricted
