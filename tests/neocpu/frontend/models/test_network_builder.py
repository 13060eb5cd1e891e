"""The layers that networks are described with, against numpy and onnx's shape inference."""

import numpy as np
import onnx
import onnxruntime
import pytest

from neocpu.foundation.errors import UsageError
from neocpu.frontend.models.mobile import channel_shuffle
from neocpu.frontend.models.network_builder import NetworkBuilder

SHAPE = (2, 8, 9, 12)


def _finish(layer, shape=SHAPE):
    """Return the model of one layer, and the builder's shape of its output."""
    net = NetworkBuilder("layer", shape, seed=0)
    value = layer(net, net.input)
    return net.finish(value), value.shape


def _run(model, x):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"input": x})[0]


def _input(shape=SHAPE):
    return 3 * np.random.default_rng(0).standard_normal(shape, np.float32)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(x):
    powers = np.exp(x)
    return powers / powers.sum(axis=1, keepdims=True)


VALUES = {
    "relu": (lambda net, x: net.relu(x, "a"), lambda x: np.maximum(x, 0)),
    "relu6": (lambda net, x: net.relu6(x, "a"), lambda x: np.clip(x, 0, 6)),
    "leaky_relu": (
        lambda net, x: net.leaky_relu(x, "a", 0.1),
        lambda x: np.where(x < 0, 0.1 * x, x),
    ),
    "sigmoid": (lambda net, x: net.sigmoid(x, "a"), _sigmoid),
    "hard_sigmoid": (lambda net, x: net.hard_sigmoid(x, "a"), lambda x: np.clip(x + 3, 0, 6) / 6),
    "hard_swish": (lambda net, x: net.hard_swish(x, "a"), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "silu": (lambda net, x: net.silu(x, "a"), lambda x: x * _sigmoid(x)),
    "softmax": (lambda net, x: net.softmax(x, "a", axis=1), _softmax),
    "add": (lambda net, x: net.add(x, net.relu(x, "a"), "b"), lambda x: x + np.maximum(x, 0)),
    "global_average_pool": (
        lambda net, x: net.global_average_pool(x, "a"),
        lambda x: x.mean(axis=(2, 3), keepdims=True),
    ),
    "upsample": (
        lambda net, x: net.upsample(x, "a", 2),
        lambda x: x.repeat(2, axis=2).repeat(2, axis=3),
    ),
    "flatten": (lambda net, x: net.flatten(x, "a"), lambda x: x.reshape(2, -1)),
    "slice": (lambda net, x: net.slice(x, "a", 2, 7), lambda x: x[:, 2:7]),
    "transpose": (
        lambda net, x: net.transpose(x, "a", (0, 2, 3, 1)),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "channel_shuffle": (
        lambda net, x: channel_shuffle(net, x, "a"),
        lambda x: x[:, [0, 4, 1, 5, 2, 6, 3, 7]],
    ),
}


@pytest.mark.parametrize("layer", VALUES)
def test_every_layer_agrees_with_its_definition(layer):
    build, expected = VALUES[layer]
    model, shape = _finish(build)
    x = _input()
    actual = _run(model, x)
    assert actual.shape == shape
    np.testing.assert_allclose(actual, expected(x), rtol=1e-5, atol=1e-6)


WINDOWS = {
    "rectangular": lambda net, x: net.conv(x, "a", 6, (1, 7), padding=(0, 3)),
    "strided": lambda net, x: net.conv(x, "a", 6, 3, stride=(2, 3), padding=(1, 0)),
    "grouped": lambda net, x: net.conv(x, "a", 12, 3, groups=4, bias=True),
    "depthwise": lambda net, x: net.conv(x, "a", 8, 3, groups=8, padding=1),
    "transposed": lambda net, x: net.conv_transpose(x, "a", 6, 3, stride=2, padding=1),
    "max_pool": lambda net, x: net.max_pool(x, "a", 3, stride=2, padding=1),
    "ceil": lambda net, x: net.max_pool(x, "a", 2, stride=2, ceil_mode=True),
    "ceil_in_the_padding": lambda net, x: net.max_pool(
        x, "a", 2, stride=(3, 2), padding=1, ceil_mode=True
    ),
    "average_pool": lambda net, x: net.average_pool(x, "a", (3, 2), stride=1, padding=1),
    "squeeze_excitation": lambda net, x: net.squeeze_excitation(x, "a", 4),
    "swish_excitation": lambda net, x: net.squeeze_excitation(x, "a", 4, swish=True),
    "concat": lambda net, x: net.concat((x, net.relu(x, "a")), "b"),
    "classifier": lambda net, x: net.classifier(x, "a", 5),
}


@pytest.mark.parametrize("layer", WINDOWS)
def test_shape_is_the_one_that_comes_out(layer):
    model, shape = _finish(WINDOWS[layer])
    onnx.checker.check_model(model, full_check=True)
    assert _run(model, _input()).shape == shape


def test_padding_counts_in_an_average():
    model, _ = _finish(lambda net, x: net.average_pool(x, "a", 2, stride=1, padding=1))
    x = _input()
    np.testing.assert_allclose(_run(model, x)[:, :, 0, 0], x[:, :, 0, 0] / 4, rtol=1e-6)


@pytest.mark.parametrize("image", [(7, 7), (14, 21), (6, 6), (8, 13), (1, 1), (7, 5)])
def test_adaptive_average_pool(image):
    x = _input((2, 3, *image))
    model, shape = _finish(
        lambda net, x: net.relu(net.adaptive_average_pool(x, "a", 7), "b"), x.shape
    )
    expected = np.empty((2, 3, 7, 7), np.float32)
    for i, j in np.ndindex(7, 7):
        rows, columns = (
            slice(k * size // 7, -(-(k + 1) * size // 7))
            for k, size in zip((i, j), image, strict=True)
        )
        expected[:, :, i, j] = x[:, :, rows, columns].mean(axis=(2, 3))
    assert shape == expected.shape
    np.testing.assert_allclose(_run(model, x), np.maximum(expected, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "relu6", "hard_swish", "silu"])
def test_activations_neither_grow_nor_fade_with_depth(activation):
    net = NetworkBuilder("deep", (1, 64, 16, 16), seed=0)
    x = net.input
    for number in range(12):
        x = net.conv(x, f"{number}.conv", 64, 3, padding=1)
        x = getattr(net, activation)(net.batch_norm(x, f"{number}.bn"), f"{number}.act")
    x = net.conv(x, "last", 64, 1)
    assert 0.2 < _run(net.finish(x), _input((1, 64, 16, 16)) / 3).std() < 5


def test_several_outputs_have_names():
    net = NetworkBuilder("two", SHAPE, seed=0)
    first = net.relu(net.input, "a")
    second = net.sigmoid(first, "b")
    model = net.finish({"scores": second, "features": first})
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert [value.name for value in session.get_outputs()] == ["scores", "features"]
    x = _input()
    scores, features = session.run(None, {"input": x})
    np.testing.assert_array_equal(features, np.maximum(x, 0))
    np.testing.assert_allclose(scores, _sigmoid(features), rtol=1e-5)


def test_an_image_smaller_than_the_kernel_is_refused():
    with pytest.raises(UsageError, match="a window of 11 does not fit 9 pixels"):
        _finish(lambda net, x: net.conv(x, "a", 4, 11))
