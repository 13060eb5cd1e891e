"""Activations and maxima, sums and products: which comes first is what takes less."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, const, module, names
from tvm import relax

from neocpu.graph.reordering.activate_where_less import (
    ACTIVATE_BEFORE_POOL,
    POOL_BEFORE_ACTIVATION,
)
from neocpu.graph.reordering.reduce_first import REDUCE_FIRST

R = relax.op
RNG = np.random.default_rng(0)


def pool(bb, x, size=2, **more):
    return bb.emit(R.nn.max_pool2d(x, (size, size), **{"strides": (2, 2)} | more))


def after_convolution(activation, **more):
    def body(bb, x):
        y = bb.emit(R.nn.conv2d(x, const(RNG, 5, 3, 3, 3)))
        y = bb.emit(R.add(y, const(RNG, 1, 5, 1, 1)))
        return bb.emit(activation(pool(bb, y, **more)))

    return body


def leaky(slope):
    return lambda x: R.nn.leakyrelu(x, slope)


@pytest.mark.parametrize(
    "activation", [R.nn.relu, R.tanh, leaky(0.1), lambda x: R.clip(x, -0.5, 0.5)]
)
def test_activations_go_to_the_convolution(activation):
    before = module(after_convolution(activation, size=3, padding=(1, 0)), (2, 3, 9, 8))
    after = ACTIVATE_BEFORE_POOL(before)
    assert names(after)[-1] == "nn.max_pool2d"
    assert_same_results(before, after)


@pytest.mark.parametrize(
    "body",
    [
        after_convolution(R.nn.silu),
        after_convolution(leaky(-0.1)),
        after_convolution(R.nn.relu, ceil_mode=True),
        after_convolution(R.nn.relu, padding=(2, 0)),
        lambda bb, x: bb.emit(R.nn.relu(pool(bb, x))),
    ],
    ids=["falls", "falls below zero", "ceil", "padding alone", "no convolution"],
)
def test_others_stay(body):
    before = module(body, (2, 3, 9, 8))
    tvm.ir.assert_structural_equal(ACTIVATE_BEFORE_POOL(before), before)


def test_maxima_come_first_where_nothing_takes_the_activation():
    before = module(lambda bb, x: pool(bb, bb.emit(R.sigmoid(x)), 3), (2, 3, 9, 8))
    after = POOL_BEFORE_ACTIVATION(before)
    assert names(after) == ["nn.max_pool2d", "sigmoid"]
    assert_same_results(before, after)


@pytest.mark.parametrize("fold", [R.max, R.min])
@pytest.mark.parametrize("keepdims", [True, False])
def test_so_do_those_over_whole_axes(fold, keepdims):
    def body(bb, x):
        return bb.emit(fold(bb.emit(R.exp(x)), [0, 3], keepdims=keepdims))

    before = module(body, (2, 3, 9, 8))
    after = POOL_BEFORE_ACTIVATION(before)
    assert names(after) == [fold.__name__, "exp"]
    assert_same_results(before, after)


@pytest.mark.parametrize("step", ["sum", "stride", "two readers"])
def test_maxima_that_stay(step):
    def body(bb, x):
        x = bb.emit(R.add(x, const(RNG, 3, 1, 1))) if step == "sum" else x
        y = bb.emit(R.nn.relu(x))
        made = pool(bb, y, strides=(1, 1), padding=(1, 1)) if step == "stride" else pool(bb, y)
        return (y, made) if step == "two readers" else made

    before = module(body, (2, 3, 9, 8))
    tvm.ir.assert_structural_equal(POOL_BEFORE_ACTIVATION(before), before)


@pytest.mark.parametrize("fold", [R.mean, R.sum])
@pytest.mark.parametrize("axes", [[2, 3], [-1], [1]])
def test_gates_multiply_what_is_left(fold, axes):
    def body(bb, x, gate):
        shape = [1 if i in axes or i - 4 in axes else e for i, e in enumerate((2, 3, 5, 4))]
        gate = bb.emit(R.sum(gate, [i for i, e in enumerate(shape) if e == 1], keepdims=True))
        return bb.emit(fold(bb.emit(R.multiply(gate, x)), axes, keepdims=True))

    before = module(body, (2, 3, 5, 4), (2, 3, 5, 4))
    after = REDUCE_FIRST(before)
    assert names(after) == ["sum", fold.__name__, "multiply"]
    assert_same_results(before, after)


@pytest.mark.parametrize("step", ["varies", "square", "keepdims"])
def test_other_products_stay(step):
    def body(bb, x):
        other = x if step == "square" else const(RNG, 3, 1, 4 if step == "varies" else 1)
        product = bb.emit(R.multiply(x, other))
        return bb.emit(R.mean(product, [2, 3], keepdims=step != "keepdims"))

    before = module(body, (2, 3, 5, 4))
    tvm.ir.assert_structural_equal(REDUCE_FIRST(before), before)


@pytest.mark.parametrize("fold", [R.mean, R.max, R.min])
@pytest.mark.parametrize("step", [R.add, R.subtract])
def test_what_is_added_to_all_is_added_to_what_is_left(fold, step):
    def body(bb, x, shift):
        shift = bb.emit(R.sum(shift, [1], keepdims=True))
        return bb.emit(fold(bb.emit(step(x, shift)), [1], keepdims=True))

    before = module(body, (2, 3, 5, 4), (2, 3, 5, 4))
    after = REDUCE_FIRST(before)
    assert names(after) == ["sum", fold.__name__, step.__name__]
    assert_same_results(before, after)


@pytest.mark.parametrize("fold", [R.mean, R.max])
def test_what_is_repeated_is_reduced_before(fold):
    def body(bb, x):
        return bb.emit(fold(bb.emit(R.broadcast_to(x, (2, 3, 5, 4))), [1, 2], keepdims=True))

    before = module(body, (2, 3, 1, 1))
    after = REDUCE_FIRST(before)
    assert names(after) == [fold.__name__, "broadcast_to"]
    assert_same_results(before, after)


@pytest.mark.parametrize("fold", [R.mean, R.sum, R.max])
@pytest.mark.parametrize(
    ("order", "axes", "keepdims", "left"),
    [
        ([0, 2, 3, 1], [1, 2], False, []),
        ([0, 2, 3, 1], [1, 2], True, ["permute_dims"]),
        ([1, 3, 2, 0], [1, 2], False, ["permute_dims"]),
    ],
)
def test_pixels_are_reduced_before_channels_are_moved(fold, order, axes, keepdims, left):
    def body(bb, x):
        return bb.emit(fold(bb.emit(R.permute_dims(x, order)), axes, keepdims=keepdims))

    before = module(body, (2, 3, 5, 4))
    after = REDUCE_FIRST(before)
    assert names(after) == [fold.__name__, *left]
    assert_same_results(before, after)


def test_channels_that_were_moved_are_reduced_where_they_are():
    def body(bb, x):
        return bb.emit(R.mean(bb.emit(R.permute_dims(x, [0, 2, 3, 1])), [3], keepdims=True))

    before = module(body, (2, 3, 5, 4))
    tvm.ir.assert_structural_equal(REDUCE_FIRST(before), before)


@pytest.mark.parametrize("case", ["sum", "taken off", "bias", "repeated sum"])
def test_other_sums_stay(case):
    def body(bb, x):
        shared = bb.emit(R.max(x, [2, 3], keepdims=True))
        if case == "repeated sum":
            whole = bb.emit(R.broadcast_to(shared, (2, 3, 5, 4)))
            return bb.emit(R.sum(whole, [2, 3], keepdims=True))
        shared = const(RNG, 3, 1, 1) if case == "bias" else shared
        if case == "taken off":
            return bb.emit(R.mean(bb.emit(R.subtract(shared, x)), [2, 3], keepdims=True))
        total = bb.emit(R.add(x, shared))
        return bb.emit((R.sum if case == "sum" else R.mean)(total, [2, 3], keepdims=True))

    before = module(body, (2, 3, 5, 4))
    tvm.ir.assert_structural_equal(REDUCE_FIRST(before), before)
