"""The layout graph of a network: what every plan costs, to the last transform (paper §3.3.2).

Every operator is a node of its own, joins included: a join's layout is free, and each of its inputs
is transformed at its own cost. A feature map that one operator reads is an edge. One that several
read is a node too, whose choice is the set of formats it is made available in: its edge to the
producer costs one transform per layout, however many read it, and its edges to the readers forbid
what is not in the set. What is fixed to NCHW (the network's inputs and outputs, and what
layout-dependent operators touch) is no node but part of its neighbour's cost.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tvm.ir import Var

from neocpu.planning.choice import Choice
from neocpu.planning.costs import CostModel
from neocpu.planning.network import Network
from neocpu.planning.operators.layout_op import Read, Shape4
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.layout import NCHW
from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, LayoutNode

Formats = frozenset[Format]


def wanted(read: Read, choice: Choice) -> Format:
    """Format an operator reads one of its feature maps in, under ``choice``."""
    return choice.out_format if read.in_output_layout else choice.in_format


def build_graph(
    network: Network,
    choices: Sequence[Sequence[Choice]],
    costs: CostModel,
    via_nchw: bool = False,
) -> LayoutGraph:
    """Return the layout graph: a node per operator, in order, then those of shared feature maps.

    With ``via_nchw`` every feature map is stored in NCHW between operators.
    """
    builder = _Builder(choices, costs)
    if via_nchw:
        for index, op in enumerate(network.ops):
            builder.store_in_nchw(index, op.shape, Format(NCHW, op.dtype))
    for feature_map in _feature_maps(network, via_nchw):
        builder.connect(feature_map)
    nodes = (
        LayoutNode(op.name, tuple(map(str, options)), tuple(seconds))
        for op, options, seconds in zip(network.ops, choices, builder.own, strict=True)
    )
    return LayoutGraph((*nodes, *builder.shared), tuple(builder.edges))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FeatureMap:
    """A tensor that operators write or read.

    Attributes
    ----------
    producer : int or None
        Index of the operator that makes it; None if it exists as ``plain``.
    plain : Format
        NCHW, of the elements that the model has there; of what is made of rows, that of these.
    kept : frozenset of Format
        Formats in which it must exist whoever reads it.
    fused : bool
        Whether it stays in registers unless it is transformed.
    readers : dict of int to list of Read
        Every operator that reads it, and in which ways.
    """

    name: str
    shape: Shape4
    producer: int | None
    plain: Format
    kept: Formats
    fused: bool = False
    readers: dict[int, list[Read]] = field(default_factory=dict)


def _feature_maps(network: Network, via_nchw: bool) -> Iterable[_FeatureMap]:
    in_registers, rows = network.in_registers, {} if via_nchw else network.rows
    found: dict[Var, _FeatureMap] = {}
    for index, op in enumerate(network.ops):
        producer = None if via_nchw else index
        plain = Format(NCHW, op.dtype)
        outside = rows.get(op.result, plain)
        kept = frozenset({outside} if op.result in network.nchw_reads else ())
        fused = op.result in in_registers
        found[op.result] = _FeatureMap(
            name=op.name, shape=op.shape, producer=producer, plain=plain, kept=kept, fused=fused
        )
    for index, op in enumerate(network.ops):
        for read in op.reads:
            exists = rows.get(read.var, Format(NCHW, read.dtype))
            given = _FeatureMap(
                name=str(read.var.name),
                shape=read.shape,
                producer=None,
                plain=exists,
                kept=frozenset({exists}),
            )
            found.setdefault(read.var, given).readers.setdefault(index, []).append(read)
    return found.values()


class _Builder:
    """Collects the costs of operators, the edges, and the nodes of shared feature maps."""

    def __init__(self, choices: Sequence[Sequence[Choice]], costs: CostModel) -> None:
        self.own = [[costs.price(choice) for choice in options] for options in choices]
        self.shared: list[LayoutNode] = []
        self.edges: list[LayoutEdge] = []
        self._choices = choices
        # A few transforms occur in thousands of sets of formats.
        self._transform = functools.cache(costs.transform)

    def store_in_nchw(self, producer: int, shape: Shape4, plain: Format) -> None:
        """Charge an operator for a transform of its result."""
        for i, choice in enumerate(self._choices[producer]):
            self.own[producer][i] += self._transform(shape, choice.out_format, plain).seconds

    def connect(self, what: _FeatureMap) -> None:
        """Charge for the transforms between a feature map's producer and its readers."""
        needs = {
            reader: [
                what.kept | {wanted(read, choice) for read in reads}
                for choice in self._choices[reader]
            ]
            for reader, reads in what.readers.items()
        }
        if len(needs) > 1:
            self._share(what, needs)
        elif what.producer is None:
            for reader, sets in needs.items():
                for i, formats in enumerate(sets):
                    self.own[reader][i] += self._copies(what, what.plain, formats)
        elif not needs:
            for i, choice in enumerate(self._choices[what.producer]):
                self.own[what.producer][i] += self._copies(what, choice.out_format, what.kept)
        else:
            ((reader, sets),) = needs.items()
            self._edge(what, what.producer, reader, sets)

    def _share(self, what: _FeatureMap, needs: Mapping[int, Sequence[Formats]]) -> None:
        """Add the node of a feature map with several readers: which formats does it exist in?

        All unions of what each reader may need are its choices, so none is missing, and there are
        at most 2^L for L formats. The node is derived: what its readers chose says which of them is
        made, so that not even a heuristic's plan pays for a layout that nobody reads.
        """
        unions = {what.kept}
        for sets in needs.values():
            unions = {union | formats for union in unions for formats in sets}
        options = sorted(unions, key=lambda union: (len(union), sorted(union)))
        index = len(self._choices) + len(self.shared)
        own = [0.0] * len(options)
        if what.producer is None:
            own = [self._copies(what, what.plain, formats) for formats in options]
        else:
            self._edge(what, what.producer, index, options)
        names = tuple(" and ".join(map(str, sorted(formats))) for formats in options)
        self.shared.append(LayoutNode(f"layouts of {what.name}", names, tuple(own), derived=True))
        for reader, sets in needs.items():
            forbidden = [[0.0 if need <= made else math.inf for need in sets] for made in options]
            self.edges.append(LayoutEdge(index, reader, np.array(forbidden)))

    def _edge(
        self, what: _FeatureMap, producer: int, target: int, targets: Sequence[Formats]
    ) -> None:
        """Add the edge that charges for every layout that ``target`` asks of the producer."""
        sources = [choice.out_format for choice in self._choices[producer]]
        rows = {
            source: [self._copies(what, source, formats) for formats in targets]
            for source in set(sources)
        }
        self.edges.append(LayoutEdge(producer, target, np.array([rows[s] for s in sources])))

    def _copies(self, what: _FeatureMap, source: Format, formats: Formats) -> float:
        """Seconds to make all of ``formats`` from ``source``, each by a transform of its own."""
        made = sorted(formats - {source})
        costs = (self._transform(what.shape, source, to, from_registers=what.fused) for to in made)
        return math.fsum(cost.seconds for cost in costs)
