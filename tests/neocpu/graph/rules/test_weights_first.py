"""Values times transposed weights of attention become the weights times transposed values."""

import pytest
from relax_modules import assert_same_results, assert_unchanged, module, names
from tvm import relax

from neocpu.graph.reordering.attention_products import weights_first

R = relax.op


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
    before = module(attention, *shapes)
    after = weights_first(before)
    assert sorted(names(after)) == ["matmul", "nn.softmax", "permute_dims", "permute_dims"]
    assert_same_results(before, after)


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
