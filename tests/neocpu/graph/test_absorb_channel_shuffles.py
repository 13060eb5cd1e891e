"""Channel shuffles vanish in the weights around them if no other reader sees the order."""

import needs
import numpy as np
import pytest
from relax_modules import assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.frontend import models
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.reordering.absorb_channel_shuffles import ABSORB_CHANNEL_SHUFFLES
from neocpu.graph.simplify import simplify
from neocpu.ir.model_names import channel_orders, is_numbered

R = relax.op
RNG = np.random.default_rng(5)


def conv(bb, x, channels, kernel=1, groups=1):
    """Emit a padded convolution with a bias and ReLU."""
    weight = const(RNG, channels, int(x.ty.shape[1]) // groups, kernel, kernel)
    x = bb.emit(R.nn.conv2d(x, weight, padding=kernel // 2, groups=groups))
    return bb.emit(R.nn.relu(bb.emit(R.add(x, const(RNG, 1, channels, 1, 1)))))


def shuffle(bb, x, groups):
    n, c, h, w = (int(extent) for extent in x.ty.shape)
    x = bb.emit(R.reshape(x, (n, groups, c // groups, h, w)))
    x = bb.emit(R.permute_dims(x, [0, 2, 1, 3, 4]))
    return bb.emit(R.reshape(x, (n, c, h, w)))


def piece(bb, x, first, end):
    return bb.emit(R.strided_slice(x, [1], [first], [end]))


def unit(bb, x):
    """ShuffleNet-v2's: half of the channels pass, the other goes through a branch."""
    half = int(x.ty.shape[1]) // 2
    passed, rest = piece(bb, x, 0, half), piece(bb, x, half, 2 * half)
    rest = conv(bb, conv(bb, conv(bb, rest, half), half, 3, groups=half), half)
    return shuffle(bb, bb.emit(R.concat([passed, rest], 1)), 2)


def after(body, shape):
    before = module(body, shape)
    result = ABSORB_CHANNEL_SHUFFLES(before)
    assert_same_results(before, result, rtol=1e-4, atol=1e-4)
    return names(result)


@pytest.mark.parametrize("channels", [6, 10, 14])
@pytest.mark.parametrize("units", [1, 2, 4])
@needs.one_in(3)
def test_units_copy_only_the_channels_they_read(channels, units):
    def body(bb, x):
        x = conv(bb, x, channels)
        x = shuffle(bb, bb.emit(R.concat([x, conv(bb, x, channels)], 1)), 2)
        for _ in range(units):
            x = unit(bb, x)
        return conv(bb, x, 5)

    found = after(body, (2, 3, 4, 5))
    assert not {"reshape", "permute_dims"} & set(found)
    assert found.count("concat") <= units + 1


def test_a_shuffle_between_two_convolutions_costs_nothing():
    def body(bb, x):
        return conv(bb, shuffle(bb, conv(bb, x, 12, 3), 3), 4, 3)

    assert after(body, (1, 3, 5, 5)) == ["nn.conv2d", "add", "nn.relu"] * 2


def test_channelwise_operators_keep_the_order():
    def body(bb, x):
        x = shuffle(bb, conv(bb, x, 8), 2)
        x = bb.emit(R.nn.max_pool2d(conv(bb, x, 8, 3, groups=8), (2, 2)))
        x = bb.emit(R.clip(bb.emit(R.multiply(x, const(RNG, 1, 8, 1, 1))), -1.0, 1.0))
        return conv(bb, x, 3)

    assert not {"reshape", "permute_dims"} & set(after(body, (2, 4, 6, 6)))


def rounded(bb, x, scale):
    numbers = relax.const(np.float32(scale)), relax.const(np.uint8(3))
    return bb.emit(R.dequantize(bb.emit(R.quantize(x, *numbers, 0, "uint8")), *numbers, 0))


def quantised_conv(bb, x, channels, axis, kernel=1, groups=1):
    """Emit a convolution of stored weights with scales along ``axis``, or one for all."""
    shape = (channels, int(x.ty.shape[1]) // groups, kernel, kernel)
    count = () if axis is None else (shape[axis],)
    scale, zero = RNG.uniform(0.01, 0.02, count), RNG.integers(-3, 4, count)
    weights = R.dequantize(
        relax.const(RNG.integers(-127, 128, shape).astype(np.int8)),
        relax.const(scale.astype(np.float32)), relax.const(zero.astype(np.int8)), axis or 0,
    )  # fmt: skip
    return bb.emit(R.nn.conv2d(x, bb.emit(weights), padding=kernel // 2, groups=groups))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantised_weights_are_permuted_with_their_scales(axis):
    def body(bb, x):
        x = rounded(bb, quantised_conv(bb, x, 10, axis), 0.03)
        x = rounded(bb, shuffle(bb, x, 2), 0.04)
        x = quantised_conv(bb, x, 10, None if axis == 1 else axis, 3, groups=10)
        return quantised_conv(bb, rounded(bb, shuffle(bb, x, 5), 0.05), 6, axis)

    assert not {"reshape", "permute_dims"} & set(after(body, (2, 3, 5, 7)))


def test_scales_along_channels_see_the_order():
    scales = relax.const(np.linspace(0.01, 0.1, 8).astype(np.float32))
    zeros = relax.const(np.full(8, 3, np.uint8))

    def body(bb, x):
        x = shuffle(bb, quantised_conv(bb, x, 8, 0), 2)
        x = bb.emit(R.quantize(x, scales, zeros, 1, "uint8"))
        return quantised_conv(bb, bb.emit(R.dequantize(x, scales, zeros, 1)), 3, 0)

    assert "permute_dims" in after(body, (1, 4, 3, 5))


def output(bb, x):
    return shuffle(bb, conv(bb, x, 8), 2)


def grouped_reader(bb, x):
    return conv(bb, shuffle(bb, conv(bb, x, 8), 2), 8, groups=2)


def residual_reader(bb, x):
    y = conv(bb, x, 8)
    return conv(bb, bb.emit(R.add(y, shuffle(bb, y, 2))), 3)


def no_convolution_before(bb, x):
    return conv(bb, shuffle(bb, x, 2), 3)


def halves_seen(bb, x):
    """Emit a shuffle whose tensor between the two reshapes has another reader."""
    x = conv(bb, x, 8)
    n, c, h, w = (int(extent) for extent in x.ty.shape)
    five = bb.emit(R.reshape(x, (n, 2, c // 2, h, w)))
    swapped = bb.emit(R.permute_dims(five, [0, 2, 1, 3, 4]))
    y = conv(bb, bb.emit(R.reshape(swapped, (n, c, h, w))), 5)
    return bb.emit(R.add(bb.emit(R.sum(five)), bb.emit(R.sum(y))))


@pytest.mark.parametrize("body", [no_convolution_before, halves_seen])
def test_an_order_seen_before_the_shuffle_is_read_as_it_is(body):
    before = module(body, (1, 8, 4, 4))
    found = ABSORB_CHANNEL_SHUFFLES(before)
    assert "permute_dims" not in names(found)
    assert_same_results(before, found)


@pytest.mark.parametrize("body", [output, grouped_reader, residual_reader])
def test_an_order_that_something_else_reads_stays(body):
    before = module(body, (1, 8, 4, 4))
    found = ABSORB_CHANNEL_SHUFFLES(before)
    assert "permute_dims" in names(found)
    assert_same_results(before, found)


def test_the_order_of_an_output_that_no_tuple_holds_stays():
    """A function may return a tensor, and also shuffle it."""
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 8, 4, 4), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            made = conv(bb, x, 8)
            whole = bb.emit_output(R.nn.relu(made))
            shuffled = shuffle(bb, whole, 2)
            halves = (conv(bb, piece(bb, shuffled, i, i + 4), 4) for i in (0, 4))
            read = [bb.emit_output(R.nn.relu(half)) for half in halves]
        bb.emit_func_output(relax.Tuple([whole, *read]))
    before = bb.finalize()
    assert_same_results(before, ABSORB_CHANNEL_SHUFFLES(before), rtol=1e-4, atol=1e-4)


def test_shuffles_with_one_of_two_readers_of_the_order_are_absorbed():
    def body(bb, x):
        x = shuffle(bb, conv(bb, x, 8), 2)
        return bb.emit(R.concat([conv(bb, x, 4), x], 1))

    after(body, (1, 3, 4, 4))


def kept_in_a_concatenation(bb, x):
    """Emit a concatenation of a tensor that keeps the shuffle's order."""
    x = shuffle(bb, x, 2)
    return conv(bb, bb.emit(R.concat([bb.emit(R.nn.relu(x)), conv(bb, x, 4)], 1)), 3)


def shuffled_again(bb, x):
    """Emit a second shuffle whose order is visible, so that it stays."""
    x = shuffle(bb, conv(bb, x, 8), 2)
    return bb.emit(R.concat([conv(bb, x, 4), shuffle(bb, x, 2)], 1))


@pytest.mark.parametrize("body", [kept_in_a_concatenation, shuffled_again])
def test_a_gather_that_stays_reads_the_order_as_it_was(body):
    before = module(body, (1, 8, 4, 4))
    assert_same_results(before, ABSORB_CHANNEL_SHUFFLES(before))


def test_without_a_shuffle_nothing_changes():
    def body(bb, x):
        x = conv(bb, x, 8)
        parts = [piece(bb, x, 4, 8), conv(bb, piece(bb, x, 0, 4), 4)]
        return conv(bb, bb.emit(R.concat(parts, 1)), 3)

    assert_unchanged(ABSORB_CHANNEL_SHUFFLES, module(body, (1, 3, 4, 4)))


def test_shufflenet_has_none_left():
    mod = simplify(import_relax(load_model(models.build("shufflenet_v2_x1_0"))))
    found = names(mod)
    assert "permute_dims" not in found
    assert found.count("concat") == 16


def test_names_that_tvm_makes_are_of_several_variables():
    """The rule that would rename them is off; an order needs a name of one variable."""
    model = import_relax(load_model(models.build("shufflenet_v2_x1_0")))
    mod = simplify(model, without={"fold-scale"})
    assert "permute_dims" not in names(mod)
    assert not any(map(is_numbered, channel_orders(mod["main"])))
