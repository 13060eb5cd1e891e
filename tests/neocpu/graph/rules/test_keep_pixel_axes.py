"""Means and sums over pixels keep the axes, and are reshaped after."""

import pytest
from relax_modules import assert_same_results, assert_unchanged, module, names
from tvm import relax

from neocpu.graph.replacement.reductions import keep_pixel_axes
from neocpu.ir.uses import bindings

R = relax.op
MAP = (2, 3, 5, 7)


@pytest.mark.parametrize("reduce", [R.mean, R.sum], ids=["mean", "sum"])
@pytest.mark.parametrize("axes", [[2, 3], [-1, 2]], ids=str)
def test_axes_of_pixels_are_kept(reduce, axes):
    before = module(lambda bb, x: bb.emit(reduce(x, axes)), MAP)
    after = keep_pixel_axes(before)
    assert names(after) == [reduce.__name__, "reshape"]
    kept, *_ = bindings(after["main"])
    assert tuple(map(int, kept.var.ty.shape.values)) == (2, 3, 1, 1)
    assert_same_results(before, after)


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
    assert_unchanged(keep_pixel_axes, module(body, MAP))
