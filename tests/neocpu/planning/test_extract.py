"""The operators that the layout search extracts from a network."""

import pytest
from networks import IMAGE, build, cost_model, float32, named, projection, residual, two_outputs
from tvm import relax

from neocpu.planning.extract import extract
from neocpu.planning.operators.concat_ops import ConcatOp, GatherOp
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.gate_ops import ChannelGateOp, GateOp
from neocpu.planning.operators.norm_ops import ChannelNormOp, GroupNormOp
from neocpu.planning.operators.pool_ops import GlobalPoolOp, PoolOp
from neocpu.planning.operators.resize_ops import ResizeOp
from neocpu.schedules.operators.statistics.gate import ChannelWindowWorkload, GateWorkload
from neocpu.schedules.vocabulary.workload import EpilogueOp

BIAS, ADD, RELU, SIGMOID = map(EpilogueOp, ("bias_add", "add", "relu", "sigmoid"))


def network(name):
    return extract(named(name))


def kinds(name):
    return [type(op) for op in network(name).ops]


def test_residual_add_and_relu_join_the_second_convolution():
    first, second = extract(build(residual, IMAGE)).ops
    assert first.workload.epilogue == (BIAS, RELU)
    assert second.workload.epilogue == (BIAS, ADD, RELU)
    shortcut = second.reads[1]
    assert shortcut.in_output_layout
    assert shortcut.var.same_as(first.result)
    assert len(second.absorbed) == 3


def test_the_later_of_two_convolutions_fuses_their_sum():
    left, right = extract(build(projection, IMAGE)).ops
    assert left.workload.epilogue == (BIAS,)
    assert right.workload.epilogue == (BIAS, ADD, RELU)
    assert right.reads[1].var.same_as(left.result)


def test_joins_and_pools_are_nodes_of_their_own():
    assert kinds("inception") == [ConvOp, ConvOp, PoolOp, ConvOp, ConcatOp, ConvOp]


def test_activations_after_a_group_normalisation_are_fused():
    first, normal, last, channels, _ = network("normalised").ops
    assert isinstance(normal, GroupNormOp)
    assert [step.kind for step in normal.workload.steps] == ["silu"]
    assert first.workload.epilogue == (BIAS,)
    assert last.workload.prologue == ()
    assert len(normal.absorbed) == 1
    assert isinstance(channels, ChannelNormOp)


def test_sums_of_squares_are_fused_with_their_producer():
    first, pool, *_ = network("response").ops
    assert isinstance(pool, GlobalPoolOp)
    assert (pool.kind, len(pool.absorbed)) == ("squares", 1)
    assert pool.reads[0].var.same_as(first.result)


def test_squares_with_another_reader_are_not_fused_with_their_producer():
    def body(net, x):
        square = net.emit(relax.op.multiply(x, x))
        return net.emit(relax.op.add(square, net.emit(relax.op.sum(square, [2, 3], True))))

    found = extract(build(body, IMAGE)).ops
    assert [type(op) for op in found] == [ElementwiseOp, GlobalPoolOp, ElementwiseOp]
    assert found[1].kind == "sum"


def test_a_pooling_and_two_layers_are_a_gate():
    body, gate, *_ = network("excite").ops
    assert isinstance(gate, GateOp)
    assert gate.workload == GateWorkload(body.shape, 5, 20, (BIAS, RELU), (BIAS, SIGMOID))
    assert gate.reads[0].var.same_as(body.result)


def test_a_pooling_and_a_convolution_along_channels_are_a_gate():
    body, gate, last = network("attend").ops
    assert isinstance(gate, ChannelGateOp)
    assert gate.workload == ChannelWindowWorkload(body.shape, 3, 1, (SIGMOID,))
    assert gate.reads[0].var.same_as(body.result)
    assert last.reads[1].var.same_as(gate.result)


@pytest.mark.parametrize("other", ["a reader", "strides", "two channels"])
def test_tensors_that_are_no_channel_gates_are_not_fused(other):
    def body(net, x):
        pooled = net.emit(relax.op.mean(x, [2, 3], True))
        row = net.emit(relax.op.reshape(pooled, (IMAGE[0], 1, 1, IMAGE[1])))
        channels, stride = 1 + (other == "two channels"), 1 + (other == "strides")
        near = net.emit(
            relax.op.nn.conv2d(
                row, net.const(channels, 1, 1, 3), strides=(1, stride), padding=(0, 1, 0, 1)
            )
        )
        count = channels * IMAGE[1] // stride
        gate = net.emit(relax.op.reshape(near, (IMAGE[0], count, 1, 1)))
        return net.emit(relax.op.multiply(pooled, gate)) if other == "a reader" else gate

    assert [type(op) for op in extract(build(body, IMAGE)).ops][:2] == [GlobalPoolOp, ConvOp]


@pytest.mark.parametrize("other", ["a reader", "a residual", "a window"])
def test_tensors_that_are_no_gates_are_not_fused(other):
    def body(net, x):
        pooled = net.emit(relax.op.mean(x, [2, 3], True))
        inner = net.conv(pooled, 12, 3 if other == "a window" else 1)
        if other == "a residual":
            inner = net.emit(relax.op.add(inner, pooled))
        outer = net.conv(inner, 12, 1)
        return net.emit(relax.op.add(outer, inner)) if other == "a reader" else outer

    found = extract(build(body, IMAGE)).ops
    assert [type(op) for op in found][:2] == [GlobalPoolOp, ConvOp]


def test_slices_of_channels_and_their_concat_are_gathers():
    wide, half, branch, joined, _ = network("split").ops
    assert isinstance(half, GatherOp)
    assert isinstance(joined, GatherOp)
    assert half.slices == ((3, 19),)
    assert [read.var for read in joined.reads] == [branch.result, half.result, wide.result]
    assert joined.slices == ((0, 8), (0, 16), (19, 29))
    assert len(joined.absorbed) == 2
    assert not network("split").nchw_reads.keys() & {wide.result, half.result, branch.result}


def test_operators_between_a_detectors_convolutions_take_every_layout():
    net = network("pyramid")
    assert kinds("pyramid").count(ResizeOp) == 2
    assert set(net.nchw_reads) == {net.ops[-1].result}
    _, half, deeper, joined, _ = network("cross_stage").ops
    assert isinstance(half, GatherOp)
    assert isinstance(joined, ConcatOp)
    assert half.is_view(float32(16))
    assert not half.is_view(float32(32))
    assert half.cost(float32(16), cost_model()).seconds == 0
    assert deeper.reads[1].in_output_layout


def test_preactivation_stays_outside_a_3x3_convolution():
    assert kinds("dense_block")[:5] == [ElementwiseOp] * 3 + [ConvOp, ConcatOp]


def test_gate_is_read_as_a_broadcast():
    excite = network("excite")
    assert GateOp in kinds("excite")
    gated = next(op for op in excite.ops if isinstance(op, ElementwiseOp))
    assert [read.shape[2:] for read in gated.reads] == [(9, 10), (1, 1)]


def test_layout_dependent_operators_read_nchw():
    classifier = network("classifier")
    assert [type(op) for op in classifier.ops] == [ConvOp, PoolOp]
    assert list(classifier.nchw_reads) == [classifier.ops[-1].result]


def test_an_output_ends_the_epilogue_and_must_be_nchw():
    net = extract(build(two_outputs, IMAGE, IMAGE))
    left, right = net.ops
    assert left.workload.epilogue == (BIAS,)
    assert right.workload.epilogue == (BIAS, ADD)
    assert set(net.nchw_reads) == {left.result, right.result}


def test_a_value_with_two_readers_ends_the_epilogue():
    def body(net, x):
        y = net.conv(x, 8)
        return net.emit(relax.op.add(net.relu(y), net.emit(relax.op.tanh(y))))

    ops = extract(build(body, IMAGE)).ops
    assert ops[0].workload.epilogue == (BIAS,)
    assert [type(op) for op in ops[1:]] == [ElementwiseOp] * 3


def test_broadcasts_across_channels_are_layout_dependent():
    def body(net, x):
        y = net.conv(x, 8)
        return net.emit(relax.op.multiply(y, net.conv(y, 1)))

    net = extract(build(body, IMAGE))
    assert [type(op) for op in net.ops] == [ConvOp, ConvOp]
    assert len(net.nchw_reads) == 2


def test_attributes_of_activations_are_kept():
    def body(net, x):
        y = net.emit(relax.op.clip(net.conv(x, 8), 0.0, 6.0))
        return net.emit(relax.op.nn.leakyrelu(net.conv(y, 8), 0.25))

    first, second = extract(build(body, IMAGE)).ops
    assert first.workload.epilogue[-1] == EpilogueOp("clip", (0.0, 6.0))
    assert second.workload.epilogue[-1] == EpilogueOp("leaky_relu", (0.25,))
