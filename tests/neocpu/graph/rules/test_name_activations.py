"""Softmax and LeakyRelu are found in what is written in their place."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, module, names
from tvm import relax

from neocpu.graph.replacement.name_activations import LEAKY_OF_ONE_SLOPE, NAME_SOFTMAX

R = relax.op
SHAPE = (2, 5, 3)
RNG = np.random.default_rng(0)


def quotient(*, axis=1, largest=1, shifted=True, keepdims=True, returned=False):
    def body(bb, x):
        data = x
        if shifted:
            data = bb.emit(R.subtract(x, bb.emit(R.max(x, largest, keepdims=True))))
        powers = bb.emit(R.exp(data))
        total = bb.emit(R.sum(powers, axis, keepdims=keepdims))
        made = bb.emit(R.divide(powers, total))
        return (made, total) if returned else made

    return body


@pytest.mark.parametrize("given", [{}, {"shifted": False}, {"axis": -1, "largest": 2}])
def test_softmax_is_found(given):
    before = module(quotient(**given), SHAPE)
    after = NAME_SOFTMAX(before)
    assert names(after) == ["nn.softmax"]
    assert_same_results(before, after)


def test_another_maximum_is_no_matter():
    before = module(quotient(largest=2), SHAPE)
    after = NAME_SOFTMAX(before)
    assert names(after) == ["max", "subtract", "nn.softmax"]
    assert_same_results(before, after)


@pytest.mark.parametrize("given", [{"axis": [1, 2]}, {"returned": True}])
def test_no_softmax(given):
    before = module(quotient(**given), SHAPE)
    tvm.ir.assert_structural_equal(NAME_SOFTMAX(before), before)


def prelu(slopes, axis=1):
    constant = relax.const(np.asarray(slopes, np.float32))
    return module(lambda bb, x: bb.emit(R.nn.prelu(x, constant, axis)), SHAPE)


def test_one_slope():
    before = prelu([0.25] * 5)
    after = LEAKY_OF_ONE_SLOPE(before)
    expected = module(lambda bb, x: bb.emit(R.nn.leakyrelu(x, 0.25)), SHAPE)
    tvm.ir.assert_structural_equal(after, expected)
    assert_same_results(before, after)


@pytest.mark.parametrize("slopes", [[0.25, 0.25, 0.25, 0.25, 0.5], [np.nan] * 5])
def test_several_slopes(slopes):
    before = prelu(slopes)
    tvm.ir.assert_structural_equal(LEAKY_OF_ONE_SLOPE(before), before)
