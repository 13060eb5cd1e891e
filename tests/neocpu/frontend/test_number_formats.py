"""Quantised and narrow models are named on import; what only stores such weights compiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend import load_model
from tests.neocpu.frontend.differential import assert_matches_onnxruntime

WEIGHTS = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
Q_WEIGHTS = np.clip(np.round(WEIGHTS / 0.02), -128, 127).astype(np.int8)
CONSTANTS = {
    "wq": Q_WEIGHTS,
    "s": np.float32(0.02),
    "t": np.float32(0.1),
    "zero": np.int8(0),
    "middle": np.uint8(128),
}


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    names = [[("" if n == "_" else n) for n in each.split()] for each in (inputs, outputs)]
    return helper.make_node(op, *names, name=f"the_{op}", **attributes)


def model(
    *nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT, constants: dict | None = None
) -> onnx.ModelProto:
    """Return a model of ``x`` of shape 1x3x16x16 and ``y``."""
    used = {name for each in nodes for name in each.input}
    arrays = {**CONSTANTS, **(constants or {})}
    result = kind if nodes[-1].op_type != "Cast" else TensorProto.FLOAT
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", kind, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", result, list("NCHW"))],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items() if n in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize(
    ("kind", "dtype", "name"),
    [
        (TensorProto.FLOAT16, np.float16, "float16"),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16, "bfloat16"),
    ],
)
def test_narrow_floats_inside(kind, dtype, name):
    made = model(
        node("Cast", "x", "h", to=kind),
        node("Conv", "h narrow", "c"),
        node("Cast", "c", "y", to=TensorProto.FLOAT),
        constants={"narrow": WEIGHTS.astype(dtype)},
    )
    message = rf"this is a {name} model \(Conv 1x; first 'the_Conv'\); .* export it in float32"
    with pytest.raises(UnsupportedError, match=message):
        load_model(made)


def test_numbers_of_eight_bits():
    made = model(
        node("QuantizeLinear", "x s eight", "q"),
        node("DequantizeLinear", "q s eight", "y"),
        constants={"eight": np.zeros((), ml_dtypes.float8_e4m3fn)},
    )
    with pytest.raises(UnsupportedError, match="computes with float8e4m3fn numbers"):
        load_model(made)


def test_float16_inputs():
    made = model(
        node("Conv", "x narrow", "y"),
        kind=TensorProto.FLOAT16,
        constants={"narrow": WEIGHTS.astype(np.float16)},
    )
    with pytest.raises(UnsupportedError, match="this is a float16 model"):
        load_model(made)


@pytest.mark.parametrize("op", ["Acosh", "Gelu", "GlobalAveragePool", "Sigmoid", "Softmax"])
def test_float16_in_several_steps(op):
    """Each rounds, and some have no instruction for it: TVM knows no Acosh of 16 bits."""
    made = model(node(op, "x", "y"), kind=TensorProto.FLOAT16)
    with pytest.raises(UnsupportedError, match=rf"this is a float16 model \({op} 1x"):
        load_model(made)


@pytest.mark.parametrize(("mode", "refused"), [("nearest", False), ("linear", True)])
def test_float16_resized(mode, refused):
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    made = model(
        node("Resize", "x _ scales", "y", mode=mode), kind=TensorProto.FLOAT16, constants=scales
    )
    if refused:
        with pytest.raises(UnsupportedError, match="this is a float16 model"):
            load_model(made)
    else:
        assert load_model(made).inputs[0].dtype == "float16"


@pytest.mark.parametrize(
    ("op", "weights"),
    [("Relu", None), ("Add", (1, 3, 1, 1)), ("Conv", (3, 1, 3, 3))],
)
def test_float16_without_sums_over_channels_is_no_matter(op, weights):
    constants = {} if weights is None else {"half": np.ones(weights, np.float16)}
    attributes = {"group": 3} if op == "Conv" else {}
    inputs = "x" if weights is None else "x half"
    made = model(node(op, inputs, "y", **attributes), kind=TensorProto.FLOAT16, constants=constants)
    assert load_model(made).inputs[0].dtype == "float16"


INT4 = helper.make_tensor(
    "v", TensorProto.INT4, (8, 3, 9, 9), np.arange(972, dtype=np.uint8).tobytes(), raw=True
)


@pytest.mark.parametrize(
    "stored",
    [
        WEIGHTS.astype(np.float16),
        WEIGHTS.astype(ml_dtypes.bfloat16),
        WEIGHTS.astype(ml_dtypes.float8_e4m3fn),
    ],
)
def test_weights_that_become_float32_compile(stored):
    made = model(
        node("Cast", "stored", "v", to=TensorProto.FLOAT),
        node("Conv", "x v", "y"),
        constants={"stored": stored},
    )
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    assert_matches_onnxruntime(made, {"x": x})


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_alone_compile(bits):
    made = model(node("DequantizeLinear", "wq s zero", "v"), node("Conv", "x v", "y"))
    if bits == 4:
        del made.graph.initializer[:]
        INT4.name = "wq"
        zero = helper.make_tensor("zero", TensorProto.INT4, (), [0])
        made.graph.initializer.extend([INT4, numpy_helper.from_array(np.float32(0.02), "s"), zero])
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    assert_matches_onnxruntime(made, {"x": x})


def test_a_quantised_input_is_what_it_is():
    made = model(
        node("QuantizeLinear", "x s middle", "q"), node("DequantizeLinear", "q s middle", "y")
    )
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    assert_matches_onnxruntime(made, {"x": x})
