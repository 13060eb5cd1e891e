"""Joint plans of one network for several shapes: as fast as separate plans, but with few packings.

Each convolution's weights are packed as its kernel reads them. If plans for two shapes choose
kernels with the same packing, the artifact has the packed weights once. A packing that only one
plan needs has a price for its bytes, which it must save that plan in time. In addition, the bytes
that a plan reads have the price that they have in a separate plan, whoever else reads them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic

import numpy as np

from neocpu.ir.array_digests import ArrayDigests
from neocpu.planning.choice import Choice
from neocpu.planning.costs import CostModel
from neocpu.planning.network import Network
from neocpu.planning.network_graph import build_graph
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.optimisation_levels import LayoutPlan, Offer, OptLevel, operator_choices
from neocpu.planning.weight_limit import in_seconds, price_kept
from neocpu.planning.weights import Packing, packing
from neocpu.schedules.vocabulary.layout import Format
from neocpu.search.solver.joint_plans import JointPlan, Need, SharingGraph, Way, solve_jointly
from neocpu.search.solver.layout_graph import LayoutGraph
from neocpu.search.solver.plan import Plan, SearchLimits, solve


@dataclass(frozen=True, slots=True, eq=False)
class SharedOffer(Generic[Need]):
    """The packings that all plans need, and their prices."""

    needing: Counter[Need]  # the number of operators in all plans that need each packing
    prices: Mapping[Need, float]  # price of each packing in the minimised cost
    byte_price: float  # price of each byte that a plan reads, whoever else reads it

    def of(
        self,
        sharing: SharingGraph[Need],
        choices: Sequence[tuple[Choice, ...]],
        packed: Mapping[int, Sequence[Mapping[Need, Choice]]],
        selected: Sequence[int],
        needs: Mapping[int, Way[Need]],
    ) -> tuple[Offer, tuple[int, ...]]:
        """Return the choices of one of the plans, and those that it selected.

        A packing that others need anyway costs nothing more. `choices` are parallel to those of the
        nodes. `packed` has the packings of each node that has several, for each choice. `selected`
        and `needs` are the plan's choices and packings.
        """
        every, paid, found = [*choices], {}, [*selected]
        costs: dict[int, list[float]] = {}
        rows: dict[int, list[int]] = {}
        for node, some in packed.items():
            own = needs[node].need
            ways = [(i, way) for i, each in enumerate(sharing.ways[node]) for way in each]
            rows[node] = [i for i, _ in ways]
            paid[node] = [
                0.0
                if self.needing[way.need] > (way.need == own)
                else self.prices[way.need] / sharing.weight
                for _, way in ways
            ]
            costs[node] = [way.cost + more for (_, way), more in zip(ways, paid[node], strict=True)]
            every[node] = tuple(some[i][way.need] for i, way in ways)
            found[node] = ways.index((selected[node], needs[node]))
        graph = _spread(sharing.graph, every, rows, costs)
        return Offer(every, graph, self.byte_price, paid), tuple(found)


def _spread(
    graph: LayoutGraph,
    choices: Sequence[tuple[Choice, ...]],
    rows: Mapping[int, Sequence[int]],
    costs: Mapping[int, Sequence[float]],
) -> LayoutGraph:
    """Return a graph with a choice per packing, from the choices ``rows``, of these ``costs``."""
    nodes = tuple(
        replace(node, choices=tuple(map(str, choices[i])), costs=tuple(costs[i]))
        if i in rows
        else node
        for i, node in enumerate(graph.nodes)
    )
    edges = []
    for edge in graph.edges:
        source, target = (
            rows.get(end, range(len(graph.nodes[end].choices)))
            for end in (edge.source, edge.target)
        )
        edges.append(replace(edge, costs=edge.costs[np.ix_(source, target)]))
    return LayoutGraph(nodes, tuple(edges))


PRICE: Final = 0.2  # share of its time that a plan must save to have weights packed for it alone
PACKING_PRICE: Final = 0.0003
"""The same share if the file has weights in one packing and others are made at load time. That
takes some tenths of a second, and memory. Bytes that a run reads have their price anyway: at
this price the plans of ResNet-50 and YOLOv3-tiny are those of each shape alone. At thirty times the
price, one plan of YOLOv3-tiny takes 1.04 times as long."""
PROHIBITIVE: Final = 1e4  # a multiple of `PRICE` at which plans have the fewest bytes
HALVINGS: Final = 5  # of the range of prices, to find the lowest price that keeps a limit


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """The digest of a convolution's weights, and their packing."""

    digest: bytes
    packing: Packing


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """A network's graph, in which a convolution has one choice for each pair of formats."""

    network: Network
    costs: CostModel
    graph: LayoutGraph
    choices: tuple[tuple[Choice, ...], ...]  # parallel to those of its node
    packed: Mapping[int, Sequence[Mapping[PackedWeights, Choice]]]  # for each choice of the node

    def sharing(self, weight: float) -> SharingGraph[PackedWeights]:
        price = self.costs.price
        ways = {
            node: tuple(
                # A choice's own price replaces that of the best choice between its formats.
                tuple(Way(own - price(best) + price(choice), need) for need, choice in some.items())
                for own, best, some in zip(
                    self.graph.nodes[node].costs, self.choices[node], packed, strict=True
                )
            )
            for node, packed in self.packed.items()
        }
        return SharingGraph(self.graph, ways, weight)


def plan_jointly(
    networks: Sequence[Network],
    costs: CostModel,
    digests: Sequence[ArrayDigests],
    limits: SearchLimits | None = None,
    most_bytes: float = math.inf,
    packs_at_load: bool = False,
) -> tuple[LayoutPlan, ...]:
    """Choose layouts and schemes for all shapes of a network. Convolutions with the same weights
    share their packing. The price of bytes, which is zero in ``costs``, rises until packed weights
    keep to ``most_bytes``, unless even the smallest plans take more. With `packs_at_load` weights
    are stored in one packing. Each plan has the gap of the joint plan.
    """
    assert costs.byte_price == 0.0
    read_price = price_kept(costs.target)
    offering = replace(costs, by_packing=True, byte_price=read_price)
    found = [_ways_of(one, offering, own) for one, own in zip(networks, digests, strict=True)]
    alone = [solve(ways.graph, "auto", limits).cost for ways in found]
    # A network without choices has a cost of zero.
    graphs = [ways.sharing(1 / (cost or 1.0)) for ways, cost in zip(found, alone, strict=True)]
    sizes = _sizes(found)

    def solved(price: float) -> tuple[JointPlan[PackedWeights], bool]:
        joint = solve_jointly(graphs, _prices(sizes, price), limits)
        needs = {way.need for ways in joint.ways for way in ways.values()}
        return joint, sum(sizes[need] for need in needs) <= most_bytes

    price = PACKING_PRICE if packs_at_load else PRICE
    joint, fits = solved(price)
    if not fits:
        low, price = price, PROHIBITIVE * PRICE
        joint, fits = solved(price)
        for _ in range(HALVINGS if fits else 0):
            middle = math.sqrt(low * price)
            other, fits = solved(middle)
            low, price, joint = (low, middle, other) if fits else (middle, price, joint)
    needing = Counter(way.need for needs in joint.ways for way in needs.values())
    shared = SharedOffer(needing, _prices(sizes, price), read_price)
    return tuple(
        _plan_of(ways, graph, replace(plan, gap=joint.gap), needs, shared)
        for ways, graph, plan, needs in zip(found, graphs, joint.plans, joint.ways, strict=True)
    )


def _plan_of(
    ways: _Ways,
    graph: SharingGraph[PackedWeights],
    plan: Plan,
    needs: Mapping[int, Way[PackedWeights]],
    shared: SharedOffer[PackedWeights],
) -> LayoutPlan:
    offer, selected = shared.of(graph, ways.choices, ways.packed, plan.choices, needs)
    # The choices of shared feature maps come after those of the operators.
    choices = tuple(options[i] for options, i in zip(offer.choices, selected, strict=False))
    search = replace(plan, choices=selected, lower_bound=plan.cost * (1 - plan.gap))
    found = LayoutPlan(
        network=ways.network, choices=choices, search=search, opt=OptLevel.GLOBAL, offer=offer
    )
    return in_seconds(found, offer.byte_price)


def most_of_convolutions(
    networks: Sequence[Network], costs: CostModel, max_weights: int | None
) -> float:
    """Return the bytes of ``max_weights`` that dense layers leave; infinity without a limit."""
    if max_weights is None:
        return math.inf
    target, threads = costs.target, costs.threads
    each = (sum(op.packed_bytes(target, threads) for op in one.dense) for one in networks)
    return max_weights - max(each)


def _ways_of(network: Network, costs: CostModel, digests: ArrayDigests) -> _Ways:
    every = operator_choices(network, costs)
    packed: dict[int, list[dict[PackedWeights, Choice]]] = {}
    choices: list[tuple[Choice, ...]] = []
    for index, (op, options) in enumerate(zip(network.ops, every, strict=True)):
        if not isinstance(op, ConvOp):
            choices.append(options)
            continue
        digest = digests.of(op.weights)
        by_formats: dict[tuple[Format, Format], dict[PackedWeights, Choice]] = {}
        for choice in options:  # best first
            some = by_formats.setdefault((choice.in_format, choice.out_format), {})
            some.setdefault(_packed(op, choice, digest), choice)
        packed[index] = [*by_formats.values()]
        choices.append(tuple(next(iter(some.values())) for some in packed[index]))
    graph = build_graph(network, choices, costs)
    return _Ways(network, costs, graph, tuple(choices), packed)


def _packed(op: ConvOp, choice: Choice, digest: bytes) -> PackedWeights:
    assert choice.scheme is not None
    workload = next(way for way, _ in op.ways if way.numerics.data == choice.in_format.dtype)
    return PackedWeights(digest, packing(workload, choice.scheme))


def _sizes(found: Sequence[_Ways]) -> dict[PackedWeights, int]:
    every = (some for ways in found for packed in ways.packed.values() for some in packed)
    return {need: choice.weight_bytes for some in every for need, choice in some.items()}


def _prices(sizes: Mapping[PackedWeights, int], price: float) -> dict[PackedWeights, float]:
    least: dict[bytes, int] = {}
    for need, size in sizes.items():
        least[need.digest] = min(size, least.get(need.digest, size))
    whole = sum(least.values()) or 1
    return {need: price * size / whole for need, size in sizes.items()}
