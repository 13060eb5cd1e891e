"""Normalisations are found in what exporters write; what only looks like them stays."""

from functools import partial

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, const, module, names
from tvm import relax

from neocpu.passes.rules.replacement.name_normalisations import (
    NAME_NORMALISATIONS,
    SCALE_NORMALISATIONS,
)
from neocpu.passes.rules.rule import apply_rules

R = relax.op
RNG = np.random.default_rng(0)
find = partial(apply_rules, rules=(NAME_NORMALISATIONS, SCALE_NORMALISATIONS))


def normal(axes, scale, shift, *, root="sqrt", keepdims=True, other=None, epsilon=1e-5):
    def body(bb, x):
        mean = bb.emit(R.mean(x, axes, keepdims=True))
        centred = bb.emit(R.subtract(x, mean))
        square = bb.emit(R.multiply(centred, bb.emit(other(x)) if other else centred))
        variance = bb.emit(R.mean(square, axes, keepdims=True))
        total = bb.emit(R.add(variance, relax.const(epsilon, "float32")))
        if root == "sqrt":
            made = bb.emit(R.divide(centred, bb.emit(R.sqrt(total))))
        else:
            made = bb.emit(R.multiply(bb.emit(R.rsqrt(total)), centred))
        made = bb.emit(R.multiply(made, const(RNG, *scale)))
        return bb.emit(R.add(made, const(RNG, *shift)))

    return body


FOUND = {
    "layer": (normal([-1], (6,), (6,)), (2, 5, 6), "nn.layer_norm"),
    "layer of a root's reciprocal": (normal([2], (1,), (6,), root="r"), (2, 5, 6), "nn.layer_norm"),
    "layer of channels": (normal([1], (6, 1, 1), (1, 6, 1, 1)), (2, 6, 4, 3), "nn.layer_norm"),
    "instance": (normal([2, 3], (1, 6, 1, 1), (6, 1, 1)), (2, 6, 4, 3), "nn.group_norm"),
}


@pytest.mark.parametrize("name", FOUND)
def test_normalisations_are_found(name):
    body, shape, op = FOUND[name]
    before = module(body, shape)
    after = find(before)
    assert names(after) == [op]
    assert_same_results(before, after)


UNLIKE = {
    "another variance": normal([-1], (6,), (6,), other=R.exp),
    "a root of a negative": normal([-1], (6,), (6,), root="r", other=R.abs),
    "one dimension more": normal([-1], (6,), (6,), epsilon=np.full((1, 1, 1, 1), 1e-5)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_others_stay(name):
    before = module(UNLIKE[name], (2, 5, 6))
    tvm.ir.assert_structural_equal(find(before), before)


def test_a_scale_of_other_axes_stays():
    before = module(normal([-1], (5, 1), (5, 1)), (2, 5, 6))
    assert names(find(before)) == ["nn.layer_norm", "multiply", "add"]


def test_what_something_else_reads_stays():
    def body(bb, x):
        made = bb.emit(R.nn.layer_norm(x, const(RNG, 6), const(RNG, 6), [-1]))
        return made, bb.emit(R.multiply(made, const(RNG, 6)))

    before = module(body, (2, 5, 6))
    tvm.ir.assert_structural_equal(find(before), before)
