"""The layout graph: validation, cost, order, derived nodes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from layout_graphs import inception

from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, LayoutNode

A = LayoutNode("a", ("x", "y"), (1.0, 2.0))
B = LayoutNode("b", ("x", "y", "z"), (0.5, math.inf, 0.25))
TO_B = LayoutEdge(0, 1, np.array([[0.0, 1.0, 4.0], [2.0, 0.0, math.inf]]))


def test_cost_adds_nodes_and_edges_parallel_ones_too():
    assert LayoutGraph((A, B), (TO_B,)).cost((0, 2)) == 1.0 + 0.25 + 4.0
    assert LayoutGraph((A, B), (TO_B, TO_B)).cost((0, 2)) == 1.0 + 0.25 + 8.0
    assert LayoutGraph((A, B), (TO_B,)).cost((1, 2)) == math.inf


def test_derived_nodes_take_the_best_choice_given_their_neighbours():
    hub = replace(B, costs=(0.5, 0.0, 0.0), derived=True)
    from_hub = LayoutEdge(1, 2, np.array([[1.0, 0.0], [0.0, math.inf], [5.0, 0.0]]))
    graph = LayoutGraph((A, hub, A), (TO_B, from_hub))
    for plan in np.ndindex(2, 3, 2):
        found = graph.with_derived(plan)
        assert (found[0], found[2]) == (plan[0], plan[2])
        assert graph.cost(found) == min(graph.cost((plan[0], c, plan[2])) for c in range(3))
    assert LayoutGraph((A, B, A), (TO_B, from_hub)).with_derived((0, 2, 1)) == (0, 2, 1)


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
        lambda: LayoutGraph((replace(A, derived=True), replace(B, derived=True)), (TO_B,)),
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
