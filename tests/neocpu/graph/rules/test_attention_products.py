"""Scales of scores move to the queries, and weights come before values."""

import numpy as np
import pytest
from relax_modules import applied, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.reordering.attention_products import scale_queries, weights_first

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
    assert names(applied(scale_queries, scaled(*shape), Q, K)) == [
        "multiply",
        "matmul",
        "nn.softmax",
    ]


@pytest.mark.parametrize("shape", [(3, 1, 5), (1,), ()])
def test_scales_that_vary_by_key_stay(shape):
    assert_unchanged(scale_queries, module(scaled(*shape), Q, K))


def test_queries_of_more_elements_than_scores_stay():
    assert_unchanged(scale_queries, module(scaled(3, 1, 1), (2, 3, 5, 7), (2, 3, 7, 6)))


def swapped(x):
    rank = len(x.ty.shape.values)
    return R.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def attention(bb, values, scores):
    weights = bb.emit(R.nn.softmax(scores, -1))
    return bb.emit(R.matmul(values, bb.emit(swapped(weights))))


@pytest.mark.parametrize(
    "shapes",
    [[(5, 7), (3, 7)], [(2, 1, 5, 7), (2, 3, 4, 7)], [(2, 3, 1, 1), (2, 3, 9, 1)]],
    ids=["matrices", "shared values", "one value"],
)
def test_weights_come_first(shapes):
    after = applied(weights_first, attention, *shapes)
    assert sorted(names(after)) == ["matmul", "nn.softmax", "permute_dims", "permute_dims"]


def over_queries(bb, values, scores):
    weights = bb.emit(R.nn.softmax(scores, 1))
    return bb.emit(R.matmul(values, bb.emit(swapped(weights))))


def read_again(bb, values, scores):
    weights = bb.emit(R.nn.softmax(scores, -1))
    moved = bb.emit(swapped(weights))
    return bb.emit(R.matmul(values, moved)), bb.emit(R.exp(moved))


def no_weights(bb, values, scores):
    return bb.emit(R.matmul(values, bb.emit(swapped(bb.emit(R.exp(scores))))))


def another_rank(bb, values, scores):
    matrix = bb.emit(R.reshape(values, (5, 7)))
    weights = bb.emit(R.nn.softmax(scores, -1))
    return bb.emit(R.matmul(matrix, bb.emit(swapped(weights))))


@pytest.mark.parametrize(
    "body", [over_queries, read_again, no_weights, another_rank], ids=lambda body: body.__name__
)
def test_products_that_are_no_attention_stay(body):
    assert_unchanged(weights_first, module(body, (1, 5, 7), (1, 3, 7)))
