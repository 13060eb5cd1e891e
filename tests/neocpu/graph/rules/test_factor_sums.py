"""Maps that are added to multiples of themselves are multiplied once."""

import numpy as np
import pytest
from relax_modules import assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.replacement.reductions import factor_sums

R = relax.op
MAP = (2, 3, 5, 7)
RNG = np.random.default_rng(0)


def attention(bb, x):
    gate = bb.emit(R.sigmoid(bb.emit(R.mean(x, [2, 3], keepdims=True))))
    return bb.emit(R.add(bb.emit(R.multiply(x, gate)), x))


def response(bb, x):
    """Emit ConvNeXt V2's response normalisation, with a learned scale and bias."""
    norm = bb.emit(R.sqrt(bb.emit(R.sum(bb.emit(R.multiply(x, x)), [2, 3], keepdims=True))))
    share = bb.emit(R.divide(norm, bb.emit(R.mean(norm, [1], keepdims=True))))
    scaled = bb.emit(R.multiply(bb.emit(R.multiply(x, share)), const(RNG, 1, 3, 1, 1)))
    return bb.emit(R.add(x, bb.emit(R.add(scaled, const(RNG, 1, 3, 1, 1)))))


def by_pixel(bb, x):
    gate = bb.emit(R.max(x, [1], keepdims=True))
    return bb.emit(R.add(x, bb.emit(R.multiply(gate, x))))


FACTORED = {
    "attention": (attention, ["mean", "sigmoid", "add", "multiply"]),
    "response": (
        response,
        ["multiply", "sum", "sqrt", "mean", "divide", "multiply", "add", "multiply", "add"],
    ),
    "by pixel": (by_pixel, ["max", "add", "multiply"]),
}


@pytest.mark.parametrize("name", FACTORED)
def test_a_map_is_multiplied_once(name):
    body, expected = FACTORED[name]
    before = module(body, MAP)
    after = factor_sums(before)
    assert names(after) == expected
    assert_same_results(before, after)


def square(bb, x):
    return bb.emit(R.add(x, bb.emit(R.multiply(x, x))))


def read_again(bb, x):
    product = bb.emit(R.multiply(x, bb.emit(R.mean(x, [2, 3], keepdims=True))))
    return bb.emit(R.add(x, product)), bb.emit(R.exp(product))


def another_map(bb, x):
    product = bb.emit(R.multiply(bb.emit(R.exp(x)), bb.emit(R.mean(x, [2, 3], keepdims=True))))
    return bb.emit(R.add(x, product))


def larger(bb, x):
    """Emit a sum with more elements than the map."""
    small = bb.emit(R.mean(x, [2, 3], keepdims=True))
    return bb.emit(R.add(small, bb.emit(R.multiply(small, x))))


@pytest.mark.parametrize(
    "body", [square, read_again, another_map, larger], ids=lambda body: body.__name__
)
def test_sums_that_are_no_multiple_of_a_map_stay(body):
    assert_unchanged(factor_sums, module(body, MAP))
