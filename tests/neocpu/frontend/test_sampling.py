"""GridSample and Col2Im in all their forms agree with ONNX Runtime or the reference."""

import itertools

import needs
import numpy as np
import pytest
from differential import (
    assert_matches_onnxruntime,
    check,
    ints,
    make_model,
    node_of,
    random,
    run_imported,
)

from neocpu.verification.reference.runner import run_reference

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")


def grid_of(*shape, seed=1):
    return (1.4 * random(*shape, seed=seed)).astype(np.float32)


@needs.one_in(4)
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize(("mode", "padding"), list(itertools.product(MODES, PADDINGS)))
@pytest.mark.parametrize(
    ("data", "points"),
    [
        ((2, 3, 5, 7), (4, 9)),
        ((1, 19, 9, 6), (11, 13)),  # many channels and points: channels are last
        ((1, 19, 30, 31), (1, 1)),  # a point of a large image
        ((2, 1, 4, 4), (9, 17)),  # points whose last vectors overlap
    ],
)
def test_images(data, points, mode, padding, align):
    node = node_of("GridSample", "x g", mode=mode, padding_mode=padding, align_corners=align)
    feeds = {"x": random(*data), "g": grid_of(data[0], *points, 2)}
    assert_matches_onnxruntime(make_model([node], feeds, opset=20), feeds)


@needs.one_in(3)
@pytest.mark.parametrize(
    ("mode", "padding"), list(itertools.product(("nearest", "linear"), PADDINGS))
)
@pytest.mark.parametrize("channels", [2, 17])
def test_volumes(channels, mode, padding):
    node = node_of("GridSample", "x g", mode=mode, padding_mode=padding)
    feeds = {"x": random(2, channels, 4, 5, 3), "g": grid_of(2, 3, 7, 4, 3)}
    assert_matches_onnxruntime(make_model([node], feeds, opset=20), feeds)


@pytest.mark.parametrize("channels", [3, 16])
def test_zeros_beside_an_image_are_zeros_whatever_is_at_its_border(channels):
    x = random(1, channels, 4, 4)
    x[:, :, :, 0], x[:, :, 3, :] = np.inf, np.nan
    places = np.array([[-3, 0], [0, 3], [2, 2], [0.25, -0.25], [np.nan, 0.1]], np.float32)
    feeds = {"x": x, "g": np.tile(places, (4, 1))[None, None]}
    node = node_of("GridSample", "x g")
    made = make_model([node], feeds, opset=20)
    _, _, (found,) = run_imported(made, feeds)
    np.testing.assert_array_equal(found[..., :3], 0)
    np.testing.assert_allclose(found, run_reference(made, feeds)["y"], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int32"])
def test_other_types_of_data(dtype):
    node = node_of("GridSample", "x g")
    x = 40 * np.abs(random(1, 3, 5, 6))
    feeds = {"x": x.clip(0, 120).astype(dtype), "g": grid_of(1, 4, 4, 2)}
    made = make_model([node], feeds, opset=20)
    _, _, (found,) = run_imported(made, feeds)
    assert found.dtype == dtype
    expected = run_reference(made, feeds)["y"].astype(dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("image", "block", "attributes"),
    [
        ((5, 7), (1, 5), {}),
        ((33, 40), (3, 3), {"pads": [1, 1, 1, 1]}),
        ((7, 6), (3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
        ((9, 8), (2, 3), {"dilations": [3, 2], "strides": [1, 2]}),
        ((6, 30), (2, 11), {"pads": [0, 10, 1, 9], "dilations": [1, 2]}),
        ((40,), (16,), {"strides": [8]}),
        ((4, 5, 19), (2, 1, 3), {"strides": [1, 2, 1], "pads": [1, 0, 1, 0, 0, 2]}),
    ],
)
def test_columns_become_an_image(image, block, attributes):
    rank = len(image)
    strides, dilations = (attributes.get(key, [1] * rank) for key in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)
    places = [
        (image[a] + pads[a] + pads[rank + a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    x = random(2, 3 * np.prod(block), np.prod(places))
    check("Col2Im", ints(*image), ints(*block), x=x, **attributes)
