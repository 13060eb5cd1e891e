"""The mixed-integer program against brute force, and at its limits."""

import math

import numpy as np
import pytest
from milp_oracle import TOLERANCE, solve_milp

from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, LayoutNode

TWO = LayoutNode("n", ("a", "b"), (1.0, 2.0))


def test_nodes_edges_and_parallel_edges():
    edge = LayoutEdge(0, 1, np.array([[3.0, 0.5], [0.0, 4.0]]))
    found = solve_milp(LayoutGraph((TWO, TWO), (edge, edge)))
    # (a, b): 1 + 2 + 2 * 0.5; (b, a): 2 + 1 + 0
    assert found.cost == found.bound == 3.0
    assert found.proven


def test_forbidden_choices_are_not_chosen():
    edge = LayoutEdge(0, 1, np.array([[math.inf, 0.5], [math.inf, 4.0]]))
    assert solve_milp(LayoutGraph((TWO, TWO), (edge,))).cost == 3.5


def test_a_graph_without_a_plan_is_reported():
    edge = LayoutEdge(0, 1, np.full((2, 2), math.inf))
    found = solve_milp(LayoutGraph((TWO, TWO), (edge,)))
    assert (found.cost, found.proven) == (math.inf, True)


def test_nothing_to_choose():
    assert solve_milp(LayoutGraph((), ())).cost == 0.0
    free = LayoutNode("n", ("a",), (0.0,))
    assert solve_milp(LayoutGraph((free,), ())).cost == 0.0


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1.0, 1e6])
def test_costs_of_any_size(scale):
    rng = np.random.default_rng(0)
    nodes = tuple(LayoutNode("n", ("a", "b", "c"), tuple(scale * rng.random(3))) for _ in range(6))
    edges = tuple(
        LayoutEdge(i, j, scale * rng.random((3, 3))) for i in range(6) for j in range(i + 1, 6)
    )
    graph = LayoutGraph(nodes, edges)
    best = min(graph.cost(plan) for plan in np.ndindex(*[3] * 6))
    assert solve_milp(graph).cost == pytest.approx(best, rel=TOLERANCE, abs=0)


def hard() -> LayoutGraph:
    rng = np.random.default_rng(0)
    nodes = tuple(LayoutNode("n", tuple("abcdef"), tuple(rng.random(6))) for _ in range(24))
    edges = tuple(LayoutEdge(i, j, rng.random((6, 6))) for i in range(24) for j in range(i + 1, 24))
    return LayoutGraph(nodes, edges)


def test_a_time_limit_leaves_a_bound():
    found = solve_milp(hard(), seconds=0.2)
    assert not found.proven
    assert found.bound < found.cost
