"""The elementwise chains that 1x1 convolutions fuse as prologues."""

import pytest
from networks import NETWORKS, build
from tvm import relax

from neocpu.planning.extract import extract
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.pool_ops import GlobalPoolOp
from neocpu.planning.plan_options import PlanOptions
from neocpu.schedules.vocabulary.workload import EpilogueOp

SHAPE = (1, 16, 5, 6)
SCALE, BIAS, RELU, GATE = (EpilogueOp(kind) for kind in ("scale", "bias_add", "relu", "gate"))


def ops(body, shape=SHAPE, **options):
    return extract(build(body, shape), **options).ops


def last_prologue(body, shape=SHAPE):
    conv = ops(body, shape)[-1]
    assert isinstance(conv, ConvOp)
    return conv.workload.prologue


def test_normalisation_activation_and_gate_join_the_convolutions():
    body, (shape,) = NETWORKS["preactivation"]
    first, pool, squeeze, last = ops(body, shape)
    assert isinstance(pool, GlobalPoolOp)
    assert first.workload.prologue == (SCALE, BIAS, RELU)
    assert [operand.shape for operand in first.before] == [(19,), (19,)]
    assert first.workload.epilogue == (BIAS, RELU)  # its own; the gate reads it from memory
    assert len(first.absorbed) == 3 + 2
    assert last.workload.prologue == (GATE,)
    data, gate = last.reads
    assert data.var.same_as(first.result)
    assert gate.var.same_as(squeeze.result)
    assert (gate.shape, gate.in_output_layout) == ((2, 20, 1, 1), False)


def test_prologues_are_matched_only_on_request():
    body, (shape,) = NETWORKS["preactivation"]
    found = ops(body, shape, prologues=False)
    assert not any(op.workload.prologue for op in found if isinstance(op, ConvOp))
    assert sum(isinstance(op, ElementwiseOp) for op in found) == 4


def test_steps_that_a_producer_can_fuse_are_its_epilogue():
    assert last_prologue(lambda net, x: net.conv(net.relu(net.conv(x, 16)), 16, 1)) == ()


@pytest.mark.parametrize("attrs", [{"kernel": 3}, {"kernel": 1, "groups": 2}], ids=str)
def test_other_convolutions_have_no_prologues(attrs):
    assert last_prologue(lambda net, x: net.conv(net.relu(x), 32, **attrs)) == ()


def test_convolutions_of_few_channels_take_nothing():
    assert last_prologue(lambda net, x: net.conv(net.relu(x), 15, 1)) == ()
    assert last_prologue(lambda net, x: net.conv(net.relu(x), 32, 1), (1, 15, 4, 4)) == ()


def test_a_value_with_another_reader_is_not_fused():
    def body(net, x):
        active = net.relu(x)
        return net.emit(relax.op.concat([net.conv(active, 16, 1), active], axis=1))

    found = ops(body)
    assert next(op for op in found if isinstance(op, ConvOp)).workload.prologue == ()


def test_an_output_is_not_fused():
    def body(net, x):
        active = net.relu(x)
        return net.emit(relax.Tuple([active, net.conv(active, 16, 1)]))

    assert ops(body)[-1].workload.prologue == ()


def test_the_chain_ends_at_an_operator_that_is_no_step():
    def body(net, x):
        grown = net.emit(relax.op.exp(net.relu(x)))  # may become infinite in the padded lanes
        return net.conv(net.relu(net.emit(relax.op.add(grown, x))), 16, 1)

    assert last_prologue(body) == (RELU,)


@pytest.mark.parametrize(
    ("opt", "templates", "fuses"),
    [
        ("global", None, True),
        ("uniform", None, True),
        ("nchw", None, False),
        ("global", {"conv2d_direct"}, False),
        ("global", {"conv2d_direct", "conv2d_pointwise"}, True),
    ],
)
def test_prologues_need_the_pointwise_template(opt, templates, fuses):
    assert PlanOptions.parse(opt, "auto", None).fuses_prologues(templates) == fuses
