"""The layout graph charges exactly the operators of the rewritten network."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from networks import HOST, IMAGE, NETWORKS, build, cost_model, float32, named, residual
from tvm import relax

from neocpu.frontend import models
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from neocpu.lowering.apply_plan import apply_plan
from neocpu.plan.reports.decisions import operator_reports
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.planning.network_graph import build_graph, wanted
from neocpu.planning.operators.layout_op import LayoutOp, Read
from neocpu.planning.operators.network_costs import NetworkCosts
from neocpu.planning.optimisation_levels import OptLevel, operator_choices, plan_layouts
from neocpu.search.solver.plan import SearchLimits, solve

PLAIN = float32(1)
BLOCKS = (PLAIN, float32(8), float32(16))
SHAPE = (1, 16, 4, 4)


class Named:
    """A variable: something with a name."""

    def __init__(self, name):
        self.name = name


class MadeUpCosts:
    """A transform's cost depends on both layouts, and not in the same way."""

    def price(self, choice):
        return choice.seconds

    def transform(self, shape, source, dest, *, from_registers=False):
        seconds = 1.0 + source.layout.block / 16 + dest.layout.block / 64 + from_registers / 4
        return Cost(0.0 if source == dest else seconds)


def random_network(rng, size):
    """Operators that read one to three feature maps, inputs or results, some of them twice."""
    variables = [Named("x0"), Named("x1")]
    ops = []
    for index in range(size):
        sources = rng.integers(0, len(variables), int(rng.integers(1, 4)))
        reads = tuple(
            Read(variables[s], SHAPE, "float32", bool(rng.random() < 0.3)) for s in sources
        )
        variables.append(Named(f"v{index}"))
        ops.append(
            LayoutOp(
                name=f"op_{index}", result=variables[-1], shape=SHAPE, dtype="float32", reads=reads
            )
        )
    kept = {op.result: op.shape for op in ops if rng.random() < 0.2}
    return Network(ops=tuple(ops), dense=(), nchw_reads=kept)


def random_choices(rng):
    """Return choices as of a convolution (pairs of layouts) or of a concat (one layout each)."""
    if rng.random() < 0.3:
        return [
            Choice(in_format=layout, out_format=layout, seconds=float(rng.random()))
            for layout in BLOCKS
        ]
    pairs = list(itertools.product(BLOCKS, BLOCKS))
    picked = rng.choice(len(pairs), int(rng.integers(1, 4)), replace=False)
    return [
        Choice(in_format=pairs[i][0], out_format=pairs[i][1], seconds=float(rng.random()))
        for i in picked
    ]


def emitted(network, chosen, costs, via_nchw=False):
    """Return a plan's cost by definition: its operators, and each transform once."""
    total = math.fsum(choice.seconds for choice in chosen)
    made = defaultdict(set)
    source = defaultdict(lambda: PLAIN)
    for op, choice in zip(network.ops, chosen, strict=True):
        if via_nchw:
            total += costs.transform(op.shape, choice.out_format, PLAIN).seconds
        else:
            source[op.result] = choice.out_format
        made[op.result] |= {PLAIN} if op.result in network.nchw_reads else set()
        for read in op.reads:
            made[read.var].add(wanted(read, choice))
    for var, layouts in made.items():
        total += sum(costs.transform(SHAPE, source[var], layout).seconds for layout in layouts)
    return total


@pytest.mark.parametrize("via_nchw", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_plan_of_random_networks(seed, via_nchw):
    rng = np.random.default_rng(seed)
    network = random_network(rng, 2 + seed % 4)
    choices = [random_choices(rng) for _ in network.ops]
    costs = MadeUpCosts()
    plan = solve(build_graph(network, choices, costs, via_nchw))
    best = min(emitted(network, c, costs, via_nchw) for c in itertools.product(*choices))
    assert plan.cost == pytest.approx(best)
    chosen = [options[i] for options, i in zip(choices, plan.choices, strict=False)]
    assert emitted(network, chosen, costs, via_nchw) == pytest.approx(plan.cost)


@pytest.mark.parametrize("solver", ["auto", "dp", "pbqp"])
def test_no_plan_pays_for_a_layout_that_nobody_reads(solver):
    costs, proven = MadeUpCosts(), set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        network = random_network(rng, 12)
        choices = [random_choices(rng) for _ in network.ops]
        plan = solve(build_graph(network, choices, costs), solver, SearchLimits(0.0, 0))
        chosen = [options[i] for options, i in zip(choices, plan.choices, strict=False)]
        assert plan.cost == pytest.approx(emitted(network, chosen, costs))
        proven.add(plan.proven)
    assert False in proven  # otherwise no plan could pay too much


def test_a_graph_without_shared_feature_maps_has_a_node_per_operator():
    network = extract(build(lambda net, x: net.conv(net.conv(x, 16), 16), IMAGE))
    graph = build_graph(network, operator_choices(network, cost_model()), cost_model())
    assert [node.name for node in graph.nodes] == [op.name for op in network.ops]


def test_a_hub_offers_the_layouts_of_readers_and_required_ones():
    network = extract(build(residual, IMAGE))
    eight, sixteen = float32(8), float32(16)
    both = [
        Choice(in_format=PLAIN, out_format=eight, seconds=0.0),
        Choice(in_format=eight, out_format=sixteen, seconds=0.0),
    ]
    graph = build_graph(network, [both, both], cost_model())
    # conv2d_1 reads conv2d_0's result twice: once as input, once to add it to its own output.
    assert [node.name for node in graph.nodes] == ["conv2d_0", "conv2d_1"]
    shape = network.ops[0].shape
    pairs = [cost_model().transform(shape, eight, to).seconds for to in (PLAIN, sixteen)]
    assert graph.edges[0].costs[0].tolist() == pytest.approx(pairs)

    def shared(net, x):
        y = net.conv(x, 16)
        return net.emit(relax.op.add(net.conv(y, 16), net.conv(net.relu(y), 16)))

    network = extract(build(shared, IMAGE))
    choices = [both] * len(network.ops)
    graph = build_graph(network, choices, cost_model())
    hub = graph.nodes[len(network.ops)]
    assert hub.name == "layouts of conv2d_0"
    assert hub.choices == ("NCHW float32", "NCHW8c float32", "NCHW float32 and NCHW8c float32")


def assert_costs_what_is_emitted(mod, opt):
    costs = cost_model()
    plan = plan_layouts(extract(mod), costs, opt)
    rewritten = apply_plan(mod, plan, costs)
    kernels = sum(choice.seconds for choice in plan.choices)
    transforms = sum(transform.cost.seconds for transform in rewritten.transforms)
    assert plan.search.cost == pytest.approx(kernels + transforms, rel=1e-9)
    reports = operator_reports(plan, rewritten, NetworkCosts.of(HOST, 2, 0.0))
    layers = sum(report.seconds for report in reports if report.kind == "dense")
    listed = sum(report.seconds for report in reports) + transforms
    assert plan.search.cost + layers == pytest.approx(listed, rel=1e-9)


@pytest.mark.parametrize("opt", OptLevel)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_plans_cost_is_that_of_its_operators_and_transforms(name, opt):
    assert_costs_what_is_emitted(named(name), opt)


@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v3_large",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("densenet121", "inception_v3")),
    ],
)
def test_also_in_networks_that_share_most_feature_maps(name):
    mod = simplify(import_relax(load_model(models.build(name))))
    assert_costs_what_is_emitted(mod, OptLevel.GLOBAL)


def test_a_chain_split_by_a_transform_is_charged_for_memory_again():
    """A transform between two elementwise operators costs more than one after both."""

    def chain(net, x):
        return net.emit(relax.op.exp(net.emit(relax.op.tanh(x))))

    network = extract(build(chain, IMAGE))
    costs, blocked = cost_model(), float32(16)
    options = [
        (
            Choice(in_format=PLAIN, out_format=PLAIN, seconds=0.0),
            Choice(in_format=blocked, out_format=blocked, seconds=0.0),
        )
        for _ in network.ops
    ]
    graph = build_graph(network, options, costs)
    between, behind = graph.cost((1, 0)), graph.cost((1, 1))
    split, plain = (
        costs.transform(IMAGE, blocked, PLAIN, from_registers=fused).seconds
        for fused in (True, False)
    )
    assert between - behind == pytest.approx(split - plain)
    assert between > behind


@pytest.mark.parametrize("prefer", BLOCKS)
@pytest.mark.parametrize("join", [relax.op.add, lambda a, b: relax.op.concat([a, b], axis=1)])
def test_a_join_may_take_either_inputs_layout_or_neither(join, prefer):
    """Its inputs are fixed to two layouts; its own cost decides."""

    def body(net, x):
        return net.emit(join(net.emit(relax.op.tanh(x)), net.emit(relax.op.exp(x))))

    network = extract(build(body, IMAGE))
    assert len(network.ops) == 3
    inputs = [[Choice(in_format=layout, out_format=layout, seconds=0.0)] for layout in BLOCKS[:2]]
    own = [
        Choice(in_format=layout, out_format=layout, seconds=0.0 if layout == prefer else 10.0)
        for layout in BLOCKS
    ]
    plan = solve(build_graph(network, [*inputs, own], MadeUpCosts()))
    assert own[plan.choices[2]].out_format == prefer


@pytest.mark.parametrize("own", BLOCKS)
def test_a_residual_may_be_transformed_to_the_sum_or_the_sum_to_it(own):
    """The second convolution's epilogue adds in the layout that it writes."""
    network = extract(named("projection"))
    assert network.ops[1].reads[1].in_output_layout
    choices = [
        Choice(in_format=PLAIN, out_format=to, seconds=0.0 if to == own else 10.0) for to in BLOCKS
    ]
    plan = solve(
        build_graph(
            network,
            [[Choice(in_format=PLAIN, out_format=BLOCKS[2], seconds=0.0)], choices],
            MadeUpCosts(),
        )
    )
    assert choices[plan.choices[1]].out_format == own
