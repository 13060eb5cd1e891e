"""Only chains of scales and biases fold into each other and into weights."""

import numpy as np
import pytest
import tvm
from op_counts import op_counts
from relax_modules import assert_same_results, assert_unchanged, calls, const, module, names
from tvm import relax

from neocpu.graph.folding.fold_scale import fold_scale
from neocpu.ir.constants import constant_value, make_const

R = relax.op
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


def unchanged(body, *shapes):
    """Whether the pass leaves the module alone."""
    before = module(body, *shapes)
    return fold_scale(before)["main"].same_as(before["main"])


def test_a_convolution_with_two_consumers_is_not_folded():
    def body(bb, x):
        y = conv(bb, x, 5, 3)
        return bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1))), bb.emit(R.nn.relu(y))

    assert unchanged(body, (1, 3, 4, 4))


def test_a_bias_with_two_consumers_is_not_folded():
    def body(bb, x):
        y = bb.emit(R.add(conv(bb, x, 5, 3), const(RNG, 1, 5, 1, 1)))
        return bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1))), bb.emit(R.nn.relu(y))

    assert unchanged(body, (1, 3, 4, 4))


def test_a_convolution_that_is_an_output_is_not_folded():
    def body(bb, x):
        y = conv(bb, x, 5, 3)
        return y, bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1)))

    assert unchanged(body, (1, 3, 4, 4))


def test_a_constant_that_is_not_per_channel_is_not_folded():
    def body(bb, x):
        return bb.emit(R.multiply(conv(bb, x, 4, 3), const(RNG, 1, 1, 4, 4)))

    assert unchanged(body, (1, 3, 4, 4))


def test_a_constant_per_image_is_not_folded():
    def body(bb, x):
        return bb.emit(R.multiply(conv(bb, x, 4, 3), const(RNG, 2, 4, 1, 1)))

    assert unchanged(body, (2, 3, 4, 4))


def test_a_constant_that_enlarges_the_result_is_not_folded():
    def body(bb, x):
        y = bb.emit(R.matmul(x, const(RNG, 3, 5)))
        return bb.emit(R.multiply(y, const(RNG, 2, 1, 5)))

    assert unchanged(body, (4, 3))


def test_constants_whose_outer_product_is_bigger_are_not_merged():
    def body(bb, x):
        y = bb.emit(R.multiply(x, const(RNG, 1, 5, 1, 1)))
        return bb.emit(R.multiply(y, const(RNG, 1, 1, 4, 4)))

    assert unchanged(body, (1, 5, 4, 4))


def test_constants_whose_product_overflows_stay():
    def twice(bb, x):
        return bb.emit(R.multiply(bb.emit(R.multiply(x, ones(value=-3e38))), ones(value=2.0)))

    def weights(bb, x):
        y = bb.emit(R.nn.conv2d(x, ones(4, 5, 1, 1, value=1e30)))
        return bb.emit(R.multiply(y, ones(value=1e30)))

    assert unchanged(twice, (2, 5, 4, 4))
    assert unchanged(weights, (2, 5, 4, 4))


def test_a_weight_that_is_an_input_is_not_folded():
    def body(bb, x, weight):
        y = bb.emit(R.nn.conv2d(x, weight))
        return bb.emit(R.multiply(y, const(RNG, 1, 5, 1, 1)))

    assert unchanged(body, (1, 3, 4, 4), (5, 3, 3, 3))


def test_integers_are_left_alone():
    def body(bb, x):
        one = relax.const(1, "int32")
        return bb.emit(R.multiply(bb.emit(R.add(x, one)), one))

    assert_unchanged(fold_scale, module(body, (1, 3, 4, 4), dtype="int32"))


def test_a_residual_add_stops_the_fold():
    def body(bb, x):
        y = bb.emit(R.add(conv(bb, x, 3, 3), x))
        return bb.emit(R.multiply(y, const(RNG, 1, 3, 1, 1)))

    assert unchanged(body, (1, 3, 4, 4))
