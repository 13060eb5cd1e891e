"""The calls that are launched jointly, compared with every order of small programs."""

import itertools
import random

import pytest

from neocpu.search.solver.launches import LONGEST, CallNode, plan_launches


def _random(seed):
    """Return nodes and a cost: calls with few tasks, on four threads."""
    chance = random.Random(seed)
    count = chance.randint(1, 7)
    nodes = []
    for number in range(count):
        needs = {n for n in range(number) if chance.random() < 0.3}
        follows = {n for n in range(number) if chance.random() < 0.1}
        nodes.append(CallNode(frozenset(needs), frozenset(follows), chance.random() < 0.85))
    work = [(chance.randint(1, 5), chance.uniform(1, 3)) for _ in nodes]

    def cost(step):
        if len(step) > 1 and not all(nodes[n].joins for n in step):
            return None
        total = sum(work[n][0] * work[n][1] for n in step)
        busy = max(total / 4, *(work[n][1] for n in step), 0) + 0.5
        apart = sum(max(work[n][0] / 4, 1) * work[n][1] + 0.5 for n in step)
        return busy if len(step) == 1 or busy < 0.95 * apart else None

    return nodes, cost


def _best(nodes, cost, most):
    """Return the least cost of all orders by trying each."""
    everything = frozenset(range(len(nodes)))
    known = {everything: 0.0}

    def rest(done):
        if done not in known:
            ready = [n for n in everything - done if nodes[n].needs <= done]
            prices = []
            for size in range(1, min(most, len(ready)) + 1):
                for step in itertools.combinations(ready, size):
                    after = done | set(step)
                    price = cost(step)
                    if price is not None and all(nodes[n].follows <= after for n in step):
                        prices.append(price + rest(after))
            known[done] = min(prices)
        return known[done]

    return rest(frozenset())


def _check(nodes, steps):
    done = set()
    for step in steps:
        assert all(nodes[n].needs <= done for n in step)
        done |= set(step)
        assert all(nodes[n].follows <= done for n in step)
    assert done == set(range(len(nodes)))
    assert sum(map(len, steps)) == len(nodes)


@pytest.mark.parametrize("seed", range(60))
def test_no_other_order_is_cheaper(seed):
    nodes, cost = _random(seed)
    for most in (2, 8):
        steps = [step for stretch in plan_launches(nodes, cost, most) for step in stretch]
        _check(nodes, steps)
        assert all(len(step) <= most for step in steps)
        assert sum(map(cost, steps)) == pytest.approx(_best(nodes, cost, most))


def _chains(count, length):
    """Return chains of calls with a common first and last call, chain by chain."""
    nodes = [CallNode(frozenset())]
    ends = []
    for _ in range(count):
        before = 0
        for _ in range(length):
            nodes.append(CallNode(frozenset({before})))
            before = len(nodes) - 1
        ends.append(before)
    return [*nodes, CallNode(frozenset(ends))]


def _equal(step):
    """Return the cost of a launch of calls with one task each, on eight threads."""
    return 1.0 if len(step) <= 8 else None


def test_branches_become_neighbours():
    nodes = _chains(4, 3)
    steps = [step for stretch in plan_launches(nodes, _equal, 8) for step in stretch]
    _check(nodes, steps)
    assert [len(step) for step in steps] == [1, 4, 4, 4, 1]


def test_many_branches_are_launched_jointly():
    """There are too many branches to try every set, and the program exceeds a stretch."""
    nodes = _chains(10, 8)
    assert len(nodes) > LONGEST
    steps = [step for stretch in plan_launches(nodes, _equal, 8) for step in stretch]
    _check(nodes, steps)
    assert len(steps) < len(nodes) / 2


def test_calls_without_a_gain_stay_in_order():
    nodes = [*_chains(3, 2), CallNode(frozenset({7})), CallNode(frozenset({7}))]

    def cost(step):
        return 1.0 if len(step) == 1 else None if 9 not in step else 1.5

    stretches = plan_launches(nodes, cost, 8)
    assert [step for stretch in stretches for step in stretch] == [
        *((n,) for n in range(8)),
        (8, 9),
    ]
