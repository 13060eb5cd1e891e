"""Plans of one network for several batches, which share packed weights."""

from dataclasses import replace

import numpy as np
import pytest
from conv_workloads import conv_workload
from networks import HOST, build, cost_model, named

from neocpu.ir.array_digests import ArrayDigests
from neocpu.lowering.apply_plan import apply_plan
from neocpu.planning import plan_jointly as module
from neocpu.planning import weight_limit
from neocpu.planning.alternatives import alternatives_of
from neocpu.planning.extract import extract
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.planning.plan_jointly import plan_jointly
from neocpu.planning.weight_limit import plan_sparingly, price_kept
from neocpu.planning.weights import packing
from neocpu.schedules import registry

BATCHES = (1, 2, 8)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
@pytest.mark.parametrize("groups", [1, 2, 24])
def test_schemes_of_one_packing_read_the_same_bytes(kernel, groups):
    """This holds for any batch and size of the image."""
    weights = np.random.default_rng(0).standard_normal((24, 24 // groups, *kernel))
    packed = {}
    for batch, size in ((1, 14), (4, 7)):
        pads = tuple(2 * [kernel[0] // 2, kernel[1] // 2])
        workload = conv_workload(batch, 24, size, size, 24, kernel, padding=pads, groups=groups)
        for scheme in registry.schemes(workload, HOST)[::5]:
            array = registry.pack_weights(weights.astype("float32"), workload, scheme)
            known = packed.setdefault(packing(workload, scheme), array)
            assert known.tobytes() == array.tobytes()
    assert packed


def networks(name):
    """Return the modules and networks of the batches."""
    mods = [named(name, batch=batch) for batch in BATCHES]
    return mods, [extract(mod) for mod in mods]


def planned(nets, costs, **limits):
    return plan_jointly(nets, costs, [ArrayDigests() for _ in nets], **limits)


def priced(plan):
    """Return the objective of a plan that is planned by itself."""
    return plan.search.cost + plan.offer.byte_price * plan.weight_bytes


def packed_bytes(plans):
    """Return the bytes of the packed weights of all plans; plans share equal ones."""
    found = {}
    for plan in plans:
        for op, choice in zip(plan.network.ops, plan.choices, strict=True):
            if isinstance(op, ConvOp):
                need = op.weights.tobytes(), packing(op.workload, choice.scheme)
                found[need] = choice.weight_bytes
    return sum(found.values())


@pytest.mark.parametrize("name", ["residual", "inception", "excite", "preactivation"])
def test_joint_plans_need_no_more_packed_weights_than_separate_ones(name, monkeypatch):
    mods, nets = networks(name)
    costs = cost_model()
    reading = replace(costs, byte_price=price_kept(costs.target))
    alone = [plan_layouts(network, reading, OptLevel.GLOBAL) for network in nets]
    sizes = []
    for price in (0.0, 0.2, 1e6):
        monkeypatch.setattr(module, "PRICE", price)
        plans = planned(nets, costs)
        for mod, plan, own in zip(mods, plans, alone, strict=True):
            assert priced(plan) >= own.search.cost * (1 - 1e-9)
            assert plan.search.lower_bound <= plan.search.cost
            apply_plan(mod, replace(plan), costs)
        if price == 0.0:
            for plan, own in zip(plans, alone, strict=True):
                assert priced(plan) == pytest.approx(own.search.cost)
        sizes.append(packed_bytes(plans))
    assert sizes[-1] <= sizes[0]
    assert sizes[-1] <= packed_bytes(alone)


def test_a_weight_limit_is_kept_if_any_plans_keep_it(monkeypatch):
    monkeypatch.setattr(module, "PRICE", 1e-3)
    _, nets = networks("inception")
    costs = cost_model()
    largest = packed_bytes(planned(nets, costs))
    smallest = packed_bytes(planned(nets, costs, most_bytes=0))
    assert smallest <= largest
    for limit in (smallest, (smallest + largest) // 2, largest):
        assert packed_bytes(planned(nets, costs, most_bytes=limit)) <= limit


def test_a_plan_pays_for_the_bytes_it_reads_as_a_plan_alone_does(monkeypatch):
    monkeypatch.setattr(module, "PRICE", 0.0)
    monkeypatch.setattr(weight_limit, "KEPT", 1e3)
    _, nets = networks("inception")
    costs = cost_model()
    for network, plan in zip(nets, planned(nets, costs), strict=True):

        def solve(price, network=network):
            return plan_layouts(network, replace(costs, byte_price=price), OptLevel.GLOBAL)

        alone = plan_sparingly(price_kept(costs.target), solve)
        assert plan.weight_bytes == alone.weight_bytes
        assert plan.search.cost == pytest.approx(alone.search.cost)
        assert plan.search.lower_bound <= plan.search.cost


def test_joint_planning_of_one_shape_costs_about_as_much_as_usual():
    _, (network, *_) = networks("residual")
    costs = cost_model()
    (plan,) = planned([network], costs)
    alone = plan_layouts(network, costs, OptLevel.GLOBAL)
    assert plan.search.cost <= 1.1 * alone.search.cost
    assert plan.search.gap < 0.01


def test_networks_without_anything_to_choose():
    nets = [extract(build(lambda net, x: net.relu(x), (batch, 3))) for batch in (1, 4)]
    plans = planned(nets, cost_model())
    assert [plan.network for plan in plans] == nets


@pytest.mark.parametrize("name", ["residual", "excite"])
def test_an_alternative_costs_as_much_as_the_plans_with_it(name, monkeypatch):
    """The cost includes the packings that all plans need with the alternative."""
    _, nets = networks(name)
    costs = cost_model()
    monkeypatch.setattr(module, "PRICE", 0.0)
    alone = [planned([network], costs)[0] for network in nets]
    monkeypatch.setattr(module, "PRICE", price := 0.3)
    plans = planned(nets, costs)
    whole = smallest_bytes(plans)

    def needs(plan, node=None, other=None):
        for i, (op, choice) in enumerate(zip(plan.network.ops, plan.choices, strict=True)):
            if isinstance(op, ConvOp):
                taken = other if i == node else choice
                yield (op.weights.tobytes(), packing(op.workload, taken.scheme)), taken.weight_bytes

    told = 0
    for plan, own in zip(plans, alone, strict=True):
        byte_price, whole_cost = plan.offer.byte_price, priced(own)
        others = [each for each in plans if each is not plan]
        rest = dict(need for each in others for need in needs(each))
        paid = sum({**rest, **dict(needs(plan))}.values())
        graph, picked = plan.offer.graph, plan.search.choices
        for node, found in enumerate(alternatives_of(plan)):
            for one in found:
                if one.choice.scheme is None or one.choice not in plan.offer.choices[node]:
                    continue
                more = sum({**rest, **dict(needs(plan, node, one.choice))}.values()) - paid
                weights = price * more / whole * whole_cost
                weights += byte_price * (one.choice.weight_bytes - plan.choices[node].weight_bytes)
                assert one.weights == pytest.approx(weights, abs=1e-15)
                changed = [*picked]
                changed[node] = plan.offer.choices[node].index(one.choice)
                dearer = graph.cost(graph.with_derived(changed)) - graph.cost(picked)
                assert one.more == pytest.approx(dearer, rel=1e-6, abs=1e-15)
                told += 1
    assert told


def smallest_bytes(plans):
    """Return the bytes of all convolutions' weights, each in its smallest possible packing."""
    least = {}
    for plan in plans:
        for op, choices in zip(plan.network.ops, plan.offer.choices, strict=True):
            if isinstance(op, ConvOp):
                smallest = min(choice.weight_bytes for choice in choices)
                weights = op.weights.tobytes()
                least[weights] = min(smallest, least.get(weights, smallest))
    return sum(least.values())
