"""Splits of channels become slices, and adjacent slices become one."""

import pytest
from relax_modules import assert_same_results, module, names
from tvm import relax

from neocpu.graph.simplify import simplify

R = relax.op
SHAPE = (1, 12, 3, 4)


def split(bb, x, ends, axis=1):
    parts = bb.emit(R.split(x, ends, axis))
    return [bb.emit(parts[i]) for i in range(len(ends) + 1)]


def concat(bb, *parts, axis=1):
    return bb.emit(R.concat(list(parts), axis))


def of_yolo(bb, x):
    first, second = split(bb, x, [6])
    return concat(bb, first, second, bb.emit(R.exp(second)))


def nested(bb, x):
    first, rest = split(bb, x, [3])
    second, third = split(bb, rest, [4])
    return concat(bb, second, third), concat(bb, first, second, first), third


def all_of_it(bb, x):
    return concat(bb, *split(bb, x, [1, 2, 7]))


def other_axes(bb, x):
    left, right = split(bb, x, [2], axis=3)
    return concat(bb, left, right, axis=3), concat(bb, left, left)


def backwards(bb, x):
    first, second = split(bb, x, [6])
    return concat(bb, second, first)


SLICES = {of_yolo: 1, nested: 4, all_of_it: 0, other_axes: 0, backwards: 2}


@pytest.mark.parametrize("body", SLICES, ids=lambda body: body.__name__)
def test_splits_of_channels_become_slices(body):
    before = module(body, SHAPE)
    after = simplify(before)
    assert_same_results(before, after)
    assert names(after).count("strided_slice") == SLICES[body]
    assert names(after).count("split") == (body is other_axes)
