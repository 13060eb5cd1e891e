"""The layout graph: validation, cost, order, JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from layout_graphs import inception, random_graph

from neocpu.search.layout_graph import LayoutEdge, LayoutGraph, LayoutNode

A = LayoutNode("a", ("x", "y"), (1.0, 2.0))
B = LayoutNode("b", ("x", "y", "z"), (0.5, math.inf, 0.25))
TO_B = LayoutEdge(0, 1, np.array([[0.0, 1.0, 4.0], [2.0, 0.0, math.inf]]))


def test_cost_adds_nodes_and_edges_parallel_ones_too():
    assert LayoutGraph((A, B), (TO_B,)).cost((0, 2)) == 1.0 + 0.25 + 4.0
    assert LayoutGraph((A, B), (TO_B, TO_B)).cost((0, 2)) == 1.0 + 0.25 + 8.0
    assert LayoutGraph((A, B), (TO_B,)).cost((1, 2)) == math.inf


def test_json_round_trip_is_strict_json():
    graph = LayoutGraph((A, B), (TO_B,))
    text = json.dumps(graph.to_json(), allow_nan=False)
    assert LayoutGraph.from_json(json.loads(text)) == graph
    big = random_graph(np.random.default_rng(1), 12, 0.5, forbidden=0.2)
    assert LayoutGraph.from_json(json.loads(json.dumps(big.to_json()))) == big


@pytest.mark.parametrize(
    "make",
    [
        lambda: LayoutNode("n", (), ()),
        lambda: LayoutNode("n", ("x",), (1.0, 2.0)),
        lambda: LayoutNode("n", ("x",), (math.nan,)),
        lambda: LayoutNode("n", ("x",), (-math.inf,)),
        lambda: LayoutGraph((A, B), (LayoutEdge(0, 1, np.zeros((3, 2))),)),
        lambda: LayoutGraph((A, B), (LayoutEdge(0, 1, np.full((2, 3), math.nan)),)),
        lambda: LayoutGraph((A,), (LayoutEdge(0, 0, np.zeros((2, 2))),)),
    ],
)
def test_malformed_graphs_are_asserts(make):
    with pytest.raises(AssertionError):
        make()


def test_topological_order_puts_producers_first():
    graph = inception(3)
    order = graph.topological_order()
    assert sorted(order) == list(range(len(graph.nodes)))
    at = {node: position for position, node in enumerate(order)}
    assert all(at[e.source] < at[e.target] for e in graph.edges)


def test_topological_order_of_a_cycle_still_visits_every_node():
    edge = LayoutEdge(0, 1, np.zeros((2, 2)))
    back = LayoutEdge(1, 0, np.zeros((2, 2)))
    assert sorted(LayoutGraph((A, A), (edge, back)).topological_order()) == [0, 1]
