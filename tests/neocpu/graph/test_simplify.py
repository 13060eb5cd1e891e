"""The whole sequence of rules on networks as exporters write them."""

import numpy as np
import pytest
import tvm
from op_counts import op_counts
from relax_modules import applied, calls, const, module, names
from tvm import relax

from neocpu.graph.simplify import eliminate_dead_code, simplify
from neocpu.ir.constants import constant_value

R = relax.op
RNG = np.random.default_rng(7)


def conv_bn(bb, x, channels_in, channels_out, groups=1, bias=True):
    """Convolution (with a transposed, reshaped bias) and batch normalization, as imported."""
    weight = const(RNG, channels_out, channels_in // groups, 3, 3)
    y = bb.emit(R.nn.conv2d(x, weight, padding=1, groups=groups))
    if bias:
        y = bb.emit(R.add(y, bb.emit(R.reshape(const(RNG, channels_out), (1, -1, 1, 1)))))
    return batch_norm(bb, y, channels_out)


def batch_norm(bb, x, channels):
    statistics = [*(const(RNG, channels) for _ in range(3)), const(RNG, channels, low=0.1)]
    outputs = bb.emit(R.nn.batch_norm(x, *statistics, axis=1, training=False))
    first, *_ = (bb.emit(relax.TupleGetItem(outputs, index)) for index in range(3))
    return first


def residual_network(bb, x):
    y = bb.emit(R.nn.relu(conv_bn(bb, x, 3, 7)))
    z = bb.emit(R.nn.relu(conv_bn(bb, y, 7, 7, groups=7, bias=False)))
    y = bb.emit(R.nn.relu(bb.emit(R.sum(bb.emit(R.stack([y, z], 0)), [0]))))
    y = bb.emit(R.reshape(bb.emit(R.mean(y, [2, 3], keepdims=True)), (2, 7)))
    y = bb.emit(R.matmul(y, bb.emit(R.permute_dims(const(RNG, 5, 7), [1, 0]))))
    return bb.emit(R.add(y, const(RNG, 5)))


def test_residual_network():
    after = applied(simplify, residual_network, (2, 3, 5, 5), rtol=1e-4, atol=1e-4)
    assert names(after) == [
        *("nn.conv2d", "add", "nn.relu"),
        *("nn.conv2d", "add", "nn.relu"),
        *("add", "nn.relu", "mean", "reshape", "matmul", "add"),
    ]


def dense_block(bb, x):
    features = [x]
    for step in range(3):
        y = bb.emit(R.concat(features, 1)) if step else x
        y = batch_norm(bb, y, 4 + 3 * step)
        y = bb.emit(R.multiply(y, const(RNG, 4 + 3 * step, 1, 1)))
        y = bb.emit(R.nn.relu(bb.emit(R.add(y, const(RNG, 4 + 3 * step, 1, 1)))))
        features.append(bb.emit(R.nn.conv2d(y, const(RNG, 3, 4 + 3 * step, 3, 3), padding=1)))
    return bb.emit(R.concat(features, 1))


def test_dense_block():
    after = applied(simplify, dense_block, (2, 4, 5, 5), rtol=1e-4, atol=1e-4)
    step = ["multiply", "add", "nn.relu", "nn.conv2d", "concat"]
    assert names(after) == step * 3
    for call in calls(after):
        if call.op.name in ("relax.multiply", "relax.add"):
            assert constant_value(call.args[1]).shape[2:] == (1, 1)
        if call.op.name == "relax.concat":
            assert len(call.args[0].fields) == 2


def squeeze_and_excite(bb, x):
    y = conv_bn(bb, x, 3, 5)
    y = bb.emit(R.multiply(y, bb.emit(R.sigmoid(y))))
    gate = bb.emit(R.mean(y, [2, 3], keepdims=True))
    gate = bb.emit(R.add(bb.emit(R.nn.conv2d(gate, const(RNG, 5, 5, 1, 1))), const(RNG, 5, 1, 1)))
    y = bb.emit(R.multiply(bb.emit(R.sigmoid(gate)), y))
    y = bb.emit(R.nn.conv2d_transpose(y, const(RNG, 5, 3, 2, 2), strides=2))
    return batch_norm(bb, y, 3), gate


def test_squeeze_and_excite_with_two_outputs():
    after = applied(simplify, squeeze_and_excite, (2, 3, 5, 5), rtol=1e-4, atol=1e-4)
    assert op_counts(after) == {
        "relax.add": 3,
        "relax.mean": 1,
        "relax.multiply": 1,
        "relax.nn.conv2d": 2,
        "relax.nn.conv2d_transpose": 1,
        "relax.nn.silu": 1,
        "relax.sigmoid": 1,
    }


@pytest.mark.parametrize("network", [residual_network, dense_block, squeeze_and_excite])
def test_the_result_is_a_fixpoint(network):
    shape = (2, 4, 5, 5) if network is dense_block else (2, 3, 5, 5)
    once = simplify(module(network, shape))
    assert simplify(once)["main"].same_as(once["main"])


def test_float16_stays_float16():
    def body(bb, x):
        weight = relax.const(RNG.uniform(-1, 1, (5, 3, 3, 3)), "float16")
        y = bb.emit(R.nn.conv2d(x, weight))
        y = bb.emit(R.divide(y, relax.const(np.full((5, 1, 1), 4), "float16")))
        return bb.emit(R.subtract(y, relax.const(np.full((5, 1, 1), 2), "float16")))

    before = module(body, (1, 3, 5, 5), dtype="float16")
    after = simplify(before)
    assert names(after) == ["nn.conv2d", "add"]
    tvm.ir.assert_structural_equal(before["main"].ty, after["main"].ty)


def test_outputs_that_are_inputs_or_constants_stay():
    def body(bb, x):
        return x, bb.emit(R.reshape(x, (1, 3))), bb.emit(R.exp(const(RNG, 3)))

    after = applied(simplify, body, (1, 3))
    assert op_counts(after) == {}


def test_dead_code_and_unused_functions_are_removed():
    def body(bb, x):
        unused = bb.emit_te(lambda a: tvm.te.compute(a.shape, lambda i: a[i] + 1), x)
        bb.emit(R.exp(unused))
        return bb.emit(R.abs(x))

    after = eliminate_dead_code(module(body, (3,)))
    expected = module(lambda bb, x: bb.emit(R.abs(x)), (3,))
    assert len(after.functions) == 1
    assert names(after) == names(expected)
