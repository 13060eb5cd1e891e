"""Networks over volumes stay in depth slices in blocked layouts, and agree with ONNX."""

import needs
import numpy as np
import onnxruntime
import pytest
from onnx import helper
from op_counts import op_counts

import neocpu
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from tests.neocpu.frontend.differential import make_model, one_op, random


def node(operator, inputs, result, **attrs):
    return helper.make_node(operator, inputs.split(), [result], **attrs)


def check(model, *feeds, **options):
    """Compile a model and compare what it computes with ONNX Runtime; returns its plan."""
    names = [value.name for value in model.graph.input]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, dict(zip(names, feeds, strict=True)))
    with neocpu.compile(model, verify=False, **options) as compiled:
        got = compiled.module()(list(feeds))
        for one, other in zip([got] if len(expected) == 1 else got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        return compiled.plan


def counted(model):
    """Return how often the simplified model has each operator."""
    return op_counts(simplify(import_relax(load_model(model))))


def residual(batch):
    """A stem of wide windows, a residual block with normalisations, pooling and a classifier."""
    x = random(batch, 3, 5, 13, 12)

    def normalised(name, channels):
        scale, shift, mean = random(3, channels)
        return dict(
            zip((f"{name}{i}" for i in "smtv"), (scale, shift, mean, mean**2 + 1), strict=True)
        )

    constants = {
        "w0": random(19, 3, 3, 5, 5) / 10,
        "b0": random(19),
        "w1": random(19, 19, 3, 3, 3) / 20,
        "w2": random(19, 19, 3, 1, 1) / 8,
        "w3": random(21, 19, 1, 1, 1) / 4,
        "w4": random(7, 21),
        **normalised("n", 19),
        **normalised("m", 19),
    }
    nodes = [
        node("Conv", "x w0 b0", "a", strides=[1, 2, 2], pads=[1, 2, 2, 1, 2, 2]),
        node("Relu", "a", "b"),
        node("Conv", "b w1", "c", pads=[1] * 6),
        node("BatchNormalization", "c ns nm nt nv", "d"),
        node("Relu", "d", "e"),
        node("Conv", "e w2", "f", pads=[1, 0, 0, 1, 0, 0]),
        node("BatchNormalization", "f ms mm mt mv", "g"),
        node("Add", "g b", "h"),
        node("Relu", "h", "i"),
        node(
            "MaxPool", "i", "j", kernel_shape=[3, 3, 2], strides=[2, 2, 1], pads=[1, 1, 0, 1, 0, 1]
        ),
        node("Conv", "j w3", "k", strides=[2, 2, 2]),
        node("GlobalAveragePool", "k", "l"),
        node("Flatten", "l", "m"),
        node("Gemm", "m w4", "y", transB=1),
    ]
    return make_model(nodes, {"x": x}, constants), x


@pytest.mark.parametrize("batch", [1, 2])
def test_a_residual_network(batch):
    model, x = residual(batch)
    found = counted(model)
    # One transposition of the input, and everything else over depth slices.
    assert found["relax.permute_dims"] == 1
    assert not any(name.endswith("3d") or name.endswith("batch_norm") for name in found)
    check(model, x)


def test_branches_and_a_gate():
    """Channels in groups, parallel branches of pools and convolutions, and a factor per channel."""
    x = random(1, 16, 4, 7, 6)
    constants = {
        "w0": random(16, 1, 3, 3, 3),
        "w1": random(20, 4, 2, 3, 1) / 4,
        "w2": random(16, 16, 1, 3, 3) / 8,
        "w3": random(52, 52, 1, 1, 1) / 8,
        "c": random(16, 1, 1, 1),
    }
    nodes = [
        node("Conv", "x w0", "a", group=16, pads=[1] * 6),
        node("Add", "a c", "b"),
        node("Conv", "b w1", "p", group=4, pads=[1, 1, 0, 0, 1, 0]),
        node("Conv", "b w2", "q", pads=[0, 1, 1, 0, 1, 1]),
        node("AveragePool", "b", "r", kernel_shape=[3, 3, 3], pads=[1] * 6),
        node("Concat", "p q r", "s", axis=1),
        node("GlobalAveragePool", "s", "t"),
        node("Conv", "t w3", "u"),
        node("Sigmoid", "u", "v"),
        node("Mul", "s v", "y"),
    ]
    model = make_model(nodes, {"x": x}, constants)
    assert counted(model)["relax.permute_dims"] == 2
    check(model, x)


def test_a_decoder():
    """The upsampled volume returns to depth slices, to be concatenated with the level above."""
    x = random(1, 5, 4, 6, 4)
    constants = {
        "w0": random(16, 5, 3, 3, 3) / 8,
        "w1": random(16, 16, 2, 2, 2) / 4,
        "w2": random(3, 32, 1, 3, 3) / 16,
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 6),
        node("MaxPool", "a", "b", kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        node("ConvTranspose", "b w1", "c", strides=[2, 2, 2]),
        node("Concat", "a c", "d", axis=1),
        node("Conv", "d w2", "y", pads=[0, 1, 1, 0, 1, 1]),
    ]
    check(make_model(nodes, {"x": x}, constants), x)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((2, 2, 2), {"strides": [2, 2, 2]}),
        ((3, 4, 2), {"strides": [1, 2, 2], "pads": [1, 1, 0, 1, 1, 0]}),
        ((4, 3, 4), {"strides": [2, 2, 3], "pads": [1] * 6, "output_padding": [0, 1, 0]}),
    ],
)
@needs.one_in(2)
def test_transposed_convolutions(kernel, attrs, batch):
    x = random(batch, 8, 3, 4, 5)
    constants = {
        "w0": random(16, 8, 3, 3, 3) / 8,
        "w1": random(16, 16, *kernel) / 8,
        "b1": random(16),
        "w2": random(5, 16, 3, 3, 3) / 20,
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 6),
        node("ConvTranspose", "a w1 b1", "b", **attrs),
        node("Relu", "b", "c"),
        node("Conv", "c w2", "y", pads=[1] * 6),
    ]
    plan = check(make_model(nodes, {"x": x}, constants), x)
    # The depth of several volumes is cut while they are volumes: one kernel shuffles and cuts, in
    # plain layout.
    # With a stride of 1 nothing is computed and then cut.
    is_cut = attrs.get("pads", [0])[0] > 0 and attrs["strides"][0] > 1
    plain = [each for each in plan.kernels if each.kind == "other" and "slice" in each.name]
    shuffles = [op.kind for op in plan.ops].count("shuffle")
    assert (shuffles, len(plain)) == ((0, 1) if batch > 1 and is_cut else (1, int(is_cut)))


POOLS = [
    ("MaxPool", {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2], "dilations": [2, 1, 2]}),
    ("MaxPool", {"kernel_shape": [1, 2, 2], "ceil_mode": 1, "strides": [1, 2, 2]}),
    (
        "AveragePool",
        {"kernel_shape": [3, 2, 2], "count_include_pad": 1, "pads": [1, 0, 1, 1, 1, 0]},
    ),
    ("AveragePool", {"kernel_shape": [2, 3, 3], "ceil_mode": 1, "strides": [2, 2, 2]}),
    ("AveragePool", {"kernel_shape": [3, 1, 1], "auto_pad": "SAME_UPPER", "strides": [2, 1, 1]}),
]


@pytest.mark.parametrize(("operator", "attrs"), POOLS)
@needs.one_in(2)
def test_pools(operator, attrs):
    x = random(2, 3, 7, 5, 6)
    check(one_op(operator, x, opset=19, **attrs), x)


def test_volumes_of_one_channel_or_one_frame():
    x = random(2, 1, 1, 5, 4)
    constants = {
        "w0": random(1, 1, 3, 3, 3),
        "w1": random(4, 1, 1, 2, 2),
        "c": random(1, 1, 1, 1, 4),
    }
    nodes = [
        node("Conv", "x w0", "a", pads=[1] * 6),
        node("Mul", "a c", "b"),
        node("Conv", "b w1", "y", dilations=[1, 2, 1]),
    ]
    check(make_model(nodes, {"x": x}, constants), x)


def test_weights_that_are_an_input_stay_with_generic_loops():
    x, w = random(1, 3, 4, 5, 5), random(2, 3, 2, 2, 2)
    check(make_model([node("Conv", "x w", "y")], {"x": x, "w": w}), x, w)


def test_stored_weights_within_frames_stay_stored():
    """Quantised convolutions within one depth slice are convolutions of images, in integers."""
    x = random(1, 16, 3, 6, 5)
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.integers(-127, 128, (16, 16, 1, 3, 3), np.int8),
        "v": rng.integers(-127, 128, (16, 16, 3, 1, 1), np.int8),
        "s": np.float32(0.01),
        "z": np.uint8(128),
        "each": rng.random(16, np.float32) / 500 + np.float32(1e-3),
        "none": np.zeros(16, np.int8),
    }
    nodes = [
        node("DequantizeLinear", "v s", "real"),
        node("Conv", "x real", "a"),
        node("QuantizeLinear", "a s z", "q"),
        node("DequantizeLinear", "q s z", "r"),
        node("DequantizeLinear", "w each none", "also_real", axis=0),
        node("Conv", "r also_real", "y", pads=[0, 1, 1, 0, 1, 1]),
    ]
    model = make_model(nodes, {"x": x}, constants)
    found = counted(model)
    assert (found["relax.nn.conv2d"], found["neocpu.frames.convolution"]) == (1, 1)
    with neocpu.compile(model, precision="int8", small=True) as compiled:
        assert compiled.verification.ok
        schemes = [op.scheme.template for op in compiled.plan.ops if op.kind == "conv2d"]
        assert schemes[1] == "conv2d_dot"


@pytest.mark.parametrize("zero", [0, 131])
def test_bytes_across_frames(zero):
    """A volume is padded by depth slices of the zero point."""
    x = random(2, 8, 4, 5, 6)
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.integers(-127, 128, (19, 8, 3, 3, 3), np.int8),
        "v": rng.integers(-127, 128, (8, 19, 3, 1, 1), np.int8),
        "s": np.float32(0.05),
        "z": np.uint8(zero),
        "each": rng.random(19, np.float32) / 2000 + np.float32(1e-3),
        "none": np.zeros(19, np.int8),
        "t": np.float32(0.003),
    }
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "r"),
        node("DequantizeLinear", "w each none", "real", axis=0),
        node("Conv", "r real", "a", pads=[1] * 6),
        node("Relu", "a", "b"),
        node("QuantizeLinear", "b s z", "qb"),
        node("DequantizeLinear", "qb s z", "rb"),
        node("DequantizeLinear", "v t", "also_real"),
        node("Conv", "rb also_real", "y", pads=[1, 0, 0, 1, 0, 0], strides=[2, 1, 1]),
    ]
    model = make_model(nodes, {"x": x}, constants)
    with neocpu.compile(model, precision="int8", small=True) as compiled:
        assert compiled.verification.ok
        convs = [op for op in compiled.plan.ops if op.kind == "conv2d"]
        assert [op.scheme.template for op in convs] == ["conv2d_dot"] * 2


def test_reports_name_the_volumes():
    model, x = residual(1)
    workloads = [op.workload for op in check(model, x).ops if op.kind == "conv2d"]
    assert workloads[1].startswith("1x19x5x7x6 -> 19, 3x3x3 +bias_add")
