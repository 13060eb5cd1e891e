"""A quantised network's pictures are quantised and packed for its first layer in one kernel."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from tests.neocpu.quantised_models import run_onnxruntime

SHAPE = (1, 3, 112, 96)


def first_layer(zero: np.generic) -> onnx.ModelProto:
    """Return a convolution of a picture in QDQ form, of unsigned or of signed integers."""
    rng = np.random.default_rng(0)
    given = {
        "scale": np.float32(0.0173),
        "zero": zero,
        "weights": rng.integers(-127, 128, (16, 3, 3, 3)).astype(np.int8),
        "weight_scale": np.float32(0.01),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["stored"]),
        helper.make_node("DequantizeLinear", ["stored", "scale", "zero"], ["data"]),
        helper.make_node("DequantizeLinear", ["weights", "weight_scale"], ["taps"]),
        helper.make_node("Conv", ["data", "taps"], ["y"], pads=[1] * 4, strides=[2, 2]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", SHAPE), ("y", (1, 16, 56, 48)))
    ]
    constants = [numpy_helper.from_array(np.asarray(each), name) for name, each in given.items()]
    graph = helper.make_graph(nodes, "first", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("zero", [np.uint8(114), np.int8(-14)], ids=str)
def test_one_kernel_quantises_and_packs(zero):
    model = first_layer(zero)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32) * 2
    with neocpu.compile(model, precision="int8", small=True, threads=2) as compiled:
        kernels = [each.name for each in compiled.plan.kernels]
        got = np.array(compiled.module()(x))
    assert "quantise_NCHW_to_NCHW4c" in kernels
    assert not any("dequantise" in name or name == "quantise" for name in kernels), kernels
    expected = run_onnxruntime(model, x)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
