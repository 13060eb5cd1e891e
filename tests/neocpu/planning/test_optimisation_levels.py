"""Plans: levels, legality, costs."""

import pytest
from conv_workloads import conv_workload
from networks import HOST, IMAGE, NETWORKS, build, cost_model, float32, inception, named, residual
from tvm import relax

from neocpu.planning.choice import Measured
from neocpu.planning.extract import extract
from neocpu.planning.operators.concat_ops import ConcatOp
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.layout_op import Around
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.scheme import DirectScheme


def plan(name, opt=OptLevel.GLOBAL, costs=None):
    return plan_layouts(extract(named(name)), costs or cost_model(), opt)


@pytest.mark.parametrize("name", NETWORKS)
def test_global_plans_are_proven_and_no_worse_than_other_levels(name):
    best = plan(name)
    assert best.search.gap == 0.0
    for opt in OptLevel:
        assert best.search.cost <= plan(name, opt).search.cost * (1 + 1e-9)


def test_nchw_level_changes_no_layout():
    for choice in plan("inception", OptLevel.NCHW).choices:
        assert (choice.in_format, choice.out_format) == (float32(1), float32(1))


def test_conv_layout_blocks_convolutions_only():
    result = plan("inception", OptLevel.CONV_LAYOUT)
    assert result.via_nchw
    for op, choice in zip(result.network.ops, result.choices, strict=True):
        assert (choice.out_format.layout.block > 1) == isinstance(op, ConvOp)


def test_uniform_level_uses_one_block():
    result = plan("residual", OptLevel.UNIFORM)
    assert len({choice.out_format for choice in result.choices}) == 1


def test_a_concat_that_shifts_lanes_costs_more():
    network = extract(build(inception, IMAGE))
    concat = next(op for op in network.ops if isinstance(op, ConcatOp))
    fits, shifts = (concat.cost(float32(block), cost_model()).seconds for block in (16, 32))
    assert shifts > 1.5 * fits


def test_a_fused_chain_is_charged_once():
    """Batch norm and ReLU before a convolution: three operators, one pass over memory."""

    def chain(net, x):
        scaled = net.emit(relax.op.multiply(x, net.const(1, IMAGE[1], 1, 1)))
        shifted = net.emit(relax.op.add(scaled, net.const(1, IMAGE[1], 1, 1)))
        return net.conv(net.relu(shifted), 8)

    def single(net, x):
        return net.conv(net.relu(x), 8)

    def elementwise(body):
        network = extract(build(body, IMAGE))
        around = Around(network.in_registers)
        ops = [op for op in network.ops if isinstance(op, ElementwiseOp)]
        return len(ops), sum(op.cost(float32(1), cost_model(), around).seconds for op in ops)

    (three, chained), (one, alone) = elementwise(chain), elementwise(single)
    assert (three, one) == (3, 1)
    assert chained == pytest.approx(alone)


def test_measured_schemes_scale_the_estimates_and_failed_ones_are_avoided():
    network = extract(build(residual, IMAGE))
    workload = network.convs[0].workload
    costs = cost_model()
    known, broken = [choice.scheme for choice in costs.conv_choices(workload)][:2]
    seconds = 3 * registry.estimate(workload, known, costs.target, costs.threads)
    records = {broken: None, known: seconds}
    choices = cost_model(
        measured=lambda w: Measured(records if w == workload else {})
    ).conv_choices(workload)
    assert (choices[0].scheme, choices[0].source) == (known, "measured")
    assert choices[0].seconds == seconds
    assert broken not in {choice.scheme for choice in choices}
    assert {choice.source for choice in choices[1:]} == {"estimated"}
    assert all(choice.seconds > seconds for choice in choices[1:])


@pytest.mark.parametrize("source", ["measured", "measured on znver4 with 2 threads"])
def test_a_measured_scheme_counts_though_the_space_does_not_list_it(source):
    workload = conv_workload(1, 64, 8, 8, 64, (1, 1))
    unlisted = DirectScheme(16, 32, reg_n=1, unroll_ker=False, reg_oh=1)
    listed = registry.schemes(workload, HOST)
    assert unlisted not in listed
    records = {scheme: registry.estimate(workload, scheme, HOST, 1) for scheme in listed}
    costs = cost_model(measured=lambda _: Measured({unlisted: 1e-9, **records}, source))
    best = costs.conv_choices(workload)[0]
    assert (best.scheme, best.source) == (unlisted, source)


def test_algorithms_restrict_the_templates():
    costs = cost_model(templates=frozenset({"conv2d_nchw"}))
    result = plan("inception", costs=costs)
    templates = {choice.scheme.template for choice in result.choices if choice.scheme}
    assert templates == {"conv2d_nchw"}


def test_choices_cover_each_pair_of_layouts_once():
    network = extract(build(inception, (1, 64, 8, 8)))
    choices = cost_model().conv_choices(network.convs[0].workload)
    pairs = [(choice.in_format, choice.out_format) for choice in choices]
    assert len(set(pairs)) == len(pairs) > 1


def test_a_workload_whose_records_all_failed_is_estimated():
    network = extract(build(residual, IMAGE))
    costs = cost_model(measured=lambda w: Measured(dict.fromkeys(registry.schemes(w, HOST))))
    plan = plan_layouts(network, costs, OptLevel.GLOBAL)
    assert {choice.source for choice in plan.choices} == {"estimated"}
