"""Convolutions against ONNX Runtime, one node at a time."""

from __future__ import annotations

import needs
import numpy as np
import pytest

import neocpu
from tests.neocpu.frontend.differential import (
    DATA,
    assert_matches_onnxruntime,
    check,
    make_model,
    node_of,
    random,
    relax_ops,
    run_onnxruntime,
)

X = DATA


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"pads": [0, 1, 2, 3]},
        {"dilations": [2, 3], "pads": [2, 3, 2, 3]},
        {"group": 2},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "strides": [2, 1]},
        {"auto_pad": "", "pads": [1, 0, 1, 0]},
    ],
)
@pytest.mark.parametrize("kernel", [(3, 3), (4, 2)])
def test_conv(attrs, kernel):
    weight = random(4, 6 // attrs.get("group", 1), *kernel, seed=1)
    ops = check("Conv", weight, random(4, seed=2), **attrs)
    assert ops == ["nn.conv2d", "add"]


@pytest.mark.parametrize("spatial", [1, 3])
def test_conv_of_other_ranks(spatial):
    x = random(1, 3, *[6, 7, 8][:spatial])
    weight = random(4, 3, *[3] * spatial, seed=1)
    check("Conv", weight, random(4, seed=2), x=x, strides=[2] * spatial, pads=[1] * 2 * spatial)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"strides": [3, 2], "pads": [0, 1, 2, 0]},
        {"group": 2, "strides": [2, 2]},
        {"dilations": [2, 2]},
        {"dilations": [2, 3], "strides": [3, 2], "group": 2, "output_padding": [1, 1]},
        {"strides": [2, 3], "output_padding": [1, 2], "pads": [0, 0, 0, 0]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"strides": [3, 3], "output_shape": [27, 33]},
        {"strides": [3, 2], "output_shape": [26, 22], "auto_pad": "SAME_UPPER"},
    ],
)
def test_conv_transpose(attrs):
    weight = random(6, 4 // attrs.get("group", 1), 3, 3, seed=1)
    ops = check("ConvTranspose", weight, random(4, seed=2), **attrs)
    shuffle = ["reshape", "permute_dims", "reshape"] if "strides" in attrs else []
    first = ops.index("nn.conv2d")
    assert [op for op in ops[first:] if op != "strided_slice"] == ["nn.conv2d", "add", *shuffle]


@pytest.mark.parametrize("kernel", [(1, 1), (2, 2), (4, 4), (5, 2)])
@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [3, 2]])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [0, 1, 0, 0]])
@needs.one_in(3)
def test_conv_transpose_kernels(kernel, strides, pads):
    weight = random(6, 5, *kernel, seed=1)
    check("ConvTranspose", weight, random(5, seed=2), strides=strides, pads=pads)


@pytest.mark.parametrize(
    ("extents", "kernel", "attrs", "convolutions"),
    [
        ((4, 4), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 4),
        ((3, 5), (4, 3), {"strides": [2, 1], "pads": [1, 1, 1, 1]}, 2),
        ((3, 4), (6, 6), {"strides": [3, 2], "pads": [1, 2, 2, 2]}, 6),
        ((4, 4), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 1),  # 7 is not two times 3.5
        ((4, 4), (2, 2), {"strides": [2, 2]}, 1),  # nothing beyond the borders
        ((40, 40), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, 1),  # too little
        ((4, 4), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 2}, 1),
    ],
)
def test_remainders_of_small_images_are_separate_convolutions(extents, kernel, attrs, convolutions):
    x, weight = random(2, 6, *extents), random(6, 16, *kernel, seed=1)
    bias = random(16 * attrs.get("group", 1), seed=2)
    ops = check("ConvTranspose", weight, bias, x=x, **attrs)
    assert ops.count("nn.conv2d") == convolutions
    assert convolutions == 1 or ops[-1] == "reshape"  # and nothing is cropped


@pytest.mark.parametrize("outs", [5, 16])
@pytest.mark.parametrize(
    "attrs", [{}, {"pads": [1, 0, 2, 1]}, {"strides": [2, 2]}, {"output_padding": [1, 0]}]
)
def test_conv_transpose_of_one_pixel_computes_no_more_than_its_taps(outs, attrs):
    attrs = {"strides": [2, 3], **attrs}
    ops = check("ConvTranspose", random(6, outs, 4, 3, seed=1), x=random(2, 6, 1, 1), **attrs)
    assert ops.count("nn.conv2d") == 1


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((2, 2, 2), {"strides": [2, 2, 2]}),
        ((3, 4, 1), {"strides": [2, 3, 1], "pads": [1, 0, 0, 1, 1, 0]}),
    ],
)
def test_conv_transpose_of_volumes(kernel, attrs):
    x, weight = random(2, 3, 3, 4, 5), random(3, 5, *kernel, seed=1)
    ops = check("ConvTranspose", weight, random(5, seed=2), x=x, **attrs)
    assert ops[ops.index("nn.conv3d") + 1] == "add"


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("kernel", "stride"), [(16, 8), (4, 2), (3, 1), (2, 3)])
def test_conv_transpose_of_rows(kernel, stride, group):
    x, weight = random(2, 4, 9), random(4, 6 // group, kernel, seed=1)
    attrs = {"strides": [stride], "group": group, "pads": [1, 0], "dilations": [1]}
    ops = check("ConvTranspose", weight, random(6, seed=2), x=x, **attrs)
    assert "nn.conv2d" in ops


@pytest.mark.parametrize("attrs", [{"strides": [2, 2]}, {"dilations": [2, 1], "group": 2}])
def test_conv_transpose_by_weights_that_are_inputs(attrs):
    feeds = {"x": random(2, 4, 5, 6), "w": random(4, 3, 3, 2, seed=1)}
    node = node_of("ConvTranspose", "x w", **attrs)
    assert_matches_onnxruntime(make_model([node], feeds), feeds)


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 2), {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 1, 2, 3]}),
        ((1, 1), {}),
        ((1, 1), {"strides": [2, 2]}),
        ((3, 3), {"group": 2, "auto_pad": "SAME_UPPER"}),
        ((3,), {"auto_pad": "SAME_LOWER"}),
    ],
)
def test_convolution_by_weights_that_are_inputs(kernel, attrs):
    feeds = {
        "x": random(2, 4, *(9, 8)[: len(kernel)]),
        "w": random(6, 4 // attrs.get("group", 1), *kernel, seed=1),
    }
    node = node_of("Conv", "x w b", **attrs)
    module = assert_matches_onnxruntime(make_model([node], feeds, {"b": random(6)}), feeds)
    assert ("matmul" in relax_ops(module)) == (attrs.get("group", 1) == 1)
    image = make_model([node], {"w": feeds["w"]}, {"b": random(6), "x": feeds["x"]})
    assert_matches_onnxruntime(image, {"w": feeds["w"]})


def test_depthwise_conv():
    check("Conv", random(6, 1, 3, 3, seed=1), group=6, pads=[1, 1, 1, 1])
    check("Conv", random(12, 1, 3, 3, seed=1), group=6)


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_of_constants_may_have_a_computed_bias(transposed):
    """The result of constants is no feature map, and needs no layout in a plan."""
    op = "ConvTranspose" if transposed else "Conv"
    made = node_of(op, "k w b")
    constants = {"k": random(1, 4, 6, 7), "w": random(4, 4, 3, 3, seed=1)}
    model = make_model([made], {"b": random(4, seed=2)}, constants)
    feeds = {"b": random(4, seed=2)}
    (expected,) = run_onnxruntime(model, feeds)
    with neocpu.compile(model, threads=1, verify=False, only_databases=True) as compiled:
        actual = compiled.module(1).run(feeds)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
