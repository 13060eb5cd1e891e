"""Constants are folded into the weights before or after them."""

import numpy as np
import pytest
from onnx import helper
from relax_modules import applied, assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from neocpu.graph.table import RULES
from neocpu.ir.constants import make_const
from tests.neocpu.frontend.differential import make_model, random, run_module, run_onnxruntime

R = relax.op
RNG = np.random.default_rng(5)
RULE = {rule.name: rule for rule in RULES}


def scaled(bb, x, *shape, shift=True):
    """Emit an imported and folded batch normalisation before an operator."""
    y = bb.emit(R.multiply(bb.emit(R.sin(x)), const(RNG, *shape)))
    return bb.emit(R.add(y, const(RNG, *shape))) if shift else y


def conv(groups=1, padding=0):
    def apply(bb, x):
        return R.nn.conv2d(x, const(RNG, 8, 6 // groups, 3, 3), padding=padding, groups=groups)

    return apply


def transposed(groups=1):
    def apply(bb, x):
        return R.nn.conv2d_transpose(x, const(RNG, 6, 8 // groups, 3, 3), groups=groups)

    return apply


def dense(bb, x):
    return R.matmul(x, const(RNG, x.ty.shape.values[-1].value, 7))


IMAGE, ROWS = (2, 6, 5, 7), (3, 2, 6)
BEFORE = {
    "conv": (conv(), IMAGE, (1, 6, 1, 1), True, ["nn.conv2d", "add"]),
    "grouped": (conv(2), IMAGE, (6, 1, 1), True, ["nn.conv2d", "add"]),
    "scalar": (conv(2), IMAGE, (), True, ["nn.conv2d", "add"]),
    "padded, no shift": (conv(padding=1), IMAGE, (6, 1, 1), False, ["nn.conv2d"]),
    "transposed, no shift": (transposed(2), IMAGE, (6, 1, 1), False, ["nn.conv2d_transpose"]),
    "dense": (dense, ROWS, (6,), True, ["matmul", "add"]),
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_scale_before_a_layer_folds_into_its_weights(name):
    apply, shape, channels, shift, expected = BEFORE[name]
    after = applied(
        RULE["scale-before"],
        lambda bb, x: bb.emit(apply(bb, scaled(bb, x, *channels, shift=shift))),
        shape,
    )
    assert names(after) == ["sin", *expected]


def read_twice(bb, x):
    y = scaled(bb, x, 6, 1, 1, shift=False)
    return bb.emit(conv()(bb, y)), bb.emit(R.exp(y))


def only_shifted(bb, x):
    return bb.emit(conv()(bb, bb.emit(R.add(bb.emit(R.sin(x)), const(RNG, 6, 1, 1)))))


NOT_BEFORE = {
    "a shift inside a padded image": (
        lambda bb, x: bb.emit(conv(padding=1)(bb, scaled(bb, x, 6, 1, 1))),
        IMAGE,
    ),
    "a shift of what is spread": (
        lambda bb, x: bb.emit(transposed()(bb, scaled(bb, x, 6, 1, 1))),
        IMAGE,
    ),
    "along the width": (lambda bb, x: bb.emit(conv()(bb, scaled(bb, x, 7, shift=False))), IMAGE),
    "along the rows": (lambda bb, x: bb.emit(dense(bb, scaled(bb, x, 2, 1, shift=False))), ROWS),
    "other readers": (read_twice, IMAGE),
    "a sum that may be exact": (only_shifted, IMAGE),
    "a product that overflows": (
        lambda bb, x: bb.emit(
            R.nn.conv2d(
                bb.emit(R.multiply(x, relax.const(1e30, "float32"))),
                make_const(np.full((8, 6, 1, 1), 1e30, "float32")),
            )
        ),
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", NOT_BEFORE)
def test_scale_that_stays_before(name):
    assert_unchanged(RULE["scale-before"], module(*NOT_BEFORE[name]))


def batch_norm(channels):
    statistics = [random(channels, seed=seed) for seed in range(3)]
    values = dict(zip(("gamma", "beta", "mean"), statistics, strict=True))
    values["var"] = np.abs(random(channels, seed=4)) + 0.5
    return helper.make_node("BatchNormalization", ["h", *values], ["y"]), values


def folded(node, weights, x, extra=()):
    """Return the folded form of ``node`` and a batch normalisation; results must agree."""
    norm, values = batch_norm(4)
    model = make_model([node, *extra, norm], {"x": x}, {**values, **weights})
    imported = import_relax(load_model(model))
    after = simplify(imported)
    for mine, theirs in zip(run_module(after, [x]), run_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    return names(after), names(simplify(imported, {"scale-through-views"}))


@pytest.mark.parametrize(
    ("shape", "groups", "stride"), [((1, 3, 4, 5), 1, 2), ((2, 2, 3, 3), 2, 2), ((1, 3, 7), 1, 3)]
)
def test_batch_norm_after_a_transposed_convolution(shape, groups, stride):
    rank = len(shape) - 2
    weights = {"w": random(shape[1], 4 // groups, *[3] * rank), "b": random(4, seed=9)}
    node = helper.make_node(
        "ConvTranspose", ["x", "w", "b"], ["h"], strides=[stride] * rank, group=groups
    )
    left, without = folded(node, weights, random(*shape))
    assert "multiply" not in left
    assert left.count("add") == 1
    if (rank, groups) == (2, 1):
        # It is computed as a convolution and a shuffle of pixels.
        assert left[:2] == ["nn.conv2d", "add"]
        assert {"multiply", "add"} <= set(without[2:])


def test_batch_norm_after_a_shuffle_of_pixels():
    node = helper.make_node("Conv", ["x", "w"], ["wide"])
    shuffle = helper.make_node("DepthToSpace", ["wide"], ["h"], blocksize=2, mode="CRD")
    left, _ = folded(node, {"w": random(16, 3, 1, 1)}, random(1, 3, 3, 2), [shuffle])
    assert left == ["nn.conv2d", "add", "reshape", "permute_dims", "reshape"]


def test_batch_norm_after_a_dense_layer_that_becomes_an_image():
    node = helper.make_node("MatMul", ["x", "w"], ["flat"])
    image = helper.make_node("Reshape", ["flat", "shape"], ["h"])
    weights = {"w": random(3, 24), "shape": np.array([2, 4, 3, 2])}
    left, _ = folded(node, weights, random(2, 3), [image])
    assert left == ["matmul", "add", "reshape"]


def views(bb, x, *, read_twice=False, relu=False, rows=False):
    y = bb.emit(R.nn.conv2d(x, const(RNG, 8, 3, 1, 1)))
    y = bb.emit(R.nn.relu(y)) if relu else y
    y = bb.emit(R.reshape(y, (2, 2, 2, 2, 4, 5)))
    y = bb.emit(R.reshape(bb.emit(R.permute_dims(y, [0, 1, 4, 2, 5, 3])), (2, 2, 8, 10)))
    z = bb.emit(R.multiply(y, const(RNG, 8, 1) if rows else const(RNG, 2, 1, 1)))
    return (z, y) if read_twice else z


@pytest.mark.parametrize("how", ["read_twice", "relu", "rows"])
def test_scale_that_stays_after_views(how):
    assert_unchanged(
        RULE["scale-through-views"], module(lambda bb, x: views(bb, x, **{how: True}), (2, 3, 4, 5))
    )


def test_scale_goes_through_slices_of_other_axes_alone():
    def body(bb, x, axis):
        y = bb.emit(R.reshape(bb.emit(R.matmul(x, const(RNG, 3, 24))), (2, 4, 3, 2)))
        y = bb.emit(R.strided_slice(y, [axis], [1], [3]))
        return bb.emit(R.add(y, const(RNG, int(y.ty.shape.values[1]), 1, 1)))

    before = module(lambda bb, x: body(bb, x, 2), (2, 3))
    after = RULE["scale-through-views"](before)
    assert names(after) == ["matmul", "add", "reshape", "strided_slice"]
    assert_same_results(before, after)
    before = module(
        lambda bb, x: bb.emit(
            R.add(
                bb.emit(R.strided_slice(bb.emit(R.matmul(x, const(RNG, 3, 24))), [1], [1], [3])),
                const(RNG, 2),
            )
        ),
        (2, 3),
    )
    assert_unchanged(RULE["scale-through-views"], before)


def test_scale_stays_after_a_slice_that_runs_backwards():
    def body(bb, x):
        y = bb.emit(R.nn.conv2d(x, const(RNG, 4, 3, 1, 1)))
        y = bb.emit(R.strided_slice(y, [1], [3], [-5], [-1]))
        return bb.emit(R.multiply(y, const(RNG, 4, 1, 1)))

    assert_unchanged(RULE["scale-through-views"], module(body, (2, 3, 4, 5)))


def mixed(bb, x, *, activation=False, read_twice=False, axis=1):
    """Parallel convolutions have different sizes, and one scale and shift for all."""
    maps = [
        bb.emit(R.nn.conv2d(x, const(RNG, 8 - size, 3, size, size), padding=size // 2))
        for size in (1, 3, 5)
    ]
    maps[1] = bb.emit(R.add(maps[1], const(RNG, 1, 5, 1, 1)))
    if activation:
        maps[0] = bb.emit(R.nn.relu(maps[0]))
    joined = bb.emit(R.concat(maps if axis == 1 else [maps[0], maps[0]], axis))
    y = bb.emit(R.multiply(joined, const(RNG, joined.ty.shape.values[1].value, 1, 1)))
    y = bb.emit(R.add(y, make_const(np.full((1, 1, 1), 0.25, "float32"))))
    return (y, maps[2]) if read_twice else y


def test_batch_norm_after_convolutions_beside_each_other():
    after = applied(simplify, mixed, (2, 3, 6, 5))
    assert sorted(names(after)) == sorted([*("nn.conv2d", "add") * 3, "concat"])


@pytest.mark.parametrize("how", [{"activation": True}, {"read_twice": True}, {"axis": 0}])
def test_scale_that_stays_after_a_concat(how):
    assert_unchanged(
        RULE["scale-through-concat"], module(lambda bb, x: mixed(bb, x, **how), (2, 3, 6, 5))
    )
