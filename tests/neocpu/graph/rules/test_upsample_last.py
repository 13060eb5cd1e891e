"""Small maps are convolved before they are enlarged, alone or in a concatenation."""

import numpy as np
import pytest
from relax_modules import assert_same_results, assert_unchanged, calls, const, module, names
from tvm import relax

from neocpu.graph.reordering.enlarge_last import project_before_concat, upsample_last

R = relax.op
IMAGE = (2, 4, 3, 5)
RNG = np.random.default_rng(0)


def resized(x, method="linear", size=(6, 10), how="half_pixel"):
    how = "asymmetric" if method == "nearest_neighbor" else how
    rounding = "floor" if method == "nearest_neighbor" else ""
    return R.image.resize2d(
        x,
        relax.ShapeExpr(size),
        layout="NCHW",
        method=method,
        coordinate_transformation_mode=how,
        rounding_method=rounding,
    )


def nearest(x):
    return resized(x, "nearest_neighbor")


def conv(x, outputs, kernel=1, **attrs):
    return R.nn.conv2d(x, const(RNG, outputs, int(x.ty.shape.values[1]), kernel, kernel), **attrs)


def chain(*steps):
    def body(bb, x):
        for step in steps:
            x = bb.emit(step(x))
        return x

    return body


def biased(x):
    return R.add(x, const(RNG, 1, int(x.ty.shape.values[1]), 1, 1))


LAST = {
    "nearest": chain(nearest, lambda x: conv(x, 6), biased, R.nn.silu),
    "linear": chain(resized, lambda x: conv(x, 6), biased),
    "linear to corners": chain(lambda x: resized(x, how="align_corners"), lambda x: conv(x, 2)),
    "of one pixel": chain(
        lambda x: R.mean(x, [2, 3], keepdims=True), resized, lambda x: conv(x, 6), biased
    ),
}


@pytest.mark.parametrize("name", LAST)
def test_maps_are_enlarged_last(name):
    before = module(LAST[name], IMAGE)
    after = upsample_last(before)
    assert names(after)[-1] == "image.resize2d"
    assert sorted(names(after)) == sorted(names(before))
    assert_same_results(before, after)


def read_twice(bb, x):
    made = bb.emit(resized(x))
    return bb.emit(conv(made, 6)), bb.emit(R.sum(made))


STAYING = {
    "a 3x3 convolution": chain(nearest, lambda x: conv(x, 6, 3)),
    "a strided one": chain(nearest, lambda x: conv(x, 6, strides=2)),
    "an activation of mixed pixels": chain(resized, R.nn.relu),
    "shrinking": chain(lambda x: resized(x, size=(2, 5)), lambda x: conv(x, 6)),
    "both": chain(lambda x: resized(x, size=(2, 9)), lambda x: conv(x, 6)),
    "cubic": chain(lambda x: resized(x, "cubic"), lambda x: conv(x, 6)),
    "pixels apart": chain(nearest, lambda x: R.add(x, const(RNG, 6, 10))),
    "one dimension more": chain(nearest, lambda x: R.add(x, const(RNG, 1, 1, 1, 1, 1))),
    "read twice": read_twice,
}


@pytest.mark.parametrize("name", STAYING)
def test_operators_that_need_large_maps_stay(name):
    assert_unchanged(upsample_last, module(STAYING[name], IMAGE))


def head(*, outputs=4, kernel=1, wide=40, size=(6, 10)):
    """Return a convolution of three maps; two are enlarged to the size of the first."""

    def body(bb, x, y, z):
        parts = [x, bb.emit(resized(y, size=size)), bb.emit(resized(z, size=size))]
        data = bb.emit(R.concat(parts, 1))
        return bb.emit(R.nn.relu(bb.emit(conv(data, outputs, kernel))))

    return module(body, (1, 8, *size), (1, wide, 3, 5), (1, wide, 1, 1))


def test_small_maps_are_projected_first():
    before = head()
    after = project_before_concat(before)
    assert names(after) == [
        *["nn.conv2d"] * 2,
        "image.resize2d",
        "nn.conv2d",
        *["add"] * 2,
        "nn.relu",
    ]
    pixels = [c.ty.shape.values[2] * c.ty.shape.values[3] for c in calls(after)[:4]]
    assert [int(p) for p in pixels] == [60, 15, 60, 1]
    assert_same_results(before, after)


def test_maps_that_are_not_enlarged_have_one_projection():
    def body(bb, x, y, z):
        parts = [x, bb.emit(resized(y)), z]
        return bb.emit(conv(bb.emit(R.concat(parts, 1)), 4))

    before = module(body, (1, 8, 6, 10), (1, 40, 3, 5), (1, 3, 6, 10))
    after = project_before_concat(before)
    assert names(after) == ["concat", "nn.conv2d", "nn.conv2d", "image.resize2d", "add"]
    assert_same_results(before, after)


@pytest.mark.parametrize("count", [1, 2])
def test_maps_of_one_pixel_alone_are_enlarged(count):
    def body(bb, *maps):
        parts = [bb.emit(resized(each)) for each in maps]
        return bb.emit(conv(bb.emit(R.concat(parts, 1)), 4))

    before = module(body, *[(1, 40, 1, 1)] * count)
    after = project_before_concat(before)
    assert names(after)[:2] == ["nn.conv2d", "image.resize2d"]
    assert_same_results(before, after)


@pytest.mark.parametrize("given", [{"wide": 8}, {"kernel": 3}])
def test_projections_that_save_little_stay(given):
    before = head(**given)
    assert_unchanged(project_before_concat, before)
