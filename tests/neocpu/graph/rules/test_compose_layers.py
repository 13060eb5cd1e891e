"""Two convolutions or dense layers in a row become one, where that multiplies less."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, const, module, names
from tvm import relax

from neocpu.graph.replacement.compose_layers import COMPOSE_CONVOLUTIONS, COMPOSE_DENSE

R = relax.op
IMAGE = (2, 5, 9, 7)
RNG = np.random.default_rng(0)


def conv(x, outputs, kernel, **attrs):
    groups = attrs.get("groups", 1)
    width = int(x.ty.shape.values[1]) // groups
    return R.nn.conv2d(x, const(RNG, outputs, width, kernel, kernel), **attrs)


def chain(*layers, bias=True, tail=None):
    def body(bb, x):
        for outputs, kernel, attrs in layers:
            x = bb.emit(conv(x, outputs, kernel, **attrs))
            if bias:
                x = bb.emit(R.add(x, const(RNG, 1, outputs, 1, 1)))
        return bb.emit(tail(x)) if tail else x

    return body


COMPOSED = {
    "1x1 after 3x3": ([(8, 3, {"padding": 1, "strides": 2}), (2, 1, {})], True),
    "strided 1x1 after a strided 3x3": (
        [(8, 3, {"padding": 1, "strides": 2}), (2, 1, {"strides": 3})],
        True,
    ),
    "3x3 after 1x1": ([(8, 1, {}), (4, 3, {"strides": 2})], True),
    "padded 3x3 after 1x1 without a bias": (
        [(8, 1, {}), (4, 3, {"padding": 1, "dilation": 2})],
        False,
    ),
    "1x1 after 1x1": ([(8, 1, {"strides": 2}), (3, 1, {})], True),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_two_become_one(name):
    layers, bias = COMPOSED[name]
    before = module(chain(*layers, bias=bias), IMAGE)
    after = COMPOSE_CONVOLUTIONS(before)
    assert names(after) == (["nn.conv2d", "add", "add"] if bias else ["nn.conv2d"])
    assert_same_results(before, after)


def read_twice(bb, x):
    made = bb.emit(conv(x, 8, 3, padding=1))
    return bb.emit(conv(made, 2, 1)), bb.emit(R.sum(made))


def returned(bb, x):
    made = bb.emit(conv(x, 8, 3, padding=1))
    return made, bb.emit(conv(made, 2, 1))


def activated(bb, x):
    return bb.emit(conv(bb.emit(R.nn.relu(bb.emit(conv(x, 8, 3)))), 2, 1))


STAYING = {
    "more work": chain((2, 3, {"padding": 1}), (8, 1, {})),
    "what is padded has a bias": chain((8, 1, {}), (4, 3, {"padding": 1})),
    "in groups": chain((10, 3, {"groups": 5}), (2, 1, {}), bias=False),
    "strided 1x1 in front": chain((8, 1, {"strides": 2}), (4, 3, {})),
    "read twice": read_twice,
    "returned": returned,
    "activated": activated,
}


@pytest.mark.parametrize("name", STAYING)
def test_two_stay(name):
    before = module(STAYING[name], IMAGE)
    tvm.ir.assert_structural_equal(COMPOSE_CONVOLUTIONS(before), before)


def dense(bb, x, width, *, bias=True, scalar=False):
    y = bb.emit(R.matmul(x, const(RNG, int(x.ty.shape.values[-1]), width)))
    return bb.emit(R.add(y, const(RNG, *([1] if scalar else [width])))) if bias else y


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5)])
@pytest.mark.parametrize("first", [{"bias": False}, {"bias": True}, {"scalar": True}])
def test_two_dense_layers_become_one(shape, first):
    before = module(lambda bb, x: dense(bb, dense(bb, x, 13, **first), 4), shape)
    after = COMPOSE_DENSE(before)
    expected = ["matmul", "add"] if first == {"bias": False} else ["matmul", "add", "add"]
    assert names(after) == expected
    assert_same_results(before, after)


def through(step):
    def body(bb, x):
        y = dense(bb, x, 2 if step == "bottleneck" else 13)
        if step == "activation":
            y = bb.emit(R.nn.relu(y))
        if step == "by row":
            y = bb.emit(R.add(y, const(RNG, 7, 1)))
        made = dense(bb, y, 4)
        return (y, made) if step == "read again" else made

    return body


@pytest.mark.parametrize("step", ["bottleneck", "activation", "by row", "read again"])
def test_other_dense_layers_stay(step):
    before = module(through(step), (7, 5))
    tvm.ir.assert_structural_equal(COMPOSE_DENSE(before), before)
