"""Models in floats of 16 bits compute in float32; narrower ones are named on import."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.differential import (
    assert_matches_onnxruntime,
    relax_ops,
    run_imported,
    run_onnxruntime,
)
from tests.neocpu.frontend.onnx_models import onnx_model
from tests.text_models import nodes_of

WEIGHTS = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
Q_WEIGHTS = np.clip(np.round(WEIGHTS / 0.02), -128, 127).astype(np.int8)
CONSTANTS = {
    "wq": Q_WEIGHTS,
    "s": np.float32(0.02),
    "t": np.float32(0.1),
    "zero": np.int8(0),
    "middle": np.uint8(128),
}


def model(text: str, kind: int = TensorProto.FLOAT, **constants: object) -> onnx.ModelProto:
    """Return a model of ``x`` of shape 1x3x16x16 and ``y``."""
    nodes = nodes_of(text)
    used = {name for each in nodes for name in each.input}
    result = kind if nodes[-1].op_type != "Cast" else TensorProto.FLOAT
    weights = {name: array for name, array in (CONSTANTS | constants).items() if name in used}
    ends = {"x": (kind, [1, 3, 16, 16])}, {"y": (result, list("NCHW"))}
    return onnx_model(nodes, *ends, weights, opset=22)


HALVES = pytest.mark.parametrize(
    ("kind", "dtype"),
    [(TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)],
)


@HALVES
def test_halves_are_computed_in_float32(kind, dtype):
    """Inputs and outputs stay halves, and the weights keep their values."""
    half = WEIGHTS.astype(dtype)
    text = "c = Conv(x, narrow) y = Softmax<axis = 1>(c)"
    made, wide = model(text, kind, narrow=half), model(text, narrow=half.astype(np.float32))
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(dtype)
    loaded, module, (found,) = run_imported(made, {"x": x})
    _, _, (expected,) = run_imported(wide, {"x": x.astype(np.float32)})
    assert (loaded.inputs[0].dtype, loaded.outputs[0].dtype) == (x.dtype.name, x.dtype.name)
    assert relax_ops(module) == ["astype", "nn.conv2d", "nn.softmax", "astype"]
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(dtype).astype("f4"))


@HALVES
def test_halves_inside(kind, dtype):
    text = f"h = Cast<to = {kind}>(x) c = Conv(h, narrow) y = Cast<to = 1>(c)"
    made = model(text, narrow=WEIGHTS.astype(dtype))
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    _, module, (found,) = run_imported(made, {"x": x})
    assert relax_ops(module) == ["nn.conv2d"]
    wide = model("y = Conv(x, w)", w=WEIGHTS.astype(dtype).astype("f4"))
    np.testing.assert_allclose(found, run_onnxruntime(wide, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_numbers_beyond_float16_become_infinite_only_at_outputs():
    constants = {"large": np.float16(1000), "small": np.float16([[[[1]], [[0.01]], [[-1]]]])}
    made = model("m = Mul(x, large) y = Mul(m, small)", TensorProto.FLOAT16, **constants)
    x = np.full((1, 3, 16, 16), 100, np.float16)
    (found,) = run_imported(made, {"x": x})[2]
    np.testing.assert_array_equal(found[0, :, 0, 0], np.float16([np.inf, 1000, -np.inf]))


@HALVES
def test_an_output_is_rounded_half_to_even(kind, dtype):
    made = model("y = Mul(x, x)", kind)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    finite = every[np.isfinite(every.astype(np.float32))]
    x = np.resize(finite, 85 * 768).reshape(85, 3, 16, 16)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 85
    with np.errstate(over="ignore"):
        expected = (x.astype(np.float32) ** 2).astype(dtype)
    (found,) = run_imported(made, {"x": x})[2]
    normal = np.abs(expected.astype(np.float32)) >= np.finfo(np.float32).tiny
    np.testing.assert_array_equal(found[normal], expected[normal])


@HALVES
@pytest.mark.parametrize("constant", [False, True])
def test_outputs_that_are_inputs_or_constants(kind, dtype, constant):
    made = model("y = Add(x, k)", kind, k=np.ones(1, dtype))
    shape = [1, 3, 16, 16] if not constant else [1]
    also = helper.make_tensor_value_info("k" if constant else "x", kind, shape)
    made.graph.output.append(also)
    x = np.arange(768, dtype=np.float32).reshape(1, 3, 16, 16).astype(dtype)
    _, _, (total, given) = run_imported(made, {"x": x})
    np.testing.assert_array_equal(given, np.ones(1, dtype) if constant else x)
    np.testing.assert_array_equal(total, (x.astype(np.float32) + 1).astype(dtype))


def test_halves_in_attributes_and_functions():
    """They are those of ConstantOfShape, EyeLike and a local function's Cast."""
    half = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22, "own": 1]>
        g (float16[4, 4] x) => (float16[a, b] y) {
            s = Constant <value = int64[2] {4, 4}> ()
            c = ConstantOfShape <value = float[1] {2.5}> (s)
            e = EyeLike <dtype = 10> (x)
            t = own.wide (e)
            u = Mul (t, c)
            y = Add (u, x)
        }
        <domain: "own", opset_import: ["": 22]>
        wide (v) => (w) { a = Cast <to = 1> (v) w = Cast <to = 10> (a) }"""
    )
    half.graph.node[1].attribute[0].t.CopyFrom(numpy_helper.from_array(np.float16([2.5])))
    x = np.arange(16, dtype=np.float16).reshape(4, 4)
    (found,) = run_imported(half, {"x": x})[2]
    np.testing.assert_array_equal(found, x + np.float16(2.5) * np.eye(4, dtype=np.float16))


def test_numbers_of_eight_bits():
    eight = np.zeros((), ml_dtypes.float8_e4m3fn)
    made = model("q = QuantizeLinear(x, s, eight) y = DequantizeLinear(q, s, eight)", eight=eight)
    with pytest.raises(UnsupportedError, match="computes with float8e4m3fn numbers"):
        load_model(made)


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
    made = model("v = Cast<to = 1>(stored) y = Conv(x, v)", stored=stored)
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    assert_matches_onnxruntime(made, {"x": x})


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_alone_compile(bits):
    made = model("v = DequantizeLinear(wq, s, zero) y = Conv(x, v)")
    if bits == 4:
        del made.graph.initializer[:]
        INT4.name = "wq"
        zero = helper.make_tensor("zero", TensorProto.INT4, (), [0])
        made.graph.initializer.extend([INT4, numpy_helper.from_array(np.float32(0.02), "s"), zero])
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    assert_matches_onnxruntime(made, {"x": x})


def test_a_quantised_input_keeps_its_type():
    made = model("q = QuantizeLinear(x, s, middle) y = DequantizeLinear(q, s, middle)")
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    assert_matches_onnxruntime(made, {"x": x})
