"""Folded layout transforms: their costs, and the levels at which plans have them."""

from dataclasses import replace

import pytest
from conv_workloads import conv_workload
from networks import HOST, build, cost_model, float32

from neocpu.lowering.apply_plan import apply_plan
from neocpu.planning.choice import Measured
from neocpu.planning.convolution_choices import with_folds
from neocpu.planning.costs import formats
from neocpu.planning.extract import extract
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import DirectScheme

LANES = HOST.lanes("float32")
SMALL, MIDDLE = float32(LANES), float32(2 * LANES)
WORKLOAD = conv_workload(1, 4 * LANES, 14, 14, 4 * LANES, (1, 1))
THREADS = 2
FAST = 1e-6  # no estimate is as low
SCHEME = min(
    (s for s in registry.schemes(WORKLOAD, HOST) if isinstance(s, DirectScheme)),
    key=lambda scheme: registry.estimate(WORKLOAD, scheme, HOST, THREADS),
)
IN, OWN = formats(WORKLOAD, SCHEME)
OUT = next(x for x in (SMALL, MIDDLE) if x != OWN)
FOLDED = replace(SCHEME, out_bn=OUT.layout.block)
DIRECT = frozenset({"conv2d_direct"})


def choices(records):
    costs = cost_model(THREADS, measured=lambda w: Measured(records), templates=DIRECT)
    plain = costs.conv_choices(WORKLOAD)
    found = with_folds(plain, WORKLOAD, costs)
    return {(c.in_format, c.out_format): c for c in plain}, {
        (c.in_format, c.out_format): c for c in found
    }


def test_the_fastest_kernel_is_offered_for_every_block_it_can_store():
    plain, found = choices({SCHEME: FAST})
    own = found[IN, OWN]
    assert (own.scheme, own.seconds, own.source) == (SCHEME, FAST, "measured")
    folded = found[IN, OUT]
    assert folded.seconds < plain[IN, OUT].seconds
    assert (folded.scheme, folded.source) == (FOLDED, "measured and folded")
    estimates = [registry.estimate(WORKLOAD, s, HOST, THREADS) for s in (SCHEME, FOLDED)]
    slowdown = registry.conv_template(SCHEME).fold_penalty * estimates[1] / estimates[0]
    assert folded.seconds == pytest.approx(FAST * slowdown)
    assert all(choice.in_format.layout == choice.scheme.in_layout for choice in found.values())
    assert all(choice.out_format.layout == choice.scheme.out_layout for choice in found.values())


def test_a_fold_no_faster_than_its_pair_is_left_out():
    plain, found = choices({})
    for pair, choice in plain.items():
        assert found[pair].seconds <= choice.seconds
    best = min(plain.values(), key=lambda choice: choice.seconds)
    assert found[best.in_format, best.out_format] == best


def test_a_fold_on_record_costs_its_measured_time():
    _, found = choices({SCHEME: FAST, FOLDED: FAST / 2})
    choice = found[IN, OUT]
    assert (choice.scheme, choice.seconds, choice.source) == (FOLDED, FAST / 2, "measured")
    plain, found = choices({SCHEME: FAST, FOLDED: 1.0})
    assert found[IN, OUT].scheme != FOLDED
    assert found[IN, OUT].seconds <= plain[IN, OUT].seconds


def test_a_fold_that_failed_is_not_chosen():
    _, found = choices({SCHEME: FAST, FOLDED: None})
    assert found[IN, OUT].scheme != FOLDED


def disagreement(net, x):
    """Two convolutions, the first fast where it writes blocks that the second is slow to read."""
    return net.conv(net.relu(net.conv(x, 4 * LANES, 1)), 4 * LANES, 1)


def disagreeing_plan(opt):
    mod = build(disagreement, (1, 4 * LANES, 14, 14))
    network = extract(mod)
    first, second = (conv.workload for conv in network.convs)

    def measured(workload):
        """Make one output block fast for the first convolution, and another for the second."""
        if workload not in (first, second):
            return Measured()
        wanted = MIDDLE if workload == first else SMALL
        return Measured(
            {
                s: FAST if formats(workload, s)[workload == first] == wanted else 1e-3
                for s in registry.schemes(workload, HOST)
            }
        )

    assert first != second
    costs = cost_model(THREADS, measured=measured, templates=DIRECT)
    plan = plan_layouts(network, costs, opt)
    return plan, apply_plan(mod, plan, costs).transforms


def folded(plan):
    return [c for c in plan.choices if c.source.endswith("folded")]


def test_a_plan_folds_the_transform_between_two_convolutions():
    plan, transforms = disagreeing_plan(OptLevel.GLOBAL)
    assert len(folded(plan)) == 1
    shape = (1, 4 * LANES, 14, 14)
    ends = [
        t for t in transforms if t.shape == shape and float32(1) not in (t.source, t.destination)
    ]
    assert ends == []


@pytest.mark.parametrize("opt", [OptLevel.NCHW, OptLevel.CONV_LAYOUT, OptLevel.UNIFORM])
def test_the_papers_levels_do_not_fold(opt):
    plan, _ = disagreeing_plan(opt)
    assert folded(plan) == []
    assert all(getattr(c.scheme, "out_bn", 0) == 0 for c in plan.choices)
