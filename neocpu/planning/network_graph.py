"""The layout graph of a network: the cost of every plan, to the last transform (paper §3.3.2).

Every operator is a node, also elementwise operators and concatenations: their layout is free, and
each of their inputs is transformed at its own cost. A feature map with one reader is an edge. A
feature map with several readers is a node too. Its choice is the set of formats in which it exists:
its edge to the producer costs one transform per format, however many operators read it, and its
edges to the readers forbid formats outside the set. Feature maps that are fixed to NCHW (the inputs
and outputs of the network, and those that layout-dependent operators read or write) are no nodes
but part of their neighbours' costs.
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
from neocpu.schedules.vocabulary.layout import NCHW, Format
from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, LayoutNode

Formats = frozenset[Format]


def wanted(read: Read, choice: Choice) -> Format:
    """Return the format in which an operator reads a feature map under ``choice``."""
    return choice.out_format if read.in_output_layout else choice.in_format


def build_graph(
    network: Network, choices: Sequence[Sequence[Choice]], costs: CostModel, via_nchw: bool = False
) -> LayoutGraph:
    """Return the layout graph: a node per operator, in order, then one per shared feature map.

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
    name: str
    shape: Shape4
    producer: int | None  # index of the operator that makes it; None if it exists as ``plain``
    plain: Format  # NCHW with the model's element type, or the format of rows
    kept: Formats  # formats in which it must exist in any case
    fused: bool = False  # whether it stays in registers unless it is transformed
    readers: dict[int, list[Read]] = field(default_factory=dict)  # by operator


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
            existing = _FeatureMap(
                name=str(read.var.name),
                shape=read.shape,
                producer=None,
                plain=exists,
                kept=frozenset({exists}),
            )
            found.setdefault(read.var, existing).readers.setdefault(index, []).append(read)
    return found.values()


class _Builder:
    def __init__(self, choices: Sequence[Sequence[Choice]], costs: CostModel) -> None:
        self.own = [[costs.price(choice) for choice in options] for options in choices]
        self.shared: list[LayoutNode] = []
        self.edges: list[LayoutEdge] = []
        self._choices = choices
        # The same few transforms occur in thousands of sets of formats.
        self._transform = functools.cache(costs.transform)

    def store_in_nchw(self, producer: int, shape: Shape4, plain: Format) -> None:
        """Charge an operator for a transform of its result."""
        for i, choice in enumerate(self._choices[producer]):
            self.own[producer][i] += self._transform(shape, choice.out_format, plain).seconds

    def connect(self, feature: _FeatureMap) -> None:
        """Charge for the transforms between a feature map's producer and its readers."""
        needs = {
            reader: [
                feature.kept | {wanted(read, choice) for read in reads}
                for choice in self._choices[reader]
            ]
            for reader, reads in feature.readers.items()
        }
        if len(needs) > 1:
            self._share(feature, needs)
        elif feature.producer is None:
            for reader, sets in needs.items():
                for i, formats in enumerate(sets):
                    self.own[reader][i] += self._copies(feature, feature.plain, formats)
        elif not needs:
            for i, choice in enumerate(self._choices[feature.producer]):
                self.own[feature.producer][i] += self._copies(
                    feature, choice.out_format, feature.kept
                )
        else:
            ((reader, sets),) = needs.items()
            self._edge(feature, feature.producer, reader, sets)

    def _share(self, feature: _FeatureMap, needs: Mapping[int, Sequence[Formats]]) -> None:
        """Add the node of a feature map with several readers, whose choice is a set of formats.

        There are at most 2^L unions of what readers need, for L formats. It is derived: not even a
        heuristic's plan pays for a format that nobody reads.
        """
        unions = {feature.kept}
        for sets in needs.values():
            unions = {union | formats for union in unions for formats in sets}
        options = sorted(unions, key=lambda union: (len(union), sorted(union)))
        index = len(self._choices) + len(self.shared)
        own = [0.0] * len(options)
        if feature.producer is None:
            own = [self._copies(feature, feature.plain, formats) for formats in options]
        else:
            self._edge(feature, feature.producer, index, options)
        names = tuple(" and ".join(map(str, sorted(formats))) for formats in options)
        self.shared.append(
            LayoutNode(f"layouts of {feature.name}", names, tuple(own), derived=True)
        )
        for reader, sets in needs.items():
            forbidden = [[0.0 if need <= made else math.inf for need in sets] for made in options]
            self.edges.append(LayoutEdge(index, reader, np.array(forbidden)))

    def _edge(
        self, feature: _FeatureMap, producer: int, target: int, targets: Sequence[Formats]
    ) -> None:
        sources = [choice.out_format for choice in self._choices[producer]]
        rows = {
            source: [self._copies(feature, source, formats) for formats in targets]
            for source in set(sources)
        }
        self.edges.append(LayoutEdge(producer, target, np.array([rows[s] for s in sources])))

    def _copies(self, feature: _FeatureMap, source: Format, formats: Formats) -> float:
        made = sorted(formats - {source})
        costs = (
            self._transform(feature.shape, source, to, from_registers=feature.fused) for to in made
        )
        return math.fsum(cost.seconds for cost in costs)
