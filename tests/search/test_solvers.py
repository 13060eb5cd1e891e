"""The solvers against brute force, an independent MILP solver, and one another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_graphs import (
    brute_force,
    chain,
    densenet,
    densenet_flat,
    inception,
    random_graph,
    resnet,
    ssd,
)
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from neocpu.search.bounds import lower_bound
from neocpu.search.layout_graph import LayoutEdge, LayoutGraph, LayoutNode
from neocpu.search.plan import solve
from neocpu.search.reductions import Problem

CLOSE = 1e-9


def assert_optimal(graph: LayoutGraph, plan, optimum: float) -> None:
    assert plan.cost == graph.cost(plan.choices)
    assert plan.cost == pytest.approx(optimum, rel=CLOSE)
    assert plan.lower_bound == pytest.approx(optimum, rel=CLOSE)
    assert plan.gap == 0.0


@pytest.mark.parametrize("seed", range(200))
def test_every_solver_against_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    graph = random_graph(
        rng,
        nodes=int(rng.integers(1, 8)),
        density=rng.random(),
        forbidden=float(rng.choice([0.0, 0.2, 0.5])),
        integer=bool(rng.random() < 0.4),
    )
    optimum = brute_force(graph)
    assert_optimal(graph, solve(graph), optimum)
    # Tables of four entries force branch and bound.
    assert_optimal(graph, solve(graph, "exact", max_table=4), optimum)
    assert_optimal(graph, solve(graph, "dp"), optimum)
    for heuristic in (solve(graph, "pbqp"), solve(graph, "dp", max_table=8)):
        assert heuristic.cost == graph.cost(heuristic.choices)
        assert heuristic.cost >= optimum * (1 - CLOSE)
        assert heuristic.lower_bound <= optimum * (1 + CLOSE)


@st.composite
def graphs(draw: st.DrawFn) -> LayoutGraph:
    cost = st.sampled_from([0.0, 1.0, 2.5, 1e-3, 7.0, math.inf])
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    nodes = tuple(
        LayoutNode(str(i), tuple("abc"[:k]), tuple(draw(st.lists(cost, min_size=k, max_size=k))))
        for i, k in enumerate(sizes)
    )
    ends = st.tuples(st.integers(0, len(sizes) - 1), st.integers(0, len(sizes) - 1))
    edges = []
    for u, v in draw(st.lists(ends, max_size=10)):
        if u != v:  # both directions and parallel edges are fair
            values = draw(
                st.lists(cost, min_size=sizes[u] * sizes[v], max_size=sizes[u] * sizes[v])
            )
            edges.append(LayoutEdge(u, v, np.array(values).reshape(sizes[u], sizes[v])))
    return LayoutGraph(nodes, tuple(edges))


@settings(max_examples=200, deadline=None)
@given(graphs(), st.sampled_from([1, 4, 1 << 16]))
def test_exact_never_beats_nor_loses_to_brute_force(graph: LayoutGraph, max_table: int):
    assert_optimal(graph, solve(graph, "exact", max_table=max_table), brute_force(graph))


@pytest.mark.parametrize("seed", range(40))
def test_reductions_keep_the_optimum_and_bounds_hold(seed: int):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 7, 0.8, forbidden=0.1 * (seed % 2))
    optimum = brute_force(graph)
    problem = Problem(graph)
    assert lower_bound(problem).value <= optimum * (1 + CLOSE)
    problem.reduce_fully()
    bound = lower_bound(problem).value
    assert -CLOSE <= bound <= optimum * (1 + CLOSE)


def test_the_bound_is_exact_on_a_tree():
    graph = chain(12)
    assert lower_bound(Problem(graph)).value == pytest.approx(solve(graph).cost, rel=CLOSE)


def milp_optimum(graph: LayoutGraph) -> float:
    """The local-polytope MILP: one binary per choice and per pair of choices of an edge."""
    sizes = [len(n.choices) for n in graph.nodes]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    costs = [c for node in graph.nodes for c in node.costs]
    rows: list[tuple[dict[int, float], float]] = [
        ({int(starts[u]) + i: 1.0 for i in range(k)}, 1.0) for u, k in enumerate(sizes)
    ]
    for edge in graph.edges:
        at = len(costs)
        p, q = edge.costs.shape
        costs += edge.costs.ravel().tolist()
        for i in range(p):
            row = {at + i * q + j: 1.0 for j in range(q)}
            rows.append((row | {int(starts[edge.source]) + i: -1.0}, 0.0))
        for j in range(q):
            row = {at + i * q + j: 1.0 for i in range(p)}
            rows.append((row | {int(starts[edge.target]) + j: -1.0}, 0.0))
    matrix = lil_array((len(rows), len(costs)))
    for r, (row, _) in enumerate(rows):
        for column, value in row.items():
            matrix[r, column] = value
    sides = [side for _, side in rows]
    upper = np.isfinite(costs).astype(float)
    integral = np.arange(len(costs)) < starts[-1]
    scale = 1e4  # HiGHS works to absolute tolerances
    result = milp(
        np.where(upper > 0, costs, 0.0) * scale,
        constraints=LinearConstraint(matrix.tocsr(), sides, sides),
        bounds=Bounds(0.0, upper),
        integrality=integral,
        options={"mip_rel_gap": 0.0},
    )
    assert result.success, result.message
    return float(result.fun) / scale


@pytest.mark.parametrize(
    "graph",
    [
        resnet((2, 2)),
        densenet((3, 3)),
        inception(2),
        densenet_flat(4),
        random_graph(np.random.default_rng(5), 14, 0.5, max_choices=5),
        random_graph(np.random.default_rng(6), 12, 0.6, max_choices=4, forbidden=0.1),
    ],
    ids=["resnet", "densenet", "inception", "dense-block", "random", "forbidden"],
)
def test_exact_against_highs(graph: LayoutGraph):
    plan = solve(graph)
    assert plan.gap == 0.0
    assert plan.cost == pytest.approx(milp_optimum(graph), rel=1e-6)


@pytest.mark.parametrize("make", [resnet, densenet, inception, ssd])
def test_networks_are_solved_exactly_and_no_heuristic_does_better(make):
    graph = make()
    plan = solve(graph)
    assert plan.gap == 0.0
    assert plan.solver == "exact"
    assert plan.variables == sum(len(n.choices) > 1 for n in graph.nodes)
    for name in ("pbqp", "dp"):
        other = solve(graph, name, max_table=1 << 16)
        assert other.solver == name
        assert plan.cost <= other.cost * (1 + CLOSE)
        assert other.lower_bound <= plan.cost * (1 + CLOSE)


@pytest.mark.parametrize(
    "graph", [chain(40), resnet(), densenet()], ids=["chain", "resnet", "dense"]
)
def test_dp_is_exact_where_the_frontier_is_narrow(graph: LayoutGraph):
    plan = solve(graph, "dp")
    assert plan.gap == 0.0
    assert plan.cost == pytest.approx(solve(graph).cost, rel=CLOSE)


def test_too_wide_a_graph_gets_a_plan_and_a_stated_gap():
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 26, 1.0, max_choices=6)
    plan = solve(graph, max_table=1000)
    assert plan.solver == "branch-and-bound"
    assert plan.cost == graph.cost(plan.choices)
    assert 0 < plan.gap < 1
    assert plan.cost <= solve(graph, "pbqp").cost


def test_pbqp_loses_where_greed_does():
    # The exact solver must be able to win, or the comparison above would prove nothing.
    losses = 0
    for seed in range(20):
        graph = random_graph(np.random.default_rng(seed), 9, 0.8)
        losses += solve(graph, "pbqp").cost > solve(graph).cost * (1 + CLOSE)
    assert losses > 0


def test_a_dead_end_everywhere_is_said_not_hidden():
    node = LayoutNode("n", ("a", "b"), (0.0, 0.0))
    graph = LayoutGraph((node, node), (LayoutEdge(0, 1, np.full((2, 2), math.inf)),))
    plan = solve(graph)
    assert plan.cost == math.inf
    assert len(plan.choices) == 2


def test_empty_graph_and_single_choices():
    assert solve(LayoutGraph((), ())).choices == ()
    one = LayoutNode("constant", ("NCHW",), (3.0,))
    plan = solve(LayoutGraph((one, one), (LayoutEdge(0, 1, np.array([[2.0]])),)))
    assert (plan.choices, plan.cost, plan.gap, plan.variables) == ((0, 0), 8.0, 0.0, 0)


def test_the_clock_is_the_callers():
    ticks = iter((10.0, 12.5))
    assert solve(LayoutGraph((), ()), clock=lambda: next(ticks)).seconds == 2.5
