"""Networks that shuffle pixels stay in blocked layouts, and agree with ONNX."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import neocpu
from neocpu.ir.shuffle_calls import MAX_PARTS
from tests.neocpu.frontend.differential import ints, make_model, random


def node(operator, inputs, result, **attrs):
    return helper.make_node(operator, inputs.split(), [result], **attrs)


def check(nodes, x, constants, **options):
    """Compile a model, compare it with ONNX Runtime, and return its plan's shuffles."""
    model = make_model(nodes, {"x": x}, constants)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    with neocpu.compile(model, verify=False, **options) as compiled:
        got = compiled.module()(x)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        return [op for op in compiled.plan.ops if op.kind == "shuffle"]


def weights(outs, ins, side=3):
    return random(outs, ins, side, side) / np.float32(side * np.sqrt(ins))


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
@pytest.mark.parametrize(("batch", "channels"), [(1, 32), (2, 19)])
def test_a_head_that_enlarges(mode, batch, channels):
    """EDSR has convolutions around a shuffle, and an activation after it."""
    x = random(batch, 3, 9, 7)
    constants = {
        "w0": weights(channels, 3),
        "w1": weights(4 * channels, channels),
        "b1": random(4 * channels),
        "w2": weights(9 * 16, channels),
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 4),
        node("Conv", "a w1 b1", "b", pads=[1] * 4),
        node("DepthToSpace", "b", "c", blocksize=2, mode=mode),
        node("LeakyRelu", "c", "d", alpha=0.2),
        node("Conv", "d w2", "e", pads=[1] * 4),
        node("DepthToSpace", "e", "y", blocksize=3, mode=mode),
    ]
    found = check(nodes, x, constants)
    assert len(found) == 2
    if channels % 16 == 0:
        assert found[0].in_layout != "NCHW"


def test_pixels_become_channels():
    """Both PyTorch's PixelUnshuffle and ONNX's SpaceToDepth are tested."""
    x = random(2, 16, 8, 12)
    constants = {
        "w0": weights(16, 16),
        "six": ints(2, 16, 4, 2, 6, 2),
        "four": ints(2, 64, 4, 6),
        "w1": weights(32, 64),
        "w2": weights(8, 32 * 4, 1),
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 4),
        node("Reshape", "a six", "b"),
        node("Transpose", "b", "c", perm=[0, 1, 3, 5, 2, 4]),
        node("Reshape", "c four", "d"),
        node("Conv", "d w1", "e", pads=[1] * 4),
        node("SpaceToDepth", "e", "f", blocksize=2),
        node("Conv", "f w2", "y"),
    ]
    assert len(check(nodes, x, constants)) == 2


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((2, 2), {"strides": [2, 2]}),
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((5, 2), {"strides": [3, 1], "pads": [1, 0, 2, 1]}),
    ],
)
def test_transposed_convolutions(kernel, attrs):
    x = random(1, 16, 5, 7)
    constants = {
        "w0": weights(24, 16),
        "w1": random(24, 17, *kernel) / 10,
        "b1": random(17),
        "s": np.abs(random(17)) + 1,
        "w2": weights(8, 17),
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 4),
        node("ConvTranspose", "a w1 b1", "b", **attrs),
        node("BatchNormalization", "b s b1 b1 s", "c"),
        node("Relu", "c", "d"),
        node("Conv", "d w2", "y", pads=[1] * 4),
    ]
    assert len(check(nodes, x, constants)) == 1


def test_shuffles_with_other_readers_or_too_many_parts_stay():
    """The parts of one shuffle have another reader, and the other shuffle has too many parts."""
    side = int(MAX_PARTS**0.5) + 1
    x = random(1, 8, 3, 4)
    constants = {
        "w0": weights(4 * 8, 8),
        "six": ints(1, 2, 2, 8, 3, 4),
        "four": ints(1, 8, 6, 8),
        "w1": weights(side * side, 8),
        "twelve": ints(1, 1, -1, 12),
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 4),
        node("Reshape", "a six", "b"),
        node("Transpose", "b", "c", perm=[0, 3, 4, 1, 5, 2]),
        node("Reshape", "c four", "d"),
        node("ReduceMax", "c", "m", keepdims=0),
        node("Add", "d m", "e"),
        node("Conv", "e w1", "f", pads=[1] * 4),
        node("DepthToSpace", "f", "y", blocksize=side),
    ]
    assert not check(nodes, x, constants)
