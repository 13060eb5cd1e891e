"""Parallel convolutions of one map become one if it needs no more products."""

import numpy as np
import pytest
from relax_modules import applied, assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.replacement.sum_convolutions import sum_convolutions
from neocpu.graph.simplify import simplify

R = relax.op
IMAGE = (2, 6, 7, 5)
RNG = np.random.default_rng(0)


def conv(height, width, channels=6, groups=1, **attrs):
    return lambda x: R.nn.conv2d(
        x, const(RNG, channels, 6 // groups, height, width), groups=groups, **attrs
    )


def scaled(x):
    return R.multiply(x, const(RNG, 1, 6, 1, 1))


SUMMED = {
    "3x3 and 1x1": [conv(3, 3, padding=1), conv(1, 1)],
    "strided": [conv(1, 1, strides=2, channels=4), conv(3, 3, 4, padding=1, strides=2)],
    "3x3 and a scaled map": [conv(3, 3, padding=1), scaled],
    "in groups": [conv(3, 3, groups=2, padding=1), scaled],
    "depthwise": [conv(5, 5, groups=6, padding=2), conv(3, 3, groups=6, padding=1)],
    "equal": [conv(3, 2, padding=(1, 0, 1, 1)), conv(3, 2, padding=(1, 0, 1, 1))],
    "dilated": [conv(3, 3, padding=2, dilation=2), conv(1, 1)],
    "four": [conv(3, 3, padding=1), conv(1, 1), conv(3, 3, padding=1), scaled],
}


def branches(makers, *, bias=False):
    def body(bb, x, *_):
        total = None
        for maker in makers:
            term = bb.emit(maker(x))
            if bias:
                term = bb.emit(R.add(term, const(RNG, 1, int(term.ty.shape.values[1]), 1, 1)))
            total = term if total is None else bb.emit(R.add(total, term))
        return bb.emit(R.nn.relu(total))

    return body


@pytest.mark.parametrize("name", SUMMED)
def test_branches_become_one(name):
    before = module(branches(SUMMED[name], bias=name in ("four", "strided")), IMAGE)
    after = simplify(sum_convolutions(before))
    expected = ["nn.conv2d", "add", "nn.relu"] if name in ("four", "strided") else None
    assert names(after) == (expected or ["nn.conv2d", "nn.relu"])
    assert_same_results(before, after)


def test_the_map_itself_and_other_terms():
    def body(bb, x, other):
        made = bb.emit(conv(3, 3, groups=6, padding=1)(x))
        return bb.emit(R.add(bb.emit(R.add(made, other)), x))

    assert names(applied(sum_convolutions, body, IMAGE, IMAGE)) == ["nn.conv2d", "add"]


def two_maps(bb, x, y):
    return bb.emit(R.add(bb.emit(conv(1, 1)(x)), bb.emit(conv(1, 1)(y))))


def read_twice(bb, x, y):
    made = bb.emit(conv(3, 3, padding=1)(x))
    return bb.emit(R.add(made, bb.emit(conv(1, 1)(x)))), bb.emit(R.add(made, y))


def returned(bb, x, y):
    made = bb.emit(conv(3, 3, padding=1)(x))
    return made, bb.emit(R.add(made, x))


STAYING = {
    "of two maps": two_maps,
    "read twice": read_twice,
    "returned": returned,
    "more work": branches([conv(3, 1, padding=(1, 0)), conv(1, 3, padding=(0, 1))]),
    "other strides": branches([conv(3, 3, padding=1, strides=4), conv(1, 1, strides=3)]),
    "other groups": branches([conv(3, 3, padding=1), conv(3, 3, groups=2, padding=1)]),
    "other dilation": branches([conv(3, 3, padding=2, dilation=2), conv(3, 3, padding=1)]),
    "after an activation": branches([conv(3, 3, padding=1), R.nn.relu]),
}


@pytest.mark.parametrize("name", STAYING)
def test_branches_that_are_no_sum_of_convolutions_stay(name):
    shape = (2, 6, 5, 5)
    assert_unchanged(sum_convolutions, module(STAYING[name], shape, shape))
