"""Operators on windows agree with onnx's loops, PyTorch or ONNX Runtime."""

import itertools

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from neocpu.verification.reference import runner
from tests.neocpu.frontend.differential import make_model, random, run_onnxruntime
from tests.neocpu.frontend.onnx_models import onnx_model


def as_onnx_loops(node, **feeds):
    model = make_model([node], feeds, opset=22, like_first_input=True)
    actual = runner.run_reference(model, feeds)["y"]
    expected = onnx_loops(model, feeds)[0]
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    double = runner.run_reference(model, feeds, double=True)["y"]
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, rtol=1e-4, atol=1e-5)


def onnx_loops(model, feeds):
    return ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("masked", [True, False])
def test_convolution_at_offsets(groups, parts, masked):
    geometry = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    rows, columns = (5 + 3 - 3) // 2 + 1, (7 + 1 - 3) + 1
    feeds = {
        "x": random(2, 6, 5, 7),
        "w": random(3, 6 // groups, 3, 2, seed=1),
        "o": 2 * random(2, parts * 12, rows, columns, seed=2),
        "b": random(3, seed=3),
    }
    if masked:
        feeds["m"] = random(2, parts * 6, rows, columns, seed=4)
    how = geometry | {"group": groups, "offset_group": parts}
    as_onnx_loops(helper.make_node("DeformConv", list(feeds), ["y"], **how), **feeds)


@pytest.mark.parametrize(
    ("image", "block", "how"),
    [
        ([5, 7], [2, 3], {"pads": [1, 0, 1, 2], "strides": [1, 2]}),
        ([5, 7], [2, 3], {"dilations": [2, 1]}),
        ([9], [4], {"strides": [3], "pads": [1, 2]}),
        ([4, 3, 5], [2, 1, 3], {"strides": [1, 2, 1]}),
    ],
)
def test_columns_to_images(image, block, how):
    from neocpu.frontend.numpy_operators.fast_operators import Window

    count = np.prod(Window(image, block, how).out)
    feeds = {"x": random(2, 3 * np.prod(block), count), "i": np.array(image), "b": np.array(block)}
    as_onnx_loops(helper.make_node("Col2Im", list(feeds), ["y"], **how), **feeds)


def test_maxima_of_regions():
    regions = [[0, 0, 0, 6, 4], [1, 2.5, 1.2, 3, 9], [1, 3, 3, 3, 3], [0, 5, 2, 40, 30]]
    feeds = {"x": random(2, 3, 9, 7), "r": np.array(regions, np.float32)}
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=0.5)
    as_onnxruntime(node, feeds)


def as_onnxruntime(node, feeds):
    inputs = {n: (helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()}
    outputs = {node.output[0]: None}
    model = onnx_model([node], inputs, outputs, opset=17, domains=["com.microsoft"])
    actual = runner.run_reference(model, feeds)["y"]
    np.testing.assert_allclose(actual, run_onnxruntime(model, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "Conv"])
def test_pads_that_crop(op):
    """Negative padding equals a preceding Pad of the same amounts."""
    x, how = random(1, 2, 6, 7), {"strides": [2, 1]}
    feeds = {"x": x} | ({"w": random(3, 2, 2, 2, seed=1)} if op == "Conv" else {})
    if op != "Conv":
        how["kernel_shape"] = [2, 2]
    with_pads = helper.make_node(op, list(feeds), ["y"], pads=[-1, 0, 0, -2], **how)
    without = helper.make_node(op, list(feeds), ["y"], **how)
    cropped = {**feeds, "x": x[:, :, 1:, :-2]}
    runs = [
        runner.run_reference(make_model([node], given, like_first_input=True), given)["y"]
        for node, given in ((with_pads, feeds), (without, cropped))
    ]
    np.testing.assert_array_equal(*runs)


def test_words_positions_and_segments():
    words, segments = (
        np.array([[3, 1, 4], [0, 5, 2]], np.int32),
        np.array([[0, 1, 1]] * 2, np.int32),
    )
    tables = {name: random(rows, 16, seed=rows) for name, rows in (("w", 6), ("p", 4), ("s", 2))}
    feeds = {"i": words, "j": segments, **tables, "g": random(16), "h": random(16, seed=1)}
    node = helper.make_node(
        "EmbedLayerNormalization", list(feeds), ["y", "n"], domain="com.microsoft"
    )
    as_onnxruntime(node, feeds)


@pytest.mark.parametrize("double", [True, False])
def test_a_batchs_own_statistics(double):
    names = ["x", "g", "b", "m", "v"]
    vectors = (np.abs(random(3, seed=seed)) for seed in range(4))
    feeds = dict(zip(names, (random(4, 3, 5), *vectors), strict=True))
    node = helper.make_node("BatchNormalization", names, ["y", "rm", "rv"], training_mode=1)
    model = make_model([node], feeds, outputs=["y", "rm", "rv"], opset=15)
    actual = runner.run_reference(model, feeds, double=double)
    for ours, theirs in itertools.zip_longest(actual.values(), onnx_loops(model, feeds)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [np.array(4), np.array([4])])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(depth, axis):
    feeds = {"x": np.array([[0, 3, -1], [-4, 4, 2]]), "v": np.array([2, 5], np.float32)}
    node = helper.make_node("OneHot", ["x", "d", "v"], ["y"], axis=axis)
    model = make_model([node], feeds, {"d": depth}, opset=13)
    actual = runner.run_reference(model, feeds)["y"]
    np.testing.assert_array_equal(actual, run_onnxruntime(model, feeds)[0])
