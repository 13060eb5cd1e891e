"""Masks and scales of attention become what its kernel takes."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, const, module, names
from tvm import relax

from neocpu.graph.replacement.attention_scores import MASK_BY_SUM, SCALE_QUERIES
from neocpu.ir.constants import make_const

R = relax.op
RNG = np.random.default_rng(0)
Q, K = (2, 3, 5, 4), (2, 3, 4, 5)
CAUSAL = np.tril(np.ones((5, 5), bool))


def masked(mask, fill, *, turned=False, weights=True):
    def body(bb, q, k):
        scores = bb.emit(R.matmul(q, k))
        scores = bb.emit(R.multiply(scores, relax.const(0.5, "float32")))
        chosen = mask(bb, q)
        other = relax.const(np.float32(fill))
        branches = (other, scores) if turned else (scores, other)
        scores = bb.emit(R.where(chosen, *branches))
        return bb.emit(R.nn.softmax(scores, -1)) if weights else bb.emit(R.abs(scores))

    return body


def causal(bb, q):
    return make_const(CAUSAL)


def of_data(bb, q):
    rows = bb.emit(R.strided_slice(q, [1, 3], [0, 0], [1, 1]))  # (2, 1, 5, 1)
    return bb.emit(R.less(rows, relax.const(9.0, "float32")))


@pytest.mark.parametrize("fill", [-np.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mask", [causal, of_data])
def test_a_mask_becomes_a_bias(mask, turned, fill):
    if turned:
        own = mask
        mask = lambda bb, q: bb.emit(R.logical_not(own(bb, q)))  # noqa: E731
    before = module(masked(mask, fill, turned=turned), Q, K)
    after = MASK_BY_SUM(before)
    assert names(after)[-2:] == ["add", "nn.softmax"]
    assert_same_results(before, after)


@pytest.mark.parametrize(
    "body",
    [masked(causal, -1e4), masked(causal, -np.inf, weights=False)],
    ids=["near", "no softmax"],
)
def test_other_masks_stay(body):
    before = module(body, Q, K)
    tvm.ir.assert_structural_equal(MASK_BY_SUM(before), before)


def scaled(*shape):
    def body(bb, q, k):
        scores = bb.emit(R.matmul(q, k))
        return bb.emit(R.nn.softmax(bb.emit(R.multiply(scores, const(RNG, *shape))), -1))

    return body


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 5, 1), (2, 1, 1, 1)])
def test_scales_of_heads_go_to_the_queries(shape):
    before = module(scaled(*shape), Q, K)
    after = SCALE_QUERIES(before)
    assert names(after) == ["multiply", "matmul", "nn.softmax"]
    assert_same_results(before, after)


@pytest.mark.parametrize("shape", [(3, 1, 5), (1,), ()])
def test_other_scales_stay(shape):
    before = module(scaled(*shape), Q, K)
    tvm.ir.assert_structural_equal(SCALE_QUERIES(before), before)


def test_queries_of_more_elements_than_scores_stay():
    before = module(scaled(3, 1, 1), (2, 3, 5, 7), (2, 3, 7, 6))
    tvm.ir.assert_structural_equal(SCALE_QUERIES(before), before)
