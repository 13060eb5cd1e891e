"""Stacked tensors that are summed up over the new axis are added to each other."""

import pytest
from relax_modules import assert_same_results, assert_unchanged, module, names
from tvm import relax

from neocpu.graph.replacement.reductions import sum_of_concat

R = relax.op
MAP = (2, 3, 5)


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
        lambda bb, *maps: fused(bb, *maps, keepdims=keepdims, axis=axis), *[MAP] * count
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

    before = module(body, *[MAP] * count)
    after = sum_of_concat(before)
    assert names(after) == ["add"] * (count - 1)
    assert_same_results(before, after)


def wider(bb, x, y):
    """One input has several elements along the axis."""
    return bb.emit(R.sum(bb.emit(R.concat([x, y], 1)), [1]))


def another_axis(bb, x, y):
    both = bb.emit(R.concat([bb.emit(R.expand_dims(each, [0])) for each in (x, y)], 0))
    return bb.emit(R.sum(both, [1]))


def read_again(bb, x, y):
    both = bb.emit(R.concat([bb.emit(R.expand_dims(each, [0])) for each in (x, y)], 0))
    return bb.emit(R.sum(both, [0])), bb.emit(R.exp(both))


@pytest.mark.parametrize("body", [wider, another_axis, read_again], ids=lambda body: body.__name__)
def test_sums_of_other_concatenations_stay(body):
    assert_unchanged(sum_of_concat, module(body, MAP, MAP))
