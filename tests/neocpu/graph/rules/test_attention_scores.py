"""Scales of attention's scores move to the queries."""

import numpy as np
import pytest
from relax_modules import assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.reordering.attention_products import scale_queries

R = relax.op
RNG = np.random.default_rng(0)
Q, K = (2, 3, 5, 4), (2, 3, 4, 5)


def scaled(*shape):
    def body(bb, q, k):
        scores = bb.emit(R.matmul(q, k))
        return bb.emit(R.nn.softmax(bb.emit(R.multiply(scores, const(RNG, *shape))), -1))

    return body


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 5, 1), (2, 1, 1, 1)])
def test_scales_of_heads_go_to_the_queries(shape):
    before = module(scaled(*shape), Q, K)
    after = scale_queries(before)
    assert names(after) == ["multiply", "matmul", "nn.softmax"]
    assert_same_results(before, after)


@pytest.mark.parametrize("shape", [(3, 1, 5), (1,), ()])
def test_scales_that_vary_by_key_stay(shape):
    assert_unchanged(scale_queries, module(scaled(*shape), Q, K))


def test_queries_of_more_elements_than_scores_stay():
    assert_unchanged(scale_queries, module(scaled(3, 1, 1), (2, 3, 5, 7), (2, 3, 7, 6)))
