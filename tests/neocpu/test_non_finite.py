"""NaN and infinities in images and weights appear exactly where the reference has them."""

import needs
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import neocpu
from neocpu.verification.reference.runner import run_reference

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SPECIAL = (np.nan, np.inf, -np.inf)
ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Exp")
FLOAT = TensorProto.FLOAT


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scattered(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers, a few of them special."""
    array = normal(*shape, seed=seed)
    places = np.random.default_rng(seed).permutation(array.size)[: 2 * len(SPECIAL)]
    array.reshape(-1)[places] = SPECIAL * 2
    return array


def model(nodes, shape, outputs, **weights: np.ndarray) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(name, FLOAT, [None] * 4) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(made: ModelProto, x: np.ndarray, **options) -> set[str]:
    """Compare a compiled model with the reference; return the templates it uses."""
    expected = run_reference(made, {"x": x})
    with neocpu.compile(made, threads=1, verify=False, **options) as compiled:
        with compiled.module(1) as module:
            actual = module.run({"x": x})
        ops = compiled.plan.ops
    for name, value in expected.items():
        assert not np.isfinite(value).all() or not np.isfinite(x).all(), "tests nothing"
        np.testing.assert_allclose(actual[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    return {op.scheme.template for op in ops if op.scheme}


def activations(source: str, prefix: str) -> tuple[list, list[str]]:
    """Return every activation of ``source``, and their names."""
    names = [f"{prefix}_{kind}" for kind in ACTIVATIONS]
    nodes = []
    for kind, name in zip(ACTIVATIONS, names, strict=True):
        inputs = [source, "low", "high"] if kind == "Clip" else [source]
        nodes.append(helper.make_node(kind, inputs, [name]))
    return nodes, names


LIMITS = {"low": np.float32(-0.5), "high": np.float32(0.5)}


def test_activations_alone():
    x = scattered(1, 5, 6, 7)
    nodes, names = activations("x", "y")
    check(model(nodes, x.shape, names, **LIMITS), x)


@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("algorithm", ["direct", "depthwise", "pointwise", "nchw"])
@needs.one_in(2)
def test_an_image_through_convolutions_and_their_activations(algorithm, channels):
    """Each activation has a convolution before it and another one after it."""
    size = 1 if algorithm == "pointwise" else 3
    groups = channels if algorithm == "depthwise" else 1
    shape = (channels, channels // groups, size, size)
    pads = [size // 2] * 4
    x = scattered(1, channels, 9, 8, seed=channels)
    nodes, outputs, weights = [], [], dict(LIMITS)
    for number, kind in enumerate(("Relu", "Clip", "HardSwish", "Sigmoid")):
        before, between, after = (f"{kind}_{place}" for place in ("conv", "activation", "out"))
        inputs = [before, "low", "high"] if kind == "Clip" else [before]
        attributes = {"pads": pads, "group": groups}
        nodes += [
            helper.make_node("Conv", ["x", f"w{number}"], [before], **attributes),
            helper.make_node(kind, inputs, [between]),
            helper.make_node("Conv", [between, f"v{number}"], [after], **attributes),
        ]
        weights[f"w{number}"] = normal(*shape, seed=number) * np.float32(0.3)
        weights[f"v{number}"] = normal(*shape, seed=-number % 97) * np.float32(0.3)
        outputs.append(after)
    check(model(nodes, x.shape, outputs, **weights), x, algorithms=[algorithm])


@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize("first", [None, "Conv"])
def test_pools_and_reductions(first, channels):
    x = scattered(1, channels, 9, 8, seed=3)
    source, nodes, weights = "x", [], {}
    if first:  # in a blocked layout
        source, weights = "c", {"w": np.ones((channels, 1, 1, 1), np.float32)}
        nodes.append(helper.make_node("Conv", ["x", "w"], ["c"], group=channels))
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    dilated = {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}
    kinds = {
        "max": ("MaxPool", window),
        "dilated": ("MaxPool", dilated),
        "average": ("AveragePool", window),
        "mean": ("GlobalAveragePool", {}),
        "most": ("GlobalMaxPool", {}),
        "channels": ("ReduceMax", {"axes": [1]}),
        "softmax": ("Softmax", {"axis": 1}),
    }
    nodes += [helper.make_node(op, [source], [name], **at) for name, (op, at) in kinds.items()]
    check(model(nodes, x.shape, kinds, **weights), x)


@pytest.mark.parametrize("special", SPECIAL, ids=str)
def test_weights(special):
    """An infinite weight times a zero of the padding is NaN."""
    weights = normal(16, 16, 3, 3) * np.float32(0.1)
    weights[3, 2, 0, 1] = special
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    made = model([node], (1, 16, 12, 12), ["y"], w=weights)
    used = check(made, normal(1, 16, 12, 12), algorithms=["direct", "nchw"])
    assert "conv2d_winograd" not in used
    assert check(made, normal(1, 16, 12, 12), algorithms=["winograd"]).isdisjoint(
        {"conv2d_winograd"}
    )


def test_winograd_keeps_infinities_within_its_tiles():
    """Pixels far from them keep their values, and all NaN of the reference are NaN."""
    x = normal(1, 16, 24, 24)
    x[0, 3, 2, 2] = np.inf
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    made = model([node], x.shape, ["y"], w=normal(16, 16, 3, 3) * np.float32(0.1))
    (expected,) = run_reference(made, {"x": x}).values()
    with (
        neocpu.compile(made, threads=1, verify=False, algorithms=["winograd"]) as compiled,
        compiled.module(1) as module,
    ):
        actual = module(x)
    assert not np.isfinite(actual[~np.isfinite(expected)]).any()
    np.testing.assert_allclose(actual[:, :, 10:], expected[:, :, 10:], rtol=1e-3, atol=1e-4)
    check(made, x, accuracy="strict")
