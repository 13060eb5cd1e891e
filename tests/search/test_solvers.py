"""The solvers against brute force, an independent MILP solver, and one another."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable

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
    random_network,
    resnet,
    ssd,
)
from milp_oracle import milp_optimum

from neocpu.bench.milp import TOLERANCE
from neocpu.search.bounds import lower_bound
from neocpu.search.layout_graph import LayoutEdge, LayoutGraph, LayoutNode
from neocpu.search.limits import SearchLimits
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
    # Without memory for tables there is branch and bound, deepest first.
    assert_optimal(graph, solve(graph, "exact", SearchLimits(bytes=0)), optimum)
    assert_optimal(graph, solve(graph, "dp"), optimum)
    for heuristic in (solve(graph, "pbqp"), solve(graph, "dp", SearchLimits(bytes=200))):
        assert heuristic.cost == graph.cost(heuristic.choices)
        assert heuristic.cost >= optimum * (1 - CLOSE)
        assert heuristic.lower_bound <= optimum * (1 + CLOSE)


@pytest.mark.parametrize("seed", range(300))
def test_networks_against_brute_force(seed: int):
    graph = random_network(np.random.default_rng(seed), operators=2 + seed % 5)
    optimum = brute_force(graph)
    assert_optimal(graph, solve(graph), optimum)
    assert_optimal(graph, solve(graph, "exact", SearchLimits(bytes=0)), optimum)
    assert_optimal(graph, solve(graph, "dp"), optimum)
    assert solve(graph, "pbqp").cost >= optimum * (1 - CLOSE)
    if seed < 60:
        assert milp_optimum(graph) == pytest.approx(optimum, rel=TOLERANCE)


def test_random_networks_have_all_that_networks_have():
    graphs = [random_network(np.random.default_rng(seed), 2 + seed % 5) for seed in range(300)]
    pairs = [[(edge.source, edge.target) for edge in graph.edges] for graph in graphs]
    assert any(len(set(ends)) < len(ends) for ends in pairs)
    assert any(node.name.startswith("hub") for graph in graphs for node in graph.nodes)
    assert any(len(node.choices) == 1 for graph in graphs for node in graph.nodes)
    optima = [brute_force(graph) for graph in graphs[:60]]
    assert 0 < sum(map(math.isinf, optima)) < len(optima) / 2


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
@given(graphs(), st.sampled_from([0, 100, 1000, 1 << 20]))
def test_exact_never_beats_nor_loses_to_brute_force(graph: LayoutGraph, max_bytes: int):
    plan = solve(graph, "exact", SearchLimits(bytes=max_bytes))
    assert_optimal(graph, plan, brute_force(graph))


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
        other = solve(graph, name, SearchLimits(bytes=1 << 20))
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


def too_wide() -> LayoutGraph:
    return random_graph(np.random.default_rng(0), 26, 1.0, max_choices=6)


def ticking(step: float = 1.0) -> Callable[[], float]:
    """A clock that is ``step`` seconds later every time it is looked at."""
    ticks = itertools.count()
    return lambda: step * next(ticks)


def test_too_wide_a_graph_gets_a_plan_and_a_stated_gap():
    graph = too_wide()
    limits = SearchLimits(seconds=200.0, bytes=8000)
    plan = solve(graph, limits=limits, clock=ticking())
    assert plan.solver == "branch-and-bound"
    assert plan.cost == graph.cost(plan.choices)
    assert 0 < plan.gap < 1
    assert not plan.proven
    assert plan.cost <= solve(graph, "pbqp").cost
    above = plan.cost / plan.lower_bound - 1
    assert plan.verdict == (
        f"not proven optimal: at most {100 * above:.2g} % above the best plan; "
        "raise --search-seconds"
    )


def test_more_time_never_makes_it_worse():
    graph = too_wide()
    plans = [
        solve(graph, limits=SearchLimits(seconds, bytes=8000), clock=ticking())
        for seconds in (0.0, 30.0, 300.0)
    ]
    costs, bounds = [plan.cost for plan in plans], [plan.lower_bound for plan in plans]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("max_bytes", [0, 40_000])
def test_branching_ends_with_a_proof(max_bytes: int):
    """With memory for open subproblems, the least bound is split; without, the smallest."""
    graph = random_graph(np.random.default_rng(5), 10, 1.0, max_choices=4)
    plan = solve(graph, "exact", SearchLimits(seconds=0.0, bytes=max_bytes))
    assert plan.solver == "branch-and-bound"
    assert (plan.proven, plan.verdict) == (True, "proven optimal")
    assert plan.cost == pytest.approx(solve(graph).cost, rel=CLOSE)


@pytest.mark.parametrize("max_bytes", [100_000, 1_000_000, 10_000_000])
def test_tables_keep_to_their_memory(max_bytes: int):
    graph = random_graph(np.random.default_rng(1), 18, 0.5, max_choices=5)
    for solver in ("auto", "dp"):
        tracemalloc.start()
        solve(graph, solver, SearchLimits(0.0 if solver == "auto" else math.inf, max_bytes))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < max_bytes + 1_000_000  # the graph's own copies and what Python needs


def test_dp_that_is_out_of_time_still_returns_a_plan():
    graph = resnet((2, 2))
    plan = solve(graph, "dp", SearchLimits(seconds=0.0))
    assert plan.cost >= solve(graph).cost
    assert plan.verdict.endswith("% above the best plan; use --solver auto")


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
    ticks = iter((10.0, 12.5, 13.5))
    assert solve(LayoutGraph((), ()), "pbqp", clock=lambda: next(ticks)).seconds == 2.5
