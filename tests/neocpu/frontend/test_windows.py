"""Pooling, padding, resizing and regions against ONNX Runtime, one node at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import (
    DATA,
    assert_matches_onnxruntime,
    check,
    floats,
    ints,
    make_model,
    node_of,
    one_op,
    random,
    run_imported,
    run_onnxruntime,
)

X = DATA


_POOLS = [
    {"kernel_shape": [3, 3]},
    {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [1, 1, 0, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [4, 4], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"},
]


@pytest.mark.parametrize("attrs", [*_POOLS, {"kernel_shape": [3, 3], "dilations": [2, 2]}])
def test_max_pool(attrs):
    assert check("MaxPool", **attrs) == ["nn.max_pool2d"]


@pytest.mark.parametrize(
    ("attrs", "include"), list(itertools.product([*_POOLS, {"kernel_shape": [9, 11]}], [0, 1]))
)
def test_average_pool(attrs, include):
    ops = check("AveragePool", count_include_pad=include, **attrs)
    assert ops[0] == "nn.avg_pool2d"
    assert set(ops[1:]) <= {"multiply"}


@pytest.mark.parametrize("include", [0, 1])
def test_a_mean_that_ceil_mode_makes_of_all_pixels_looks_at_no_others(include):
    size = 2560
    attrs = {"kernel_shape": [size] * 2, "strides": [size] * 2, "ceil_mode": 1}
    assert check("AveragePool", count_include_pad=include, **attrs) == ["mean"]


@pytest.mark.parametrize(
    ("kernel", "pads"),
    [([40, 3], [0, 1, 0, 1]), ([11, 30], [1, 0, 1, 0]), ([12, 40], [1, 1, 2, 3])],
)
def test_windows_of_more_than_the_image_are_cut_where_padding_does_not_count(kernel, pads):
    attrs = {"kernel_shape": kernel, "strides": [50, 50], "pads": pads, "ceil_mode": 1}
    check("MaxPool", **attrs)
    for include in (0, 1):
        check("AveragePool", count_include_pad=include, **attrs)


@pytest.mark.parametrize("include", [0, 1])
def test_dilated_average_pool(include):
    # ONNX Runtime refuses dilations here: ONNX's own reference is the judge.
    attrs = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 2, 1, 2]}
    model = one_op("AveragePool", X, opset=19, count_include_pad=include, **attrs)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    _, _, (actual,) = run_imported(model, {"x": X})
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spatial", [1, 3])
def test_pools_of_other_ranks(spatial):
    x = random(1, 3, *[6, 7, 8][:spatial])
    attrs = {"kernel_shape": [3] * spatial, "strides": [2] * spatial, "ceil_mode": 1}
    check("MaxPool", x=x, **attrs)
    check("AveragePool", x=x, pads=[1] * 2 * spatial, **attrs)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools_with_windows_of_padding_alone_are_refused(op):
    model = one_op(op, X, kernel_shape=[3, 3], pads=[0, 0, 3, 0])
    with pytest.raises(UnsupportedError, match="may lie outside the image"):
        import_relax(load_model(model))


def test_global_and_lp_pools():
    assert check("GlobalAveragePool") == ["mean"]
    check("GlobalMaxPool")
    check("GlobalLpPool", p=2)
    check("LpPool", kernel_shape=[3, 3], strides=[2, 2], p=2)
    check("LpPool", kernel_shape=[2, 2], strides=[2, 2], p=3, opset=17)


@pytest.mark.parametrize("size", [3, 5, 51])
@pytest.mark.parametrize("beta", [0.75, 0.5, 0.6])
def test_lrn(size, beta):
    ops = check("LRN", size=size, alpha=0.3, beta=beta, bias=1.5)
    assert not any("pool" in op for op in ops)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 0, -1, 2, 0, 0, 2, -3]])
def test_pad(mode, pads):
    opset = 19 if mode == "wrap" else 18
    fill = np.array(0.5, np.float32) if mode == "constant" else None
    ops = check("Pad", ints(*pads), fill, opset=opset, mode=mode)
    assert ops[-1] == "nn.pad"


@pytest.mark.parametrize("pads", [[0, 0, 17, 0, 0, 2, 8, 9], [-3, 5, 0, 9, 0, 0, 30, 1]])
@pytest.mark.parametrize("shape", [(4, 1, 8, 9), (5, 2, 3, 1)])
def test_reflections_are_reflected_again(shape, pads):
    # ONNX Runtime reads beyond the image here: numpy is the judge.
    x = random(*shape)
    model = one_op("Pad", x, [ints(*pads)], mode="reflect")
    cropped = x[max(-pads[0], 0) :]
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(pads[:4], pads[4:], strict=True)]
    expected = np.pad(cropped, widths, mode="reflect")
    _, _, (actual,) = run_imported(model, {"x": x})
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(run_reference(model, {"x": x})["y"], expected)


def test_pad_with_axes():
    check("Pad", ints(1, 2, 3, 4), None, ints(-1, 1))
    check("Pad", opset=9, pads=[0, 0, 1, 1, 0, 0, 2, 2], value=1.0)


@pytest.mark.parametrize(
    ("scales", "sizes"),
    [((2, 2), None), ((3, 2), None), ((0.5, 0.7), None), (None, (18, 22)), (None, (13, 7))],
)
@pytest.mark.parametrize(
    ("mode", "coordinates", "nearest"),
    [
        ("nearest", "asymmetric", "floor"),
        ("nearest", "half_pixel", "round_prefer_floor"),
        ("nearest", "half_pixel", "round_prefer_ceil"),
        ("nearest", "asymmetric", "ceil"),
        ("nearest", "align_corners", "floor"),
        ("linear", "half_pixel", None),
        ("linear", "align_corners", None),
        ("linear", "asymmetric", None),
        ("linear", "pytorch_half_pixel", None),
        ("cubic", "half_pixel", None),
        ("cubic", "align_corners", None),
    ],
)
def test_resize(mode, coordinates, nearest, scales, sizes):
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if nearest:
        attrs["nearest_mode"] = nearest
    scale = None if scales is None else floats(1, 1, *scales)
    size = None if sizes is None else ints(2, 6, *sizes)
    constants = [None, scale] if size is None else [None, None, size]
    check("Resize", *constants, **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_rounds_sizes_in_single_precision(mode):
    """70 pixels times 0.7 are 49, though the nearest float32 to 0.7 is smaller."""
    x, scales = random(1, 1, 70, 30) / 8, floats(1, 1, 0.7, 1.1)
    check("Resize", None, scales, x=x, mode=mode)
    made = run_reference(one_op("Resize", x, (None, scales), mode=mode), {"x": x})["y"]
    assert made.shape == (1, 1, 49, 33)


def test_resize_to_sizes_beside_scales_that_are_empty():
    """PyTorch exports resizing so in opset 11."""
    nothing = floats()
    check("Resize", nothing, nothing, ints(2, 6, 18, 22), opset=11, mode="nearest")


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("coordinates", ["align_corners", "half_pixel", "asymmetric"])
@pytest.mark.parametrize(("shape", "sizes"), [((5, 1), (9, 1)), ((1, 4), (1, 8)), ((1, 1), (3, 1))])
def test_resize_of_one_row_or_column(mode, coordinates, shape, sizes):
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    check("Resize", None, None, ints(2, 3, *sizes), x=random(2, 3, *shape), **attrs)


@pytest.mark.parametrize(
    ("mode", "attrs"),
    [
        ("nearest", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
        ("nearest", {}),
        ("linear", {}),
        ("linear", {"coordinate_transformation_mode": "align_corners"}),
    ],
)
def test_resize_becomes_the_native_operator_where_it_is_exact(mode, attrs):
    assert check("Resize", None, floats(1, 1, 2, 2), mode=mode, **attrs) == ["image.resize2d"]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_variants(mode):
    check("Resize", None, floats(0.4, 0.6), mode=mode, antialias=1, axes=[2, 3])
    check("Resize", None, None, ints(14, 12), mode=mode, axes=[2, 3])
    check("Resize", None, floats(1, 1, 1.7, 1.3), mode=mode)
    region = floats(0, 0, 0.1, 0.2, 1, 1, 0.9, 1.3)
    check(
        "Resize",
        region,
        None,
        ints(2, 6, 5, 8),
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )


def test_old_upsampling():
    twice = floats(1, 1, 2, 2)
    for opset in (7, 8):
        check("Upsample", opset=opset, scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")
    for mode in ("nearest", "linear"):
        check("Upsample", twice, opset=9, mode=mode)
    check("Resize", twice, opset=10, mode="nearest")
    check("Resize", floats(), twice, opset=11, mode="nearest")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 0.5), (0.7, 1, 1.6, 0.6), (1, 1, 0.5, 1)])
def test_old_resize_that_shrinks(scales, mode):
    """Neighbours are rounded up along axes that shrink, down along others."""
    if mode == "linear":
        scales = (1, 1, *scales[2:])
    model = one_op("Resize", DATA, [floats(*scales)], opset=10, mode=mode)
    assert_matches_onnxruntime(model, {"x": DATA})
    truth = run_reference(model, {"x": DATA})["y"]
    np.testing.assert_allclose(truth, run_onnxruntime(model, {"x": DATA})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    ("shape", "scales", "attrs"),
    [
        ((1, 3, 9, 11), (1, 1, 2, 2), {}),
        ((1, 9, 11, 3), (1, 1.5, 2.5, 1), {}),
        ((9, 11, 3), (2, 2, 1), {}),
        ((1, 3, 21, 22), (1, 1, 0.5, 0.5), {"antialias": 1}),
        ((1, 2, 5, 6, 7), (1, 1, 2, 2, 2), {}),
        ((1, 3, 9, 11), (1, 1, 1.7, 1.3), {}),
        ((1, 3, 9, 11), (1, 1, 2, 2), {"coordinate_transformation_mode": "align_corners"}),
    ],
)
def test_resizing_integers(shape, scales, attrs, mode, dtype):
    """Results equal the reference's, and ONNX Runtime's where that is right, up to rounding."""
    info = np.iinfo(dtype)
    low, high = max(info.min, -1000), min(info.max, 1000)
    x = np.random.default_rng(0).integers(low, high, shape).astype(dtype)
    model = one_op("Resize", x, [None, floats(*scales)], mode=mode, **attrs)
    (expected,) = run_reference(model, {"x": x}).values()
    _, _, (actual,) = run_imported(model, {"x": x})
    np.testing.assert_array_equal(actual, expected)
    # ONNX Runtime smooths negative bytes wrongly, and returns nothing or zeros for cubics.
    if mode == "linear" and dtype != "int64" and not (dtype == "int8" and "antialias" in attrs):
        (theirs,) = run_onnxruntime(model, {"x": x})
        assert np.abs(actual.astype(int) - theirs.astype(int)).max() <= 1
        assert (actual != theirs).mean() < 0.1


def test_smoothing_to_a_size_that_float32_rounds_up():
    model = one_op(
        *("Resize", random(1, 2, 20, 20), [None, floats(1, 1, 0.35, 0.35)]),
        mode="linear",
        antialias=1,
    )
    feeds = {"x": random(1, 2, 20, 20)}
    assert_matches_onnxruntime(model, feeds)
    (expected,) = run_reference(model, feeds).values()
    assert expected.shape == (1, 2, 7, 7)


def test_pads_and_the_last_window_of_ceil_mode():
    nodes = [
        node_of("Pad", "x p", "a"),
        node_of("AveragePool", "a", kernel_shape=[3, 3], strides=[3, 3], ceil_mode=1),
    ]
    feeds = {"x": random(1, 3, 2, 2)}
    model = make_model(nodes, feeds, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)})
    assert_matches_onnxruntime(model, feeds)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("channels", [3, 16, 37])
@pytest.mark.parametrize("bins", [(3, 2), (1, 1), (5, 7)])
@pytest.mark.parametrize("samples", [0, 1, 3])
def test_regions(mode, samples, bins, channels):
    corners = [[0, 0, 5, 5], [1, 2, 7, 6], [-3, -3, 20, 20], [2, 2, 2, 2], [5, 5, 3, 3]]
    feeds = {"x": random(2, channels, 8, 8), "r": np.array(corners, np.float32)}
    node = node_of(
        "RoiAlign",
        "x r i",
        output_height=bins[0],
        output_width=bins[1],
        mode=mode,
        sampling_ratio=samples,
        spatial_scale=0.7,
    )
    model = make_model([node], feeds, {"i": ints(0, 1, 1, 0, 0)})
    assert_matches_onnxruntime(model, feeds)


def test_unpooling_to_a_shape():
    nodes = [
        node_of("MaxPool", "x", "p i", kernel_shape=[2, 2], strides=[2, 2]),
        node_of("MaxUnpool", "p i s", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    feeds = {"x": random(1, 2, 5, 5)}
    model = make_model(nodes, feeds, {"s": ints(1, 2, 5, 5)}, like_first_input=True)
    assert_matches_onnxruntime(model, feeds)


def test_one_hot_of_values_that_are_inputs():
    feeds = {"x": ints(0, 2, -1), "v": floats(0.5, 2)}
    model = make_model([node_of("OneHot", "x d v")], feeds, {"d": ints(5)})
    assert_matches_onnxruntime(model, feeds)


@pytest.mark.parametrize(("shape", "of"), [((2, 3, 4, 5), (3, 4, 5)), ((2, 5), (5,))])
def test_batch_normalisation_of_each_element(shape, of):
    """MXNet writes it so, in opset 8 and older."""
    statistics = {name: random(*of, seed=seed) for seed, name in enumerate("sbmv")}
    statistics["v"] = np.abs(statistics["v"]) + 1
    node = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0)
    feeds = {"x": random(*shape)}
    model = make_model([node], feeds, statistics, opset=8, like_first_input=True)
    assert_matches_onnxruntime(model, feeds)
