"""Batch normalisations become scales and biases, which fold into each other and into weights."""

import numpy as np
import pytest
import tvm
from op_counts import op_counts
from relax_modules import assert_same_results, assert_unchanged, calls, const, module, names
from tvm import relax

from neocpu.graph.folding.fold_scale import fold_batch_norm, fold_scale
from neocpu.ir.constants import constant_value, make_const

R = relax.op


def batch_norm(bb, data, statistics, **attrs):
    """Emit batch_norm and return its first result."""
    attrs = {"axis": 1, "epsilon": 1e-3, "training": False, **attrs}
    return bb.emit(relax.TupleGetItem(bb.emit(R.nn.batch_norm(data, *statistics, **attrs)), 0))


def random_statistics(channels, seed=1):
    """Gamma, beta, mean, variance."""
    rng = np.random.default_rng(seed)
    return [*(const(rng, channels) for _ in range(3)), const(rng, channels, low=1e-3)]


def test_becomes_multiply_and_add_with_channel_constants():
    gamma, beta, mean, variance = (
        relax.const(np.array(values, "float32"))
        for values in ([2.0, 3.0], [1.0, 2.0], [4.0, 0.5], [0.25, 4.0])
    )

    def before(bb, x):
        return batch_norm(bb, x, [gamma, beta, mean, variance], epsilon=0.0)

    def expected(bb, x):
        scale = relax.const(np.array([4.0, 1.5], "float32").reshape(1, 2, 1, 1))
        shift = relax.const(np.array([-15.0, 1.25], "float32").reshape(1, 2, 1, 1))
        return bb.emit(R.add(bb.emit(R.multiply(x, scale)), shift))

    shape = (3, 2, 5, 7)
    tvm.ir.assert_structural_equal(fold_batch_norm(module(before, shape)), module(expected, shape))


@pytest.mark.parametrize("shape", [(2, 5, 3, 7), (2, 5), (2, 5, 3)])
@pytest.mark.parametrize("attrs", [{}, {"center": False}, {"scale": False}])
def test_computes_the_same(shape, attrs):
    before = module(lambda bb, x: batch_norm(bb, x, random_statistics(5), **attrs), shape)
    after = fold_batch_norm(before)
    assert op_counts(after) == {"relax.add": 1, "relax.multiply": 1}
    assert_same_results(before, after)


def test_tiny_variance_keeps_float32_accuracy():
    gamma = relax.const(np.array([1e-3], "float32"))
    zero = relax.const(np.array([0.0], "float32"))
    variance = relax.const(np.array([1e-12], "float32"))
    before = module(
        lambda bb, x: batch_norm(bb, x, [gamma, zero, zero, variance], epsilon=1e-10), (1, 1, 4)
    )
    assert_same_results(before, fold_batch_norm(before), rtol=1e-6)


def test_training_mode_stays():
    before = module(
        lambda bb, x: batch_norm(bb, x, random_statistics(5), training=True), (2, 5, 3, 7)
    )
    assert_unchanged(fold_batch_norm, before)


def test_statistics_that_are_inputs_stay():
    def body(bb, x, mean):
        gamma, beta, _, variance = random_statistics(5)
        return batch_norm(bb, x, [gamma, beta, mean, variance])

    assert_unchanged(fold_batch_norm, module(body, (2, 5, 3, 7), (5,)))


RNG = np.random.default_rng(3)


def ones(*shape, value=1.0):
    """Return a constant filled with ``value``."""
    return make_const(np.full(shape, value, "float32"))


def conv(bb, x, channels_out, channels_in, groups=1, kernel=3):
    """Emit a random padded convolution."""
    weight = const(RNG, channels_out, channels_in // groups, kernel, kernel)
    return bb.emit(R.nn.conv2d(x, weight, padding=kernel // 2, groups=groups))


def test_chain_after_a_convolution_becomes_its_weights_and_one_bias():
    weight = const(RNG, 5, 3, 3, 3)
    scale = np.arange(1, 6, dtype="float32").reshape(5, 1, 1)

    def before(bb, x):
        y = bb.emit(R.nn.conv2d(x, weight))
        y = bb.emit(R.add(y, ones(1, 5, 1, 1, value=2.0)))
        y = bb.emit(R.multiply(y, make_const(scale)))
        return bb.emit(R.add(y, ones(5, 1, 1, value=3.0)))

    def expected(bb, x):
        y = bb.emit(R.nn.conv2d(x, make_const(weight.value.numpy() * scale[..., None])))
        return bb.emit(R.add(y, make_const((scale * 2 + 3)[None])))

    shape = (2, 3, 7, 7)
    tvm.ir.assert_structural_equal(fold_scale(module(before, shape)), module(expected, shape))


@pytest.mark.parametrize("groups", [1, 2, 14])
@pytest.mark.parametrize("scale_shape", [(1, 14, 1, 1), (14, 1, 1), (), (1,)])
def test_convolution_computes_the_same(groups, scale_shape):
    def body(bb, x):
        y = bb.emit(R.multiply(conv(bb, x, 14, 14, groups), const(RNG, *scale_shape)))
        y = bb.emit(R.add(y, const(RNG, *scale_shape)))
        y = bb.emit(R.multiply(const(RNG, *scale_shape), y))
        return bb.emit(R.nn.relu(bb.emit(R.add(const(RNG, 1, 14, 1, 1), y))))

    before = module(body, (2, 14, 5, 6))
    after = fold_scale(before)
    assert op_counts(after) == {"relax.add": 1, "relax.nn.conv2d": 1, "relax.nn.relu": 1}
    assert_same_results(before, after)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_scales_its_iohw_weight(groups):
    def body(bb, x):
        weight = const(RNG, 6, 10 // groups, 3, 3)
        y = bb.emit(R.nn.conv2d_transpose(x, weight, strides=2, groups=groups))
        y = bb.emit(R.multiply(y, const(RNG, 1, 10, 1, 1)))
        return bb.emit(R.add(y, const(RNG, 1, 10, 1, 1)))

    before = module(body, (2, 6, 5, 4))
    after = fold_scale(before)
    assert op_counts(after) == {"relax.add": 1, "relax.nn.conv2d_transpose": 1}
    assert_same_results(before, after)


def test_dense_layer_scales_its_columns_and_gets_a_flat_bias():
    def body(bb, x):
        y = bb.emit(R.matmul(x, const(RNG, 7, 11)))
        y = bb.emit(R.add(y, const(RNG, 11)))
        y = bb.emit(R.multiply(y, const(RNG, 1, 11)))
        return bb.emit(R.add(y, const(RNG, 1, 11)))

    before = module(body, (3, 7))
    after = fold_scale(before)
    assert op_counts(after) == {"relax.add": 1, "relax.matmul": 1}
    _, add = calls(after)
    assert constant_value(add.args[1]).shape == (11,)
    assert_same_results(before, after)


def test_pre_activation_chain_merges_but_stays_before_the_relu():
    def body(bb, x):
        y = bb.emit(R.nn.relu(x))
        for shape in ((1, 5, 1, 1), (5, 1, 1)):
            y = bb.emit(R.multiply(y, const(RNG, *shape)))
            y = bb.emit(R.add(y, const(RNG, *shape)))
        return conv(bb, bb.emit(R.nn.relu(y)), 7, 5)

    before = module(body, (2, 5, 4, 4))
    after = fold_scale(before)
    assert names(after) == ["nn.relu", "multiply", "add", "nn.relu", "nn.conv2d"]
    assert_same_results(before, after)


def test_scalar_bias_of_a_convolution_is_spread_over_its_channels():
    before = module(lambda bb, x: bb.emit(R.add(conv(bb, x, 5, 3), ones())), (1, 3, 4, 4))
    after = fold_scale(before)
    _, add = calls(after)
    assert constant_value(add.args[1]).shape == (1, 5, 1, 1)
    assert_same_results(before, after)


def two_consumers(bb, x):
    y = conv(bb, x, 5, 3)
    return bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1))), bb.emit(R.nn.relu(y))


def two_consumers_of_a_bias(bb, x):
    y = bb.emit(R.add(conv(bb, x, 5, 3), const(RNG, 1, 5, 1, 1)))
    return bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1))), bb.emit(R.nn.relu(y))


def output(bb, x):
    y = conv(bb, x, 5, 3)
    return y, bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1)))


def scaled_conv(*shape):
    return lambda bb, x: bb.emit(R.multiply(conv(bb, x, 4, 3), const(RNG, *shape)))


def enlarged(bb, x):
    return bb.emit(R.multiply(bb.emit(R.matmul(x, const(RNG, 3, 5))), const(RNG, 2, 1, 5)))


def outer_product(bb, x):
    y = bb.emit(R.multiply(x, const(RNG, 1, 3, 1, 1)))
    return bb.emit(R.multiply(y, const(RNG, 1, 1, 4, 4)))


def overflow(bb, x):
    return bb.emit(R.multiply(bb.emit(R.multiply(x, ones(value=-3e38))), ones(value=2.0)))


def overflow_of_weights(bb, x):
    y = bb.emit(R.nn.conv2d(x, ones(4, 3, 1, 1, value=1e30)))
    return bb.emit(R.multiply(y, ones(value=1e30)))


def weight_is_an_input(bb, x, weight):
    return bb.emit(R.multiply(bb.emit(R.nn.conv2d(x, weight)), const(RNG, 1, 5, 1, 1)))


def residual(bb, x):
    y = bb.emit(R.add(conv(bb, x, 3, 3), x))
    return bb.emit(R.multiply(y, const(RNG, 1, 3, 1, 1)))


IMAGE = (2, 3, 4, 4)
STAYING = {
    "two consumers": (two_consumers, IMAGE),
    "a bias with two consumers": (two_consumers_of_a_bias, IMAGE),
    "an output": (output, IMAGE),
    "a constant for each pixel": (scaled_conv(1, 1, 4, 4), IMAGE),
    "a constant for each image": (scaled_conv(2, 4, 1, 1), IMAGE),
    "a constant that enlarges the result": (enlarged, (4, 3)),
    "constants with an outer product": (outer_product, IMAGE),
    "a product that overflows": (overflow, IMAGE),
    "weights that overflow": (overflow_of_weights, IMAGE),
    "a weight that is an input": (weight_is_an_input, IMAGE, (5, 3, 3, 3)),
    "a residual sum": (residual, IMAGE),
}


@pytest.mark.parametrize("name", STAYING)
def test_constants_that_stay(name):
    assert_unchanged(fold_scale, module(*STAYING[name]))


def test_integers_are_left_alone():
    def body(bb, x):
        one = relax.const(1, "int32")
        return bb.emit(R.multiply(bb.emit(R.add(x, one)), one))

    assert_unchanged(fold_scale, module(body, (1, 3, 4, 4), dtype="int32"))
