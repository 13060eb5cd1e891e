"""The cost of each alternative choice equals that of the whole plan with it."""

from dataclasses import replace

import pytest
from conv_workloads import conv_workload
from networks import HOST, IMAGE, NETWORKS, build, cost_model, named, residual

from neocpu.planning.alternatives import KEPT, alternatives_of
from neocpu.planning.choice import Measured, is_estimated
from neocpu.planning.convolution_choices import with_folds
from neocpu.planning.costs import formats
from neocpu.planning.extract import extract
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.weights import packed_bytes
from neocpu.schedules import registry
from neocpu.search.solver.plan import SearchLimits

#: At this price of a byte, weights decide some choices.
PRICE = 1e-11


def dearer(plan, node, choice):
    """Return the additional cost of the whole plan with another choice of the graph."""
    graph, picked = plan.offer.graph, list(plan.search.choices)
    before = graph.cost(picked)
    picked[node] = choice
    return graph.cost(graph.with_derived(picked)) - before


@pytest.mark.parametrize("name", NETWORKS)
def test_an_alternative_costs_as_much_as_the_plan_with_it(name):
    network = extract(named(name))
    plan = plan_layouts(network, cost_model(byte_price=PRICE), OptLevel.GLOBAL)
    found = alternatives_of(plan)
    assert len(found) == len(network.ops)
    assert any(found)
    for node, (chosen, others) in enumerate(zip(plan.choices, found, strict=True)):
        options = plan.offer.choices[node]
        costs = [dearer(plan, node, i) for i in range(len(options))]
        second = chosen.runner_up
        if second is not None and second.scheme != chosen.scheme:
            bytes_more = second.weight_bytes - chosen.weight_bytes
            costs.append(second.seconds - chosen.seconds + PRICE * bytes_more)
        del costs[plan.search.choices[node]]
        costs = sorted(costs)[: KEPT if chosen.scheme else 1]
        assert [one.more for one in others] == pytest.approx(costs, rel=1e-6, abs=1e-15)
        for one in others:
            kernel = one.choice.seconds - chosen.seconds
            assert kernel + one.transforms + one.weights == pytest.approx(one.more, abs=1e-15)
            assert one.more >= -1e-15  # the plan is proven
            assert one.choice != chosen


def test_the_next_best_of_the_same_formats_is_kept():
    workload = conv_workload(1, 32, 14, 14, 48, (3, 3), padding=(1, 1, 1, 1))
    costs = cost_model(byte_price=PRICE)
    prices = {}
    for scheme in registry.schemes(workload, HOST):
        price = registry.estimate(workload, scheme, HOST, 2) + PRICE * packed_bytes(
            workload, scheme
        )
        prices.setdefault(formats(workload, scheme), []).append(price)
    found = costs.conv_choices(workload)
    assert {(one.in_format, one.out_format) for one in found} == prices.keys()
    for one in found:
        two = [one] if one.runner_up is None else [one, one.runner_up]
        expected = sorted(prices[one.in_format, one.out_format])[:2]
        assert list(map(costs.price, two)) == pytest.approx(expected)
        assert two[-1].runner_up is None


def test_a_choice_knows_when_it_was_measured():
    workload = conv_workload(1, 32, 14, 14, 48, (3, 3), padding=(1, 1, 1, 1))
    schemes = registry.schemes(workload, HOST)
    scheme = min(schemes, key=lambda each: registry.estimate(workload, each, HOST, 2))
    known = Measured({scheme: registry.estimate(workload, scheme, HOST, 2)}, day="2026-11-23")
    costs = cost_model(measured=lambda workload: known)
    found = costs.conv_choices(workload)
    days = {one.day for one in found if not is_estimated(one.source)}
    assert days == {"2026-11-23"}
    assert {one.day for one in found if is_estimated(one.source)} == {""}
    folded = [one for one in with_folds(found, workload, costs) if "and folded" in one.source]
    assert all(bool(one.day) != is_estimated(one.source) for one in folded)


def test_levels_report_the_cost_of_less_optimisation():
    network = extract(build(residual, IMAGE))
    costs = cost_model()
    options = PlanOptions(opt=OptLevel.GLOBAL, solver="auto", limits=SearchLimits())
    plan = options.plan(network, costs)
    levels = options.levels(network, costs)
    assert [*levels] == ["nchw", "conv-layout", "uniform"]
    for name, seconds in levels.items():
        less = replace(options, opt=OptLevel(name))
        assert seconds == less.plan(network, costs).search.cost >= plan.search.cost
        assert not less.levels(network, costs)
    assert max(levels.values()) > 1.2 * plan.search.cost


def test_plans_of_one_choice_have_no_alternatives():
    network = extract(build(residual, IMAGE))
    plan = plan_layouts(network, cost_model(), OptLevel.CONV_LAYOUT)
    assert all(
        one.choice.runner_up is None and one.transforms == 0.0
        for others in alternatives_of(plan)
        for one in others
    )
    assert alternatives_of(replace(plan, offer=None)) == [() for _ in network.ops]
