"""Costs of transforms and concats: classes, canonical workloads, and the effect of records."""

import itertools
import math

import pytest
from networks import HOST, NETWORKS, cost_model, float32, named

from neocpu.lowering.apply_plan import apply_plan
from neocpu.planning.choice import Measured
from neocpu.planning.extract import extract
from neocpu.planning.memory_costs import (
    CHANNELS,
    SIDES,
    MemoryClass,
    canonical_workload,
    transform_class,
)
from neocpu.planning.network import memory_workloads
from neocpu.planning.operators.concat_ops import ConcatOp, GatherOp
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.pool_ops import PoolOp
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.schedules import registry
from neocpu.schedules.estimates.memory_traffic import fork_seconds
from neocpu.schedules.operators.concat import is_shifted
from neocpu.schedules.vocabulary.layout import NCHW
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

LANES = HOST.lanes("float32")
PLAIN, BLOCK, WIDE = float32(1), float32(LANES), float32(2 * LANES)
SHAPE = (1, 4 * LANES, 10, 12)


def times_the_estimate(factors):
    """Records of the canonical workloads of ``factors``; None stands for a failure."""

    def measured(workload):
        if workload not in factors:
            return Measured()
        (scheme,) = registry.schemes(workload, HOST)
        factor = factors[workload]
        seconds = factor and factor * registry.estimate(workload, scheme, HOST, 2)
        return Measured({scheme: seconds}, "measured on znver9 with 2 threads")

    return cost_model(measured=measured)


def canonical(kind, side):
    return canonical_workload(kind, "float32", side, HOST)


def network_of(name):
    mod = named(name)
    return mod, extract(mod)


def op_of(kind, name):
    return next(op for op in network_of(name)[1].ops if isinstance(op, kind))


@pytest.mark.parametrize("cpu", ["cortex-a72", "znver3", "znver4"])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_canonical_workloads_belong_to_their_class(cpu, dtype):
    found = {}
    for kind, side in itertools.product(MemoryClass, SIDES):
        workload = canonical_workload(kind, dtype, side, parse_target(cpu))
        found[workload] = kind
        if isinstance(workload, TransformWorkload):
            ends = workload.source.layout, workload.destination.layout
            assert transform_class(*ends) == kind
            assert all(layout.divides(workload.channels) for layout in ends)
        elif workload.operator == "concat":
            shifted = kind is MemoryClass.SHIFTED_CONCAT
            assert is_shifted(workload.channels, workload.block) == shifted
        else:
            assert kind is MemoryClass.ELEMENTWISE
    assert len(found) == len(MemoryClass) * len(SIDES)


def test_costs_without_records_are_estimates():
    cost = cost_model().transform(SHAPE, PLAIN, BLOCK)
    workload = TransformWorkload.between(SHAPE, PLAIN, BLOCK)
    (scheme,) = registry.schemes(workload, HOST)
    assert cost.seconds == registry.estimate(workload, scheme, HOST, 2)
    assert cost.source == "estimated"
    assert cost_model().transform(SHAPE, BLOCK, BLOCK).seconds == 0


@pytest.mark.parametrize("dest", [BLOCK, WIDE, float32(3)], ids=str)
def test_a_record_speaks_for_its_class(dest):
    plain, costs = cost_model(), times_the_estimate({canonical(MemoryClass.PACK, 14): 3.0})
    packed = costs.transform(SHAPE, PLAIN, dest)
    assert packed.seconds == pytest.approx(3 * plain.transform(SHAPE, PLAIN, dest).seconds)
    assert packed.source == "measured on znver9 with 2 threads"
    for source, other in ((dest, PLAIN), (BLOCK, WIDE), (WIDE, BLOCK)):
        assert costs.transform(SHAPE, source, other) == plain.transform(SHAPE, source, other)


@pytest.mark.parametrize(
    ("pixels", "factor"),
    [(14 * 14, 1), (28 * 28, 16), (14 * 28, 4), (14 * 28 * 2**0.5, 8), (1, 1), (10**4, 16)],
)
def test_costs_between_two_sizes_are_interpolated(pixels, factor):
    kind = MemoryClass.NARROW
    costs = times_the_estimate({canonical(kind, 14): 1.0, canonical(kind, 28): 16.0})
    shape = (1, CHANNELS, round(pixels), 1)
    plain = cost_model().transform(shape, WIDE, BLOCK)
    ratio = costs.transform(shape, WIDE, BLOCK).seconds / plain.seconds
    assert ratio == pytest.approx(factor, rel=0.01)


def test_a_failed_record_says_nothing():
    costs = times_the_estimate({canonical(MemoryClass.WIDEN, 14): None})
    cost = costs.transform(SHAPE, BLOCK, WIDE)
    assert cost == cost_model().transform(SHAPE, BLOCK, WIDE)


def test_joins_are_scaled_and_pools_are_not():
    concat, pool = op_of(ConcatOp, "inception"), op_of(PoolOp, "inception")
    multiply = op_of(ElementwiseOp, "excite")
    factors = {MemoryClass.CONCAT: 2.0, MemoryClass.SHIFTED_CONCAT: 5.0}
    factors[MemoryClass.ELEMENTWISE] = 3.0
    plain = cost_model()
    costs = times_the_estimate({canonical(k, 14): f for k, f in factors.items()})
    shifting = float32(32)
    for op, form, factor in (
        (concat, PLAIN, 2),
        (concat, shifting, 5),
        (multiply, PLAIN, 3),
        (multiply, BLOCK, 3),
        (pool, PLAIN, 1),
    ):
        expected = factor * op.cost(form, plain).seconds
        assert op.cost(form, costs).seconds == pytest.approx(expected)
    assert pool.memory_class(BLOCK.layout) is None


def test_a_gather_moves_only_the_channels_it_takes():
    gathers = [op for op in network_of("split")[1].ops if isinstance(op, GatherOp)]
    assert [op.memory_class(NCHW) for op in gathers] == [MemoryClass.CONCAT] * 2
    assert [op.memory_class(BLOCK.layout) for op in gathers] == [MemoryClass.SHIFTED_CONCAT] * 2
    costs, fork = cost_model(), fork_seconds(2, HOST)
    small, large = (op.cost(PLAIN, costs).seconds - fork for op in gathers)
    channels = [op.shape[1] for op in gathers]
    assert large / small == pytest.approx(channels[1] / channels[0])


def test_large_feature_maps_ask_for_large_workloads():
    _, network = network_of("residual")
    ((_, channels, height, width),) = {op.shape for op in network.ops}
    elements = channels * height * width
    sides = {w.width for w in memory_workloads(network, HOST)}
    closest = min(SIDES, key=lambda s: abs(math.log(CHANNELS * s * s / elements)))
    assert closest in sides


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("opt", [OptLevel.GLOBAL, OptLevel.CONV_LAYOUT])
def test_measured_workloads_of_a_network_cover_its_plan(name, opt):
    mod, network = network_of(name)
    asked = memory_workloads(network, HOST)
    assert len(asked) == len(set(asked)) <= len(MemoryClass) * len(SIDES)
    costs = times_the_estimate(dict.fromkeys(asked, 1.0))
    plan = plan_layouts(network, costs, opt)
    for op, choice in zip(network.ops, plan.choices, strict=True):
        known = isinstance(op, ElementwiseOp | ConcatOp | GatherOp)
        assert (choice.source != "estimated") == known or isinstance(op, ConvOp)
    rewritten = apply_plan(mod, plan, costs)
    sources = {transform.cost.source for transform in rewritten.transforms}
    assert sources <= {"measured on znver9 with 2 threads"}


def test_records_change_the_plan():
    """Expensive transforms are avoided between two convolutions and a concat."""
    mod, network = network_of("inception")
    kinds = (MemoryClass.PACK, MemoryClass.UNPACK, MemoryClass.WIDEN, MemoryClass.NARROW)

    def transforms(factor):
        costs = times_the_estimate({canonical(kind, 14): factor for kind in kinds})
        plan = plan_layouts(network, costs, OptLevel.GLOBAL)
        return len(apply_plan(mod, plan, costs).transforms)

    assert transforms(1e3) < transforms(1e-3)


def test_convolutions_are_not_among_the_memory_workloads():
    _, network = network_of("residual")
    assert not any(isinstance(w, Conv2dWorkload) for w in memory_workloads(network, HOST))
    assert {type(w) for w in memory_workloads(network_of("dense_block")[1], HOST)} == {
        TransformWorkload,
        JoinWorkload,
    }
