"""The fastest plan within a limit on bytes, compared with all possible plans."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from conv_workloads import conv_workload
from networks import IMAGE, NETWORKS, build, cost_model, named
from tvm import relax

from neocpu.foundation.errors import UsageError
from neocpu.lowering.apply_plan import apply_plan
from neocpu.planning.convolution_choices import convolution_choices
from neocpu.planning.extract import extract
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.quantised.quantised_steps import ConvForm
from neocpu.planning.weight_limit import (
    KEPT,
    most_of_integers,
    plan_sparingly,
    plan_within,
    price_kept,
)
from neocpu.planning.weights import weights_of
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.search.solver.plan import Plan


@dataclass(frozen=True)
class FakePlan:
    """A plan with the attributes that `plan_within` reads."""

    weight_bytes: int
    seconds: float
    search: Plan


def solver(plans):
    """Return an exact search over ``plans``, pairs of bytes and seconds."""

    def solve(price):
        cost, size, seconds = min((s + price * b, b, s) for b, s in plans)
        return FakePlan(
            size,
            seconds,
            Plan(
                choices=(),
                cost=cost,
                lower_bound=cost,
                gap=0.0,
                solver="exact",
                seconds=0.0,
                variables=1,
            ),
        )

    return solve


def test_weights_that_save_too_little_time_are_not_kept():
    """A byte is worth a fifth of a nanosecond at 1 GB/s; costs are seconds nevertheless."""
    plans = [(10_000_000, 1.0), (5_000_000, 1.0009), (4_000_000, 1.01)]
    found = plan_sparingly(KEPT / 1e9, solver(plans))
    assert (found.weight_bytes, found.seconds) == plans[1]
    assert found.search.cost == found.search.lower_bound == pytest.approx(found.seconds)
    assert plan_sparingly(KEPT / 1e12, solver(plans)).weight_bytes == plans[0][0]


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


def test_a_plan_within_the_limit_is_taken_as_it_is():
    found = plan_within(10, 0, solver([(10, 1.0)]))
    assert (found.weight_bytes, found.search.gap, found.search.relaxed) == (10, 0.0, False)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("opt", [OptLevel.GLOBAL, OptLevel.UNIFORM, OptLevel.CONV_LAYOUT])
def test_networks_keep_their_limits(name, opt):
    mod = named(name)
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
    if opt is not OptLevel.CONV_LAYOUT:  # which plans each convolution separately
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
    mod = named("classifier")
    weights = weights_of(mod, extract(mod), cost_model().target, 2)
    # A 3x3 convolution of 3 to 17 channels, a dense layer of 17x3x3 to 10, and their biases.
    assert weights.original == 4 * (17 * 3 * 9 + 17 + 17 * 3 * 3 * 10 + 10)
    assert weights.fixed >= 4 * (17 * 3 * 3 * 10 + 10)


def layer(number, workload, forms):
    """Return a convolution whose packed weights count as 1000 bytes."""
    weights = np.zeros(workload.kernel_shape, np.float32)
    return ConvOp(
        name=f"conv2d_{number}",
        result=relax.Var(f"x{number}"),
        shape=workload.output_shape,
        dtype="float32",
        reads=(),
        workload=workload,
        weights=weights,
        operands=(),
        forms=forms,
    )


@pytest.mark.parametrize("in_integers", [3, 2, 0])
def test_integers_may_keep_a_share_of_what_float32_does(in_integers):
    """Float32 convolutions keep their share; integer ones do not make up for it."""
    plain = conv_workload(1, 64, 14, 14, 64, (3, 3), padding=(1, 1, 1, 1))
    whole = replace(
        plain, numerics=Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
    )
    form = ConvForm(whole, np.zeros(plain.kernel_shape, np.int8), ())
    costs = cost_model()
    kinds = [whole] * in_integers + [plain] * (3 - in_integers)
    choices = tuple(replace(costs.conv_choices(kind)[0], weight_bytes=1000) for kind in kinds)
    ops = tuple(layer(number, plain, (form,)) for number in range(3))
    network = SimpleNamespace(ops=ops, dense=())
    plan = SimpleNamespace(network=network, choices=choices, weight_bytes=3000)
    priced = replace(costs, byte_price=price_kept(costs.target))
    each = convolution_choices(plain, priced, fold=True)[0].weight_bytes
    most = most_of_integers(plan, costs, 500)
    assert (
        most
        == {
            3: int(0.45 * 3 * each + 500),  # more than 0.45 of both
            2: int(0.45 * 2 * each + 500 + 1000),
            0: None,
        }[in_integers]
    )
