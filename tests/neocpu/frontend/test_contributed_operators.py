"""ONNX Runtime's own operators, rewritten in standard ones, agree with it."""

import numpy as np
import onnx.version_converter
import pytest
from differential import assert_matches_onnxruntime, floats, node_of, random, run_onnxruntime
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model

X, SKIP = random(2, 3, 16), random(2, 3, 16, seed=1)
VECTORS = {name: random(16, seed=seed) for seed, name in enumerate("ghb", 2)}
IMAGE, KERNELS, BIAS = random(1, 4, 6, 6), random(5, 4, 3, 3, seed=1), random(5, seed=2)


def contributed(op, names, feeds, constants=None, outputs=("y",), opset=17, **attrs):
    node = helper.make_node(op, names, list(outputs), domain="com.microsoft", **attrs)
    return model([node], feeds, constants or {}, [name for name in outputs if name], opset)


def model(nodes, feeds, constants, outputs, opset):
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(op, names, feeds, constants=None, outputs=("y",), **attrs):
    assert_matches_onnxruntime(contributed(op, names, feeds, constants, outputs, **attrs), feeds)


@pytest.mark.parametrize(
    ("op", "names", "attrs"),
    [
        ("Gelu", ["x"], {}),
        ("BiasGelu", ["x", "b"], {}),
        ("FastGelu", ["x"], {}),
        ("FastGelu", ["x", "b"], {}),
        ("QuickGelu", ["x"], {}),
        ("QuickGelu", ["x"], {"alpha": 0.8}),
        ("SkipLayerNormalization", ["x", "s", "g"], {}),
        ("SkipLayerNormalization", ["x", "s", "g", "h"], {"epsilon": 1e-3}),
        ("SkipLayerNormalization", ["x", "s", "g", "h", "b"], {}),
        ("SkipLayerNormalization", ["x", "s", "g", "", "b"], {}),
        ("SkipSimplifiedLayerNormalization", ["x", "s", "g"], {"epsilon": 1e-5}),
        ("SkipSimplifiedLayerNormalization", ["x", "s", "g", "b"], {"epsilon": 1e-5}),
    ],
)
def test_activations_and_normalisations(op, names, attrs):
    feeds = {name: array for name, array in (("x", X), ("s", SKIP)) if name in names}
    constants = {name: array for name, array in VECTORS.items() if name in names}
    check(op, names, feeds, constants, **attrs)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_before_a_normalisation(op):
    outputs = ("y", "", "", "total")
    check(op, ["x", "s", "g"], {"x": X, "s": SKIP}, VECTORS, outputs, epsilon=1e-5)


@pytest.mark.parametrize("shape", [(3, 16), (1, 3, 16)])
def test_skip_connections_broadcast(shape):
    feeds = {"x": X, "s": random(*shape, seed=1)}
    check("SkipLayerNormalization", ["x", "s", "g", "h"], feeds, VECTORS)


def test_a_normalisation_under_onnxs_name():
    node = node_of("SimplifiedLayerNormalization", "x g", axis=-1, epsilon=1e-5)
    assert_matches_onnxruntime(model([node], {"x": X}, VECTORS, ["y"], 17), {"x": X})


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_products(first, second):
    feeds = {"x": random(2, 4, 4), "w": random(4, 4, seed=1)}
    check("FusedMatMul", ["x", "w"], feeds, alpha=0.5, transA=first, transB=second)


def test_a_product_whose_batch_comes_second():
    feeds = {"x": random(4, 2, 5), "w": random(2, 5, 3, seed=1)}
    check("FusedMatMul", ["x", "w"], feeds, transBatchA=1)


_ACTIVATIONS = {
    "Clip": (-0.5, 0.5),
    "HardSigmoid": (0.2, 0.4),
    "LeakyRelu": (0.1,),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_convolutions_with_activations(activation):
    attrs = {"activation": activation, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if _ACTIVATIONS[activation]:
        attrs["activation_params"] = list(_ACTIVATIONS[activation])
    check("FusedConv", ["x", "w", "b"], {"x": IMAGE}, {"w": KERNELS, "b": BIAS}, **attrs)


@pytest.mark.parametrize("activation", [{}, {"activation": "Relu"}])
def test_fused_convolutions_with_a_sum(activation):
    feeds = {"x": IMAGE, "z": random(1, 5, 4, 4, seed=3)}
    names, constants = ["x", "w", "b", "z"], {"w": KERNELS, "b": BIAS}
    check("FusedConv", names, feeds, constants, kernel_shape=[3, 3], **activation)


@pytest.mark.parametrize("activation", [name for name in _ACTIVATIONS if name != "Clip"])
def test_dense_layers_with_activations(activation):
    kinds = zip(("activation_alpha", "activation_beta"), _ACTIVATIONS[activation], strict=False)
    constants = {"w": random(4, 5, seed=1), "b": BIAS}
    check(
        *("FusedGemm", ["x", "w", "b"], {"x": random(3, 4)}, constants),
        activation=activation,
        **dict(kinds),
    )


def test_products_of_integers():
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-100, 100, (16, 8)).astype(np.int8),
        "s": floats(0.1).reshape(()),
        "t": floats(0.2).reshape(()),
        "b": random(8),
    }
    stored = {"x": rng.integers(0, 255, (5, 16)).astype(np.uint8)}
    check("MatMulIntegerToFloat", ["x", "w", "s", "t"], stored, constants)
    check("MatMulIntegerToFloat", ["x", "w", "s", "t", "", "", "b"], stored, constants)
    feeds = {"x": random(5, 16)}
    model = contributed("DynamicQuantizeMatMul", ["x", "w", "t", "", "b"], feeds, constants)
    assert_matches_onnxruntime(model, feeds, rtol=1e-3, atol=1e-2)


def test_an_unknown_activation_is_named():
    made = contributed(
        *("FusedConv", ["x", "w"], {"x": IMAGE}, {"w": KERNELS}),
        activation="Mystery",
        kernel_shape=[3, 3],
    )
    with pytest.raises(UnsupportedError, match="FusedConv 'y': its activation 'Mystery' is not"):
        load_model(made)


@pytest.mark.parametrize(
    ("op", "domain", "opset"), [("QuickGelu", "com.microsoft", 17), ("Relu", "", 13)]
)
def test_operators_within_functions_and_beside_them(op, domain, opset):
    inner = node_of(op, "a", "b", domain=domain)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    function = helper.make_function("mine", "F", ["a"], ["b"], [inner], opsets)
    nodes = [
        node_of("F", "x", "f", domain="mine"),
        node_of("QuickGelu", "f", domain=opsets[1].domain),
    ]
    made = model(nodes, {"x": X}, {}, ["y"], opset)
    made.opset_import.append(helper.make_opsetid("mine", 1))
    made.functions.append(function)
    assert_matches_onnxruntime(made, {"x": X})


def test_models_are_upgraded_without_their_large_weights(monkeypatch):
    """Models above 2 GB could not be upgraded otherwise: protobuf cannot serialise them."""
    sizes, convert = [], onnx.version_converter.convert_version

    def converted(proto, target):
        sizes.append(proto.ByteSize())
        return convert(proto, target)

    monkeypatch.setattr("onnx.version_converter.convert_version", converted)
    constants = {"w": random(64, 40, seed=1), "b": random(40)}
    check("FusedGemm", ["x", "w", "b"], {"x": random(3, 64)}, constants, activation="Relu")
    assert sizes
    assert max(sizes) < constants["w"].nbytes


def test_epsilons_are_onnxruntimes():
    for op, least in (
        ("SimplifiedLayerNormalization", 1e-5),
        ("SkipLayerNormalization", 1e-12),
        ("SkipSimplifiedLayerNormalization", 1e-12),
    ):
        names = ["x", "g"] if op.startswith("Simpl") else ["x", "s", "g"]
        small = {"x": X * 1e-3, "s": SKIP * 1e-3}
        feeds = {name: small[name] for name in names if name != "g"}
        domain = "" if op.startswith("Simpl") else "com.microsoft"
        node = helper.make_node(op, names, ["y"], domain=domain)
        made = model([node], feeds, {"g": VECTORS["g"]}, ["y"], 17)
        assert_matches_onnxruntime(made, feeds)
        total = np.add.reduce(list(feeds.values())).astype(np.float64)
        if op.startswith("Simpl"):
            root = np.sqrt((total**2).mean(-1, keepdims=True) + least)
            (found,) = run_onnxruntime(made, feeds)
            np.testing.assert_allclose(found, total / root * VECTORS["g"], rtol=1e-4)
