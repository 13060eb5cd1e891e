"""The solvers against brute force, an independent MILP solver, and one another."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from functools import partial

import needs
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
from milp_oracle import TOLERANCE, milp_optimum

from neocpu.search.solver.elimination import best_order, eliminate
from neocpu.search.solver.exact import lower_bound
from neocpu.search.solver.layout_graph import LayoutEdge, LayoutGraph, LayoutNode
from neocpu.search.solver.plan import Plan, SearchLimits, solve
from neocpu.search.solver.reductions import Problem

CLOSE = 1e-9


def assert_optimal(graph: LayoutGraph, plan, optimum: float) -> None:
    assert plan.cost == graph.cost(plan.choices)
    assert plan.cost == pytest.approx(optimum, rel=CLOSE)
    assert plan.lower_bound == pytest.approx(optimum, rel=CLOSE)
    assert plan.gap == 0.0


def assert_exact_solvers_find(graph: LayoutGraph, optimum: float) -> None:
    # Without memory for tables there is branch and bound.
    for plan in (solve(graph), solve(graph, "exact", SearchLimits(bytes=0)), solve(graph, "dp")):
        assert_optimal(graph, plan, optimum)


SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=200)
@given(SEEDS, st.integers(1, 7), st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.5]), st.booleans())
def test_every_solver_against_brute_force(
    seed: int, nodes: int, density: float, forbidden: float, integer: bool
):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, nodes, density, forbidden=forbidden, integer=integer)
    optimum = brute_force(graph)
    assert_exact_solvers_find(graph, optimum)
    for heuristic in (solve(graph, "pbqp"), solve(graph, "dp", SearchLimits(bytes=200))):
        assert heuristic.cost == graph.cost(heuristic.choices)
        assert heuristic.cost >= optimum * (1 - CLOSE)
        assert heuristic.lower_bound <= optimum * (1 + CLOSE)


NETWORKS = st.builds(
    lambda seed, operators: random_network(np.random.default_rng(seed), operators),
    SEEDS,
    st.integers(2, 6),
)


@settings(max_examples=200)
@given(NETWORKS)
def test_networks_against_brute_force(graph: LayoutGraph):
    optimum = brute_force(graph)
    assert_exact_solvers_find(graph, optimum)
    assert solve(graph, "pbqp").cost >= optimum * (1 - CLOSE)


@settings(max_examples=50)
@given(NETWORKS)
def test_networks_against_highs(graph: LayoutGraph):
    assert milp_optimum(graph) == pytest.approx(brute_force(graph), rel=TOLERANCE)


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


@settings(max_examples=200)
@given(graphs(), st.sampled_from([0, 100, 1000, 1 << 20]))
def test_exact_never_beats_nor_loses_to_brute_force(graph: LayoutGraph, max_bytes: int):
    plan = solve(graph, "exact", SearchLimits(bytes=max_bytes))
    assert_optimal(graph, plan, brute_force(graph))


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([0.0, 0.1]))
def test_reductions_keep_the_optimum_and_bounds_hold(seed: int, forbidden: float):
    graph = random_graph(np.random.default_rng(seed), 7, 0.8, forbidden=forbidden)
    optimum = brute_force(graph)
    problem = Problem(graph)
    assert lower_bound(problem).value <= optimum * (1 + CLOSE)
    problem.reduce_fully()
    bound = lower_bound(problem).value
    assert -CLOSE <= bound <= optimum * (1 + CLOSE)


@settings(max_examples=40)
@given(SEEDS, st.integers(0, 5), st.integers(0, 3))
def test_a_node_that_is_fixed_is_paid_for_with_its_edges(seed: int, node: int, choice: int):
    graph = random_graph(np.random.default_rng(seed), 6, 0.5)
    choice %= len(graph.nodes[node].choices)
    plans = itertools.product(*(range(len(each.choices)) for each in graph.nodes))
    optimum = min(graph.cost(plan) for plan in plans if plan[node] == choice)
    problem = Problem(graph)
    problem.fix(node, choice)
    order = best_order(problem, 1 << 30, lambda: False)
    assert order is not None
    assert eliminate(problem, order, lambda: False)
    plan = problem.plan()
    assert plan[node] == choice
    assert graph.cost(plan) == pytest.approx(optimum, rel=CLOSE)


@settings(max_examples=40)
@given(SEEDS, st.integers(2, 10))
def test_dp_commits_to_the_cheapest_choice_if_memory_is_short(seed: int, nodes: int):
    """The cheapest choice of each node is the best plan if edges cost next to nothing."""
    dense = random_graph(np.random.default_rng(seed), nodes, 1.0)
    edges = tuple(LayoutEdge(e.source, e.target, e.costs * 1e-12) for e in dense.edges)
    graph = LayoutGraph(dense.nodes, edges)
    plan = solve(graph, "dp", SearchLimits(bytes=200))
    assert plan.cost == pytest.approx(sum(min(node.costs) for node in dense.nodes), rel=CLOSE)


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
    """A clock that advances ``step`` seconds every time it is read."""
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
    assert plan.verdict.startswith("not proven optimal: at most ")
    assert plan.verdict.endswith(" % above the best plan; raise --search-seconds")


@pytest.mark.parametrize(
    ("bound", "above"), [(1.0, None), (0.992, "0.81"), (0.5, "100"), (0.01, "9900")]
)
def test_the_verdict_says_how_far_a_plan_may_be_from_the_best(bound: float, above: str | None):
    plan = Plan(
        choices=(),
        cost=1.0,
        lower_bound=bound,
        gap=1.0 - bound,
        solver="dp",
        seconds=0.0,
        variables=0,
    )
    words = f"not proven optimal: at most {above} % above the best plan; use --solver auto"
    assert plan.verdict == ("proven optimal" if above is None else words)


def test_more_time_never_makes_a_plan_worse():
    graph = too_wide()
    plans = [
        solve(graph, limits=SearchLimits(seconds, bytes=8000), clock=ticking())
        for seconds in (0.0, 30.0, 300.0)
    ]
    costs, bounds = [plan.cost for plan in plans], [plan.lower_bound for plan in plans]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0]


@pytest.mark.parametrize("max_bytes", [0, 10_000])
def test_branching_ends_with_a_proof(max_bytes: int):
    graph = random_graph(np.random.default_rng(5), 10, 1.0, max_choices=4)
    plan = solve(graph, "exact", SearchLimits(seconds=0.0, bytes=max_bytes))
    assert plan.solver == "branch-and-bound"
    assert (plan.proven, plan.verdict) == (True, "proven optimal")
    assert plan.cost == pytest.approx(solve(graph).cost, rel=CLOSE)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("solver", ["auto", "dp"])
@pytest.mark.parametrize("max_bytes", [100_000, 1_000_000, 10_000_000])
def test_tables_keep_to_their_memory(max_bytes: int, solver: str):
    graph = random_graph(np.random.default_rng(1), 18, 0.5, max_choices=5)
    limits = SearchLimits(20_000.0, max_bytes)
    peak = peak_bytes(lambda: solve(graph, solver, limits, clock=ticking()))
    assert peak < max_bytes + 1_000_000  # the graph's own copies and what Python needs


def test_open_subproblems_take_no_memory():
    """Branch and bound leaves hundreds open, and each would hold the whole graph."""
    graph = random_graph(np.random.default_rng(0), 16, 1.0, max_choices=6)
    search = partial(solve, graph, limits=SearchLimits(60_000.0, bytes=0), clock=ticking())
    found = []
    assert peak_bytes(lambda: found.append(search())) < 1_000_000
    assert found[0].solver == "branch-and-bound"


@pytest.mark.parametrize("size", [3, 4])
def test_reductions_of_nodes_with_many_choices_take_little_memory(size: int):
    """Three nodes reduce by eliminating one; four compare choices for dominance."""
    rng = np.random.default_rng(0)
    node = LayoutNode("n", tuple(map(str, range(200))), (0.0,) * 200)
    ends = itertools.combinations(range(size), 2)
    edges = tuple(LayoutEdge(u, v, rng.random((200, 200))) for u, v in ends)
    problem = Problem(LayoutGraph((node,) * size, edges))
    assert peak_bytes(problem.reduce_fully) < 10_000_000  # all sums at once take 64 MB


class Watch:
    """A clock that stays at 0 for a number of reads, and then is past any limit."""

    def __init__(self, looks: float) -> None:
        self.left = looks

    def __call__(self) -> float:
        self.left -= 1
        return 0.0 if self.left >= 0 else 1e9


@pytest.mark.parametrize("max_bytes", [0, 1 << 20])
@needs.one_in(2)
def test_time_may_end_anywhere(max_bytes: int):
    """The plan is then no worse than the greedy one, and the bound holds."""
    graph = random_graph(np.random.default_rng(3), 14, 0.8, max_choices=4)
    best, greedy = solve(graph).cost, solve(graph, "pbqp").cost
    for looks in range(0, 3000, 37):
        plan = solve(graph, limits=SearchLimits(1.0, max_bytes), clock=Watch(looks))
        assert plan.cost == graph.cost(plan.choices)
        assert best * (1 - CLOSE) <= plan.cost <= greedy * (1 + CLOSE)
        assert plan.lower_bound <= best * (1 + CLOSE)
        assert plan.gap == 0.0 or plan.lower_bound < plan.cost


def test_the_clock_is_looked_at_between_nodes():
    """A pass over a large graph takes seconds, so passes end in the middle."""
    graph = random_graph(np.random.default_rng(0), 40, 1.0, max_choices=4)

    def looks(work: Callable[[Callable[[], bool]], object]) -> int:
        count = itertools.count()
        work(lambda: next(count) < 0)
        return next(count)

    problem = Problem(graph)
    assert looks(problem.reduce_fully) >= len(problem.unary)
    assert looks(lambda expired: lower_bound(problem, expired)) >= 2 * len(problem.unary)
    assert looks(lambda expired: best_order(problem, 1 << 62, expired)) == 0  # hopeless
    few = Problem(resnet((2, 2)))
    assert looks(lambda expired: best_order(few, 1 << 62, expired)) >= len(few.unary)
    order = best_order(few, 1 << 62, lambda: False)
    assert order is not None
    assert looks(lambda expired: eliminate(few, order, expired)) >= few.size


def test_an_elimination_that_is_out_of_time_changes_nothing():
    problem = Problem(resnet((2, 2)))
    order = best_order(problem, 1 << 30, lambda: False)
    assert order is not None
    left = iter([False] * 20)
    assert not eliminate(problem, order, lambda: next(left, True))
    assert problem.trail == []
    assert len(problem.unary) == problem.size
    assert eliminate(problem, order, lambda: False)
    assert not problem.unary


def test_costs_below_zero():
    """Improving a plan must end, though a negative cost grows when it is scaled down."""
    rng = np.random.default_rng(0)
    nodes = tuple(LayoutNode("n", tuple("abc"), tuple(rng.random(3) - 5)) for _ in range(6))
    ends = itertools.combinations(range(6), 2)
    edges = tuple(LayoutEdge(u, v, rng.random((3, 3)) - 5) for u, v in ends)
    graph = LayoutGraph(nodes, edges)
    assert_optimal(graph, solve(graph, "exact", SearchLimits(bytes=0)), brute_force(graph))


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
