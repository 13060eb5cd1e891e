"""Graphs that are solved jointly, compared with all possible plans."""

import itertools

import numpy as np
import pytest
from layout_graphs import random_graph

from neocpu.search.solver.joint_plans import SharingGraph, Way, solve_jointly
from neocpu.search.solver.plan import SearchLimits


def sharing(rng, nodes, needs, *, every=False):
    """Return a random graph; every other node has ways, and each way needs one of a few things.

    Each node has its own things, but nodes of the same number in other graphs share them. If
    ``every`` is set, each choice can be made with any of them.
    """
    graph = random_graph(rng, nodes, 0.6, max_choices=3)
    least = needs if every else 1
    ways = {
        u: tuple(
            tuple(
                Way(float(rng.random()), (u, int(need)))
                for need in rng.choice(needs, int(rng.integers(least, needs + 1)), replace=False)
            )
            for _ in graph.nodes[u].choices
        )
        for u in range(0, len(graph.nodes), 2)
    }
    return SharingGraph(graph, ways, float(rng.uniform(0.5, 2)))


def ways_to_run(one):
    """Return every plan of a graph: its weighted cost, and the things it needs."""
    ranges = [range(len(node.choices)) for node in one.graph.nodes]
    for choices in itertools.product(*ranges):
        given = sum(one.graph.nodes[u].costs[choices[u]] for u in one.ways)
        fixed = one.graph.cost(choices) - given
        for picked in itertools.product(*(one.ways[u][choices[u]] for u in one.ways)):
            cost = fixed + sum(way.cost for way in picked)
            yield one.weight * cost, frozenset(way.need for way in picked)


def brute_force(graphs, prices):
    cheapest = []
    for one in graphs:
        best = {}
        for cost, needs in ways_to_run(one):
            best[needs] = min(cost, best.get(needs, np.inf))
        cheapest.append(best.items())
    return min(
        sum(cost for _, cost in picked)
        + sum(prices[need] for need in frozenset().union(*(needs for needs, _ in picked)))
        for picked in itertools.product(*cheapest)
    )


def total(graphs, prices, found):
    """Return the cost of plans, added up from their ways."""
    costs = 0.0
    needs = set()
    for one, plan, ways in zip(graphs, found.plans, found.ways, strict=True):
        assert ways.keys() == one.ways.keys()
        for u, way in ways.items():
            assert way in one.ways[u][plan.choices[u]]
        given = sum(one.graph.nodes[u].costs[plan.choices[u]] for u in ways)
        own = one.graph.cost(plan.choices) - given + sum(way.cost for way in ways.values())
        assert plan.cost == pytest.approx(own)
        costs += one.weight * own
        needs |= {way.need for way in ways.values()}
    return costs + sum(prices[need] for need in needs)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_plans_and_their_bound(seed, count):
    rng = np.random.default_rng([seed, count])
    graphs = [sharing(rng, 4, 3) for _ in range(count)]
    prices = {(u, n): float(rng.uniform(0, 0.5)) for u in (0, 2) for n in range(3)}
    found = solve_jointly(graphs, prices)
    best = brute_force(graphs, prices)
    assert found.cost == pytest.approx(total(graphs, prices, found))
    assert found.lower_bound <= best + 1e-9
    assert best <= found.cost + 1e-9
    assert found.cost <= 1.1 * best
    assert found.gap == pytest.approx((found.cost - found.lower_bound) / found.cost)


def test_most_joint_solutions_are_optimal():
    exact, gaps = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graphs = [sharing(rng, 4, 3) for _ in range(3)]
        prices = {(u, n): float(rng.uniform(0, 0.5)) for u in (0, 2) for n in range(3)}
        found = solve_jointly(graphs, prices)
        exact += found.cost <= brute_force(graphs, prices) + 1e-9
        gaps.append(found.gap)
    assert exact >= 36
    assert np.median(gaps) < 0.02


def test_a_thing_that_one_graph_needs_is_free_for_the_others():
    rng = np.random.default_rng(0)
    one = sharing(rng, 5, 4)
    prices = {(u, n): 0.3 for u in (0, 2, 4) for n in range(4)}
    alone = solve_jointly([one], prices)
    both = solve_jointly([one, one], prices)
    assert both.gap < 1e-3
    needs = {way.need for ways in both.ways for way in ways.values()}
    assert both.cost < 2 * alone.cost - 0.99 * sum(prices[need] for need in needs)


def test_a_high_price_has_all_need_the_same():
    rng = np.random.default_rng(1)
    graphs = [sharing(rng, 4, 3, every=True) for _ in range(4)]
    things = [(u, n) for u in (0, 2) for n in range(3)]
    dear = solve_jointly(graphs, dict.fromkeys(things, 100.0))
    assert len({way.need for ways in dear.ways for way in ways.values()}) == 2
    free = solve_jointly(graphs, dict.fromkeys(things, 0.0))
    assert free.gap == pytest.approx(0.0, abs=1e-9)


def test_without_time_there_are_plans_and_a_bound():
    rng = np.random.default_rng(2)
    graphs = [sharing(rng, 4, 3) for _ in range(3)]
    prices = {(u, n): 0.2 for u in (0, 2) for n in range(3)}
    found = solve_jointly(graphs, prices, SearchLimits(seconds=0.0))
    assert found.lower_bound <= brute_force(graphs, prices) <= found.cost + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_when_time_is_over_each_graph_was_solved_twice(seed):
    rng = np.random.default_rng([seed, 5])
    graphs = [sharing(rng, 6, 3, every=True) for _ in range(4)]
    prices = {(u, n): float(rng.uniform(0, 0.5)) for u in (0, 2, 4) for n in range(3)}
    found = solve_jointly(graphs, prices, SearchLimits(seconds=0.0))
    assert found.solved <= 2 * len(graphs)
    assert total(graphs, prices, found) == pytest.approx(found.cost)
