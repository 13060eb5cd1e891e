"""Quantised models agree with ONNX Runtime, up to one step."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.differential import make_model, random, run_imported
from tests.neocpu.frontend.onnx_models import onnx_model
from tests.neocpu.frontend.quantised import RNG, STEP, WEIGHTS, assert_within_a_step, node

SCALES = RNG.uniform(0.002, 0.01, 7).astype(np.float32)


def constants(zero: np.generic, weights: np.ndarray = WEIGHTS, **more: object) -> dict:
    kind = zero.dtype
    return {
        "s": np.float32(0.02),
        "z": zero,
        "w": weights,
        "sw": SCALES,
        "zw": np.zeros(7, weights.dtype),
        "b": RNG.integers(-900, 900, 7).astype(np.int32),
        "sb": SCALES * np.float32(0.02),
        "sy": np.float32(STEP),
        "zy": kind.type(zero + 3),
        **more,
    }


def used(nodes: list[onnx.NodeProto], arrays: dict) -> dict:
    names = {name for each in nodes for name in each.input}
    return {name: np.asarray(array) for name, array in arrays.items() if name in names}


QDQ_CONV = [
    node("QuantizeLinear", "x s z", "q"),
    node("DequantizeLinear", "q s z", "d"),
    node("DequantizeLinear", "w sw zw", "v", axis=0),
    node("DequantizeLinear", "b sb", "c", axis=0),
    node("Conv", "d v c", "r", pads=[1, 0, 2, 1], strides=[2, 1]),
    node("QuantizeLinear", "r sy zy", "p"),
    node("DequantizeLinear", "p sy zy", "y"),
]


@pytest.mark.parametrize("opset", [13, 17, 21, 23])
@pytest.mark.parametrize("zero", [np.uint8(9), np.uint8(0), np.int8(0), np.int8(-17)])
def test_convolutions(zero, opset):
    model = make_model(QDQ_CONV, {"x": random(2, 5, 9, 8)}, constants(zero), opset=opset)
    ops = assert_within_a_step(model, {"x": random(2, 5, 9, 8, seed=3)})
    assert ops.count("dequantize") == 3, "weights stay as they are stored"


def test_weights_of_opset_10_have_one_scale():
    nodes = [node(each.op_type, " ".join(each.input), each.output[0]) for each in QDQ_CONV]
    nodes = [nodes[0], nodes[1], nodes[2], node("Conv", "d v", "r"), *nodes[5:]]
    arrays = constants(np.uint8(9)) | {"sw": np.float32(0.01), "zw": np.int8(0)}
    made = used(nodes, arrays)
    assert_within_a_step(make_model(nodes, {"x": random(1, 5, 6, 6)}, made, opset=10),
                         {"x": random(1, 5, 6, 6, seed=4)})  # fmt: skip


def test_asymmetric_weights():
    arrays = constants(np.uint8(9), WEIGHTS.view(np.uint8)) | {
        "zw": RNG.integers(100, 150, 7).astype(np.uint8)
    }
    model = make_model(QDQ_CONV, {"x": random(1, 5, 9, 8)}, arrays, opset=17)
    assert_within_a_step(model, {"x": random(1, 5, 9, 8, seed=5)})


def quantised(*nodes: onnx.NodeProto, domain: str = "", opset: int = 13, **arrays: object) -> None:
    """Check operators on ``q`` and ``p``, both quantised from ``x``, which make ``r``."""
    before = [node("QuantizeLinear", "x s z", "q"), node("QuantizeLinear", "x sy zy", "p")]
    for each in nodes:
        each.domain = domain
    every = [*before, *nodes, node("DequantizeLinear", "r sy zy", "y")]
    made = used(every, constants(np.uint8(9), **arrays))
    every = [each for each in every if each.output[0] != "p" or "p" in _read(nodes)]
    x = random(2, 5, 6, 8)
    model = (
        contributed(every, x, made, 4) if domain else make_model(every, {"x": x}, made, opset=opset)
    )
    assert_within_a_step(model, {"x": random(2, 5, 6, 8, seed=6)})


def _read(nodes) -> set[str]:
    return {name for each in nodes for name in each.input}


def contributed(
    nodes: list[onnx.NodeProto], x: np.ndarray, arrays: dict, rank: int
) -> onnx.ModelProto:
    """Return a model with ONNX Runtime's own operators, whose shapes onnx does not infer."""
    ends = {"x": x.shape}, {"y": [f"d{i}" for i in range(rank)]}
    return onnx_model(nodes, *ends, arrays, opset=17, domains=["com.microsoft"])


@pytest.mark.parametrize("opset", [10, 13, 21])
@pytest.mark.parametrize("bias", ["", " b"])
def test_qlinear_conv(opset, bias):
    quantised(node("QLinearConv", f"q s z w sw zw sy zy{bias}", "r", pads=[1] * 4), opset=opset)


def test_qlinear_matmul():
    weights = RNG.integers(-127, 128, (8, 3)).astype(np.int8)
    zero = {"sw": np.float32(0.003), "zw": np.int8(0)}
    quantised(node("QLinearMatMul", "q s z m sw zw sy zy", "r"), m=weights, **zero)


@pytest.mark.parametrize(
    "made",
    [
        node("QLinearAdd", "q s z p sy zy sy zy", "r"),
        node("QLinearMul", "q s z p sy zy sy zy", "r"),
        node("QLinearConcat", "sy zy q s z p sy zy", "r", axis=1),
        node("QLinearLeakyRelu", "q s z sy zy", "r", alpha=0.1),
        node("QLinearSigmoid", "q s z sy zy", "r"),
        node("QLinearGlobalAveragePool", "q s z sy zy", "r", channels_last=0),
        node("QLinearAveragePool", "q s z sy zy", "r", kernel_shape=[3, 3], pads=[1] * 4),
    ],
    ids=lambda made: made.op_type,
)
def test_operators_of_onnx_runtime(made):
    copy = onnx.NodeProto()
    copy.CopyFrom(made)
    quantised(copy, domain="com.microsoft")


def test_qgemm():
    weights = RNG.integers(-127, 128, (3, 240)).astype(np.int8)
    scales = RNG.uniform(0.001, 0.003, 3).astype(np.float32)
    arrays = {
        "g": weights, "sg": scales, "zg": np.zeros(3, np.int8), "b": np.array([5, -9, 70], np.int32)
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QGemm", "q s z g sg zg b sy zy", "r", transB=1),
        node("DequantizeLinear", "r sy zy", "y"),
    ]
    nodes[1].domain = "com.microsoft"
    made = used(nodes, constants(np.uint8(9)) | arrays)
    model = contributed(nodes, random(2, 240), made, 2)
    assert_within_a_step(model, {"x": random(2, 240, seed=7)})


@pytest.mark.parametrize("kind", [np.int16, np.uint16])
def test_sixteen_bits(kind):
    nodes = [node("QuantizeLinear", "x t o", "q"), node("DequantizeLinear", "q t o", "y")]
    arrays = {"t": np.float32(1e-4), "o": np.array(2000, kind)}
    model = make_model(nodes, {"x": random(2, 5, 4, 3)}, arrays, opset=21)
    assert_within_a_step(model, {"x": 3 * random(2, 5, 4, 3, seed=9)}, step=1e-4)


def test_quantised_inputs_and_outputs():
    nodes = [
        node("DequantizeLinear", "x s z", "d"),
        node("Relu", "d", "r"),
        node("QuantizeLinear", "r sy zy", "y"),
    ]
    x = RNG.integers(0, 256, (1, 5, 4, 4)).astype(np.uint8)
    model = make_model(nodes, {"x": x}, used(nodes, constants(np.uint8(9))), opset=13)
    assert_within_a_step(model, {"x": x})


@pytest.mark.parametrize("wrong", [0.0, np.inf, np.nan, -1.0])
def test_scales_that_mean_nothing(wrong):
    arrays = constants(np.uint8(9)) | {"sw": np.where(np.arange(7) == 4, wrong, SCALES)}
    arrays["sw"] = arrays["sw"].astype(np.float32)
    model = make_model(QDQ_CONV, {"x": random(1, 5, 9, 8)}, arrays, opset=17)
    with pytest.raises(ModelError, match=r"DequantizeLinear .the_.*. has scale 4 of 7 .*finite"):
        load_model(model)


def test_zero_points_and_scales_that_differ():
    arrays = constants(np.uint8(9)) | {"zw": np.zeros(6, np.int8)}
    model = make_model(QDQ_CONV, {"x": random(1, 5, 9, 8)}, arrays, opset=17)
    with pytest.raises(ModelError, match="zero points and scales that differ: 6 of 7"):
        load_model(model)


@pytest.mark.parametrize("wrong", [0.0, np.nan])
def test_scales_that_are_computed(wrong):
    nodes = [
        node("Mul", "n n", "scale"),
        node("QuantizeLinear", "x scale z", "q"),
        node("DequantizeLinear", "q scale z", "y"),
    ]
    arrays = {"n": np.float32(wrong), "z": np.uint8(9)}
    with pytest.raises(ModelError, match=r"QuantizeLinear .the_.* has scale .*finite"):
        load_model(make_model(nodes, {"x": random(1, 5, 4, 4)}, arrays, opset=17))


def refused(nodes: list[onnx.NodeProto], arrays: dict, error: type, message: str) -> None:
    x = random(2, 5, 9, 8)
    model = contributed(nodes, x, used(nodes, arrays), 4)
    model.opset_import[0].version, model.ir_version = 21, 10
    with pytest.raises(error, match=message):
        run_imported(model, {"x": x})


@pytest.mark.parametrize(
    ("count", "axis", "message"),
    [
        (4, 1, "has 4 scales or zero points along axis 1, which has 5 elements"),
        (5, 7, "its axis 7 is out of range for 4 dimensions"),
        (5, -5, "its axis -5 is out of range for 4 dimensions"),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.int16], ids=lambda kind: kind.__name__)
def test_scales_that_fit_no_axis(count, axis, message, kind):
    arrays = {"v": np.full(count, 0.1, np.float32), "u": np.zeros(count, kind)}
    nodes = [
        node("QuantizeLinear", "x v u", "q", axis=axis),
        node("DequantizeLinear", "q v u", "y", axis=axis),
    ]
    refused(nodes, arrays, UnsupportedError, f"QuantizeLinear .the_.*{message}")


def test_biases_and_zero_points_that_do_not_fit():
    arrays = constants(np.uint8(9)) | {"b": np.zeros(6, np.int32), "n": np.int8(0)}
    for inputs, error, message in (
        ("q s z w sw zw sy zy b", UnsupportedError, "7 scales or zero points along axis 0"),
        ("q s n w sw zw sy zy", ModelError, "x_zero_point has inconsistent type"),
    ):
        nodes = [
            node("QuantizeLinear", "x s z", "q"),
            node("QLinearConv", inputs, "r"),
            node("DequantizeLinear", "r sy zy", "y"),
        ]
        refused(nodes, arrays, error, message)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.INT4, TensorProto.UINT4])
def test_unsupported_types_are_named(kind):
    nodes = [node("QuantizeLinear", "x s", "q", output_dtype=kind),
             node("DequantizeLinear", "q s", "y")]  # fmt: skip
    named = "quantises to numbers of ONNX's type|int4"
    refused(nodes, constants(np.uint8(9)), UnsupportedError, named)


@pytest.mark.parametrize("kind", [np.int8, np.uint16])
def test_types_that_are_named_alone_and_known(kind):
    nodes = [node("QuantizeLinear", "x s", "q", output_dtype=helper.np_dtype_to_tensor_dtype(
        np.dtype(kind))), node("DequantizeLinear", "q s", "y")]  # fmt: skip
    model = make_model(nodes, {"x": random(1, 5, 4, 4)}, {"s": np.float32(0.02)}, opset=21)
    assert_within_a_step(model, {"x": 2 * random(1, 5, 4, 4, seed=3)}, step=0.02)


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (node("QLinearAdd", "q s z", "r"), 3),
        (node("QLinearAdd", "q s z q s z", "r"), 6),
        (node("QLinearAdd", "q s z q _ z sy zy", "r"), 4),
        (node("QLinearConcat", "sy zy", "r", axis=1), 2),
        (node("QLinearConcat", "sy zy q s z q", "r", axis=1), 6),
        (node("QLinearSigmoid", "q s", "r"), 3),
    ],
)
def test_inputs_that_are_missing(made, place):
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        onnx.NodeProto.FromString(made.SerializeToString()),
        node("DequantizeLinear", "r sy zy", "y"),
    ]
    nodes[1].domain = "com.microsoft"
    message = f"com.microsoft::{made.op_type} .* lacks its input {place}$"
    refused(nodes, constants(np.uint8(9)), ModelError, message)


def test_weights_alone_may_have_four_bits():
    weights = helper.make_tensor(
        "w", TensorProto.INT4, (7, 5, 3, 3), RNG.integers(-8, 8, 315).tolist()
    )
    nodes = [*QDQ_CONV[:3], node("Conv", "d v", "y", pads=[1, 1, 1, 1])]
    nodes[2] = node("DequantizeLinear", "w sw", "v", axis=0)
    arrays = {k: v for k, v in used(nodes, constants(np.uint8(9))).items() if k != "w"}
    model = make_model(nodes, {"x": random(1, 5, 9, 8)}, arrays, opset=21)
    model.graph.initializer.append(weights)
    model = onnx.shape_inference.infer_shapes(model)
    assert_within_a_step(model, {"x": random(1, 5, 9, 8, seed=3)}, step=1e-3)


def test_four_bits():
    zero = helper.make_tensor("o", TensorProto.INT4, (), [0])
    nodes = [node("QuantizeLinear", "x s o", "q"), node("DequantizeLinear", "q s o", "y")]
    model = make_model(nodes, {"x": random(1, 5, 4, 4)}, {"s": np.float32(0.1)}, opset=21)
    model.graph.initializer.append(zero)
    with pytest.raises(UnsupportedError, match="int4"):
        load_model(model)


def test_scales_of_blocks():
    nodes = [
        node("QuantizeLinear", "x t", "q", block_size=2, axis=1),
        node("DequantizeLinear", "q t", "y", block_size=2, axis=1),
    ]
    arrays = {"t": np.full((1, 2, 4, 4), 0.1, np.float32)}
    model = make_model(nodes, {"x": random(1, 4, 4, 4)}, arrays, opset=21)
    with pytest.raises(UnsupportedError, match="has a scale for each block"):
        load_model(model)


def test_channels_last():
    made = node("QLinearGlobalAveragePool", "q s z sy zy", "r", channels_last=1)
    with pytest.raises(UnsupportedError, match="channels last; export it in NCHW"):
        quantised(made, domain="com.microsoft")


def test_other_operators_are_named():
    made = helper.make_node("QAttention", ["x"], ["y"], name="att", domain="com.microsoft")
    x = random(1, 5, 4, 4)
    with pytest.raises(UnsupportedError, match=r"com.microsoft::QAttention"):
        run_imported(contributed([made], x, {}, 4), {"x": x})
