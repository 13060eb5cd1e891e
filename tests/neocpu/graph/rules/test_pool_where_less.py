"""Means move to the cheaper side of a 1x1 convolution."""

import numpy as np
import pytest
import tvm
from relax_modules import applied, assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.reordering.reduce_first import pool_first, pool_last

R = relax.op
IMAGE = (2, 8, 6, 7)
RNG = np.random.default_rng(0)


def conv(x, outputs, kernel=1, **attrs):
    return R.nn.conv2d(x, const(RNG, outputs, int(x.ty.shape.values[1]), kernel, kernel), **attrs)


def halved(x):
    return R.nn.avg_pool2d(x, (2, 2), strides=(2, 2))


def means(x):
    return R.mean(x, [2, 3], keepdims=True)


def padded(x, **attrs):
    return R.nn.avg_pool2d(x, (3, 3), padding=(1, 1), **attrs)


def pooled(pool, outputs=4, *, bias=True, **attrs):
    def body(bb, x):
        made = bb.emit(conv(x, outputs, **attrs))
        if bias:
            made = bb.emit(R.add(made, const(RNG, 1, outputs, 1, 1)))
        return bb.emit(R.nn.relu(bb.emit(pool(made))))

    return body


FIRST = {
    "transition": pooled(halved),
    "without a bias": pooled(halved, bias=False),
    "means of images": pooled(means),
    "adaptive": pooled(lambda x: R.nn.adaptive_avg_pool2d(x, (1, 1))),
    "strided, padded, without a bias": pooled(
        lambda x: R.nn.avg_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1)), bias=False
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_means_move_before_convolutions(name):
    before = module(FIRST[name], IMAGE)
    after = pool_first(before)
    assert names(after)[1] == "nn.conv2d"
    assert len(names(after)) == len(names(before))
    assert_same_results(before, after)
    tvm.ir.assert_structural_equal(pool_last(after), after)


def read_twice(bb, x):
    made = bb.emit(conv(x, 4))
    return bb.emit(halved(made)), bb.emit(R.sum(made))


def returned(bb, x):
    made = bb.emit(conv(x, 4))
    return made, bb.emit(halved(made))


STAYING = {
    "as many pixels": pooled(lambda x: padded(x), 16),
    "more to move": pooled(halved, 1),
    "padded, with a bias": pooled(
        lambda x: R.nn.avg_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1))
    ),
    "a 3x3 convolution": pooled(halved, kernel=3),
    "a strided convolution": pooled(halved, strides=2),
    "maxima": pooled(lambda x: R.nn.max_pool2d(x, (2, 2), strides=(2, 2))),
    "means of rows": pooled(lambda x: R.mean(x, [3], keepdims=True)),
    "a mean of channels, too": pooled(lambda x: R.mean(x, [1, 2, 3], keepdims=True), 1),
    "read twice": read_twice,
    "returned": returned,
}


@pytest.mark.parametrize("name", STAYING)
def test_means_stay_after_convolutions(name):
    assert_unchanged(pool_first, module(STAYING[name], IMAGE))


def branch(pool, outputs=3, kernel=1):
    def body(bb, x):
        made = bb.emit(conv(bb.emit(pool(x)), outputs, kernel))
        return bb.emit(R.nn.relu(bb.emit(R.add(made, const(RNG, 1, outputs, 1, 1)))))

    return body


LAST = {
    "of all pixels": branch(padded),
    "zeros count": branch(lambda x: padded(x, count_include_pad=True)),
}


@pytest.mark.parametrize("name", LAST)
def test_means_move_after_convolutions(name):
    after = applied(pool_last, LAST[name], IMAGE)
    assert names(after) == ["nn.conv2d", "nn.avg_pool2d", "add", "nn.relu"]
    tvm.ir.assert_structural_equal(pool_first(after), after)


def pool_read_twice(bb, x):
    made = bb.emit(padded(x))
    return bb.emit(conv(made, 3)), bb.emit(R.sum(made))


LASTING = {
    "fewer pixels": branch(halved),
    "more channels": branch(padded, 16),
    "a 3x3 convolution": branch(padded, kernel=3),
    "maxima": branch(lambda x: R.nn.max_pool2d(x, (3, 3), padding=(1, 1))),
    "read twice": pool_read_twice,
}


@pytest.mark.parametrize("name", LASTING)
def test_means_stay_before_convolutions(name):
    assert_unchanged(pool_last, module(LASTING[name], IMAGE))
