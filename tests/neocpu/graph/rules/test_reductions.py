"""Sums and means become those that kernels compute."""

import numpy as np
import pytest
from relax_modules import applied, assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.replacement.reductions import factor_sums, keep_pixel_axes, sum_of_concat
from neocpu.ir.uses import bindings

R = relax.op
IMAGE = (2, 3, 5, 7)


@pytest.mark.parametrize("reduce", [R.mean, R.sum], ids=["mean", "sum"])
@pytest.mark.parametrize("axes", [[2, 3], [-1, 2]], ids=str)
def test_axes_of_pixels_are_kept(reduce, axes):
    after = applied(keep_pixel_axes, lambda bb, x: bb.emit(reduce(x, axes)), IMAGE)
    assert names(after) == [reduce.__name__, "reshape"]
    kept, *_ = bindings(after["main"])
    assert tuple(map(int, kept.var.ty.shape.values)) == (2, 3, 1, 1)


@pytest.mark.parametrize(
    "body",
    [
        lambda bb, x: bb.emit(R.mean(x, [2, 3], keepdims=True)),
        lambda bb, x: bb.emit(R.mean(x, [1, 3])),
        lambda bb, x: bb.emit(R.sum(x)),
        lambda bb, x: bb.emit(R.max(x, [2, 3])),
        lambda bb, x: bb.emit(R.mean(bb.emit(R.reshape(x, (2, 3, 35, 1, 1))), [2, 3])),
    ],
    ids=["kept", "other axes", "all axes", "max", "five axes"],
)
def test_reductions_of_other_axes_stay(body):
    assert_unchanged(keep_pixel_axes, module(body, IMAGE))


ROWS = (2, 3, 5)


def fused(bb, *maps, keepdims=False, axis=-1):
    """Emit BiFPN's sum: maps are weighted, unsqueezed, concatenated and summed."""
    weighted = [bb.emit(R.multiply(x, relax.const(0.5 + i))) for i, x in enumerate(maps)]
    stacked = bb.emit(R.concat([bb.emit(R.expand_dims(x, [axis])) for x in weighted], axis))
    return bb.emit(R.sum(stacked, [axis], keepdims=keepdims))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, -1])
def test_stacked_tensors_are_added(count, keepdims, axis):
    before = module(
        lambda bb, *maps: fused(bb, *maps, keepdims=keepdims, axis=axis), *[ROWS] * count
    )
    after = sum_of_concat(before)
    assert "sum" not in names(after)
    assert "concat" not in names(after)
    assert names(after).count("add") == count - 1
    assert_same_results(before, after)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stack_is_added_up(count):
    def body(bb, *maps):
        return bb.emit(R.sum(bb.emit(R.stack(list(maps), 1)), axis=[1]))

    assert names(applied(sum_of_concat, body, *[ROWS] * count)) == ["add"] * (count - 1)


def wider(bb, x, y):
    """One input has several elements along the axis."""
    return bb.emit(R.sum(bb.emit(R.concat([x, y], 1)), [1]))


def another_axis(bb, x, y):
    both = bb.emit(R.concat([bb.emit(R.expand_dims(each, [0])) for each in (x, y)], 0))
    return bb.emit(R.sum(both, [1]))


def stack_read_again(bb, x, y):
    both = bb.emit(R.concat([bb.emit(R.expand_dims(each, [0])) for each in (x, y)], 0))
    return bb.emit(R.sum(both, [0])), bb.emit(R.exp(both))


@pytest.mark.parametrize(
    "body", [wider, another_axis, stack_read_again], ids=lambda body: body.__name__
)
def test_sums_of_other_concatenations_stay(body):
    assert_unchanged(sum_of_concat, module(body, ROWS, ROWS))


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
    assert names(applied(factor_sums, body, IMAGE)) == expected


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
    assert_unchanged(factor_sums, module(body, IMAGE))
