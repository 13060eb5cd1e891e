"""Concatenations continue each other, and splits of channels become slices."""

import pytest
import tvm
from relax_modules import applied, assert_same_results, assert_unchanged, module, names
from tvm import relax

from neocpu.graph.redundancy.concatenations import share_concat_prefix
from neocpu.graph.simplify import simplify

R = relax.op
BLOCK = (2, 3, 4, 4)


def concat(bb, *inputs, axis=1):
    return bb.emit(R.concat(list(inputs), axis))


def test_a_dense_block_chains_its_concats():
    def before(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, a, b, c)
        return ab, abc, concat(bb, a, b, c, d)

    def expected(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, ab, c)
        return ab, abc, concat(bb, abc, d)

    shapes = [BLOCK] * 4
    after = share_concat_prefix(module(before, *shapes))
    tvm.ir.assert_structural_equal(after, module(expected, *shapes))
    assert_same_results(module(before, *shapes), after)


def test_the_longest_prefix_is_found_through_nested_concats():
    def before(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, ab, c)
        return ab, abc, concat(bb, a, b, c, d, a)

    def expected(bb, a, b, c, d):
        ab = concat(bb, a, b)
        abc = concat(bb, ab, c)
        return ab, abc, concat(bb, abc, d, a)

    shapes = [BLOCK] * 4
    after = share_concat_prefix(module(before, *shapes))
    tvm.ir.assert_structural_equal(after, module(expected, *shapes))


def test_an_equal_concat_is_reused():
    def before(bb, a, b, c):
        abc = concat(bb, concat(bb, a, b), c)
        return bb.emit(R.add(abc, concat(bb, a, b, c)))

    def expected(bb, a, b, c):
        abc = concat(bb, concat(bb, a, b), c)
        return bb.emit(R.add(abc, abc))

    shapes = [BLOCK] * 3
    after = share_concat_prefix(module(before, *shapes))
    tvm.ir.assert_structural_equal(after, module(expected, *shapes))


def test_other_axes_orders_and_suffixes_stay():
    def body(bb, a, b, c):
        return (
            concat(bb, a, b),
            concat(bb, a, b, c, axis=2),
            concat(bb, b, a, c),
            concat(bb, c, a, b),
        )

    assert_unchanged(share_concat_prefix, module(body, *[BLOCK] * 3))


def test_a_value_concatenated_with_itself_again_and_again_is_looked_at_once():
    def body(bb, a):
        for _ in range(40):
            a = concat(bb, a, a)
        return a

    assert_unchanged(share_concat_prefix, module(body, (1, 1)))


SHAPE = (1, 12, 3, 4)


def split(bb, x, ends, axis=1):
    parts = bb.emit(R.split(x, ends, axis))
    return [bb.emit(parts[i]) for i in range(len(ends) + 1)]


def joined(bb, *parts, axis=1):
    return bb.emit(R.concat(list(parts), axis))


def of_yolo(bb, x):
    first, second = split(bb, x, [6])
    return joined(bb, first, second, bb.emit(R.exp(second)))


def nested(bb, x):
    first, rest = split(bb, x, [3])
    second, third = split(bb, rest, [4])
    return joined(bb, second, third), joined(bb, first, second, first), third


def all_of_it(bb, x):
    return joined(bb, *split(bb, x, [1, 2, 7]))


def other_axes(bb, x):
    left, right = split(bb, x, [2], axis=3)
    return joined(bb, left, right, axis=3), joined(bb, left, left)


def backwards(bb, x):
    first, second = split(bb, x, [6])
    return joined(bb, second, first)


SLICES = {of_yolo: 1, nested: 4, all_of_it: 0, other_axes: 0, backwards: 2}


@pytest.mark.parametrize("body", SLICES, ids=lambda body: body.__name__)
def test_splits_of_channels_become_slices(body):
    after = applied(simplify, body, SHAPE)
    assert names(after).count("strided_slice") == SLICES[body]
    assert names(after).count("split") == (body is other_axes)
