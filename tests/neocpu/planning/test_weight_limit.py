"""The fastest plan within a limit on bytes, against all plans there are."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from networks import IMAGE, NETWORKS, build, cost_model
from tvm import relax

from neocpu.foundation.errors import UsageError
from neocpu.passes.apply_plan import apply_plan
from neocpu.planning.extract import extract
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.weight_limit import plan_sparingly, plan_within
from neocpu.planning.weights import weights_of
from neocpu.search.solver.plan import Plan


@dataclass(frozen=True)
class FakePlan:
    """What `plan_within` reads of a plan."""

    weight_bytes: int
    seconds: float
    search: Plan


def solver(plans):
    """Return an exact search over ``plans``, pairs of bytes and seconds."""

    def solve(price):
        cost, size, seconds = min((s + price * b, b, s) for b, s in plans)
        return FakePlan(size, seconds, Plan((), cost, cost, 0.0, "exact", 0.0, 1))

    return solve


def test_weights_that_save_too_little_time_are_not_kept():
    """At 1 GB/s a byte is worth a fifth of a nanosecond, and costs are seconds nevertheless."""
    plans = [(10_000_000, 1.0), (5_000_000, 1.0009), (4_000_000, 1.01)]
    found = plan_sparingly(1e9, solver(plans))
    assert (found.weight_bytes, found.seconds) == plans[1]
    assert found.search.cost == found.search.lower_bound == pytest.approx(found.seconds)
    assert plan_sparingly(1e12, solver(plans)).weight_bytes == plans[0][0]


@pytest.mark.parametrize("seed", range(30))
def test_against_all_plans(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    sizes = rng.choice(10**6, count, replace=False) + 10**6
    plans = [(int(size), float(s)) for size, s in zip(sizes, rng.uniform(1, 2, count), strict=True)]
    fixed = 1000
    for limit in rng.integers(10**6, 2 * 10**6 + 2000, 5).tolist():
        fitting = [seconds for size, seconds in plans if fixed + size <= limit]
        if not fitting:
            with pytest.raises(UsageError, match=f"{fixed + min(sizes)} bytes"):
                plan_within(limit, fixed, solver(plans))
            continue
        found = plan_within(limit, fixed, solver(plans))
        assert fixed + found.weight_bytes <= limit
        assert found.search.cost == pytest.approx(found.seconds)
        best = min(fitting)
        assert found.search.lower_bound <= best * (1 + 1e-9) <= found.seconds * (1 + 2e-9)
        if found.search.gap:
            assert found.search.verdict.endswith("above the best plan within the limit")
        assert found.search.gap == pytest.approx(1 - found.search.lower_bound / found.seconds)


def test_one_plan_suits_every_limit_that_it_keeps():
    found = plan_within(10, 0, solver([(10, 1.0)]))
    assert (found.weight_bytes, found.search.gap, found.search.relaxed) == (10, 0.0, False)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("opt", [OptLevel.GLOBAL, OptLevel.UNIFORM, OptLevel.CONV_LAYOUT])
def test_networks_keep_their_limits(name, opt):
    body, shapes = NETWORKS[name]
    mod = build(body, *shapes)
    network, costs = extract(mod), cost_model()
    weights = weights_of(mod, network, costs.target, costs.threads)

    def plan(limit):
        options = replace(PlanOptions.parse(str(opt), "auto", None), max_weights=limit)
        return options.plan(network, costs, weights.fixed)

    free = plan(None)
    with pytest.raises(UsageError, match="too small") as caught:
        plan(0)
    least = int(str(caught.value).split("(")[1].split()[0])
    size = weights.fixed + free.weight_bytes
    seconds = []
    for limit in (least, (least + size) // 2, size):
        within = plan(limit)
        packed = sum(array.nbytes for array in apply_plan(mod, within, costs).weights)
        assert packed == weights.fixed + within.weight_bytes
        assert packed <= limit
        assert within.search.lower_bound <= within.search.cost
        seconds.append(within.search.cost)
    if opt is not OptLevel.CONV_LAYOUT:  # which takes each convolution for itself
        assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] == pytest.approx(free.search.cost)


def test_constants_are_padded_like_the_layout_they_are_read_in():
    def body(net, x):
        pooled = net.emit(relax.op.nn.max_pool2d(net.conv(x, 17), (3, 3)))
        scaled = net.emit(relax.op.multiply(pooled, net.const(1, 17, 1, 1)))
        return net.conv(scaled, 17)

    mod = build(body, IMAGE)
    network, costs = extract(mod), cost_model()
    plan = plan_layouts(network, costs, OptLevel.UNIFORM)
    (scaling,) = [
        choice
        for op, choice in zip(network.ops, plan.choices, strict=True)
        if isinstance(op, ElementwiseOp)
    ]
    assert scaling.weight_bytes > 4 * 17
    packed = sum(array.nbytes for array in apply_plan(mod, plan, costs).weights)
    fixed = weights_of(mod, network, costs.target, costs.threads).fixed
    assert packed == fixed + plan.weight_bytes


def test_weights_as_the_model_gives_them():
    body, shapes = NETWORKS["classifier"]
    mod = build(body, *shapes)
    weights = weights_of(mod, extract(mod), cost_model().target, 2)
    # A 3x3 convolution of 3 to 17 channels, a dense layer of 17x3x3 to 10, and their biases.
    assert weights.given == 4 * (17 * 3 * 9 + 17 + 17 * 3 * 3 * 10 + 10)
    assert weights.fixed >= 4 * (17 * 3 * 3 * 10 + 10)
