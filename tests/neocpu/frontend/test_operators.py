"""Every operator of convolutional networks against ONNX Runtime, one node at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.neocpu.frontend.differential import (
    assert_matches_onnxruntime,
    floats,
    ints,
    make_model,
    one_op,
    random,
    relax_ops,
    run_imported,
)

X = random(2, 6, 9, 11)


def check(op: str, *constants: np.ndarray | None, x: np.ndarray = X, **kwargs: Any) -> list[str]:
    """Compare one node with ONNX Runtime and return the Relax operators it became."""
    model = one_op(op, x, constants, **kwargs)
    return relax_ops(assert_matches_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"pads": [0, 1, 2, 3]},
        {"dilations": [2, 3], "pads": [2, 3, 2, 3]},
        {"group": 2},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "strides": [2, 1]},
    ],
)
@pytest.mark.parametrize("kernel", [(3, 3), (4, 2)])
def test_conv(attrs, kernel):
    weight = random(4, 6 // attrs.get("group", 1), *kernel, seed=1)
    ops = check("Conv", weight, random(4, seed=2), **attrs)
    assert ops == ["nn.conv2d", "add"]


def test_depthwise_conv():
    check("Conv", random(6, 1, 3, 3, seed=1), group=6, pads=[1, 1, 1, 1])
    check("Conv", random(12, 1, 3, 3, seed=1), group=6)


@pytest.mark.parametrize("spatial", [1, 3])
def test_conv_of_other_ranks(spatial):
    x = random(1, 3, *[6, 7, 8][:spatial])
    weight = random(4, 3, *[3] * spatial, seed=1)
    check("Conv", weight, random(4, seed=2), x=x, strides=[2] * spatial, pads=[1] * 2 * spatial)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"strides": [3, 2], "pads": [0, 1, 2, 0]},
        {"group": 2, "strides": [2, 2]},
        {"dilations": [2, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"strides": [3, 3], "output_shape": [27, 33]},
        {"strides": [3, 2], "output_shape": [26, 22], "auto_pad": "SAME_UPPER"},
    ],
)
def test_conv_transpose(attrs):
    weight = random(6, 4 // attrs.get("group", 1), 3, 3, seed=1)
    ops = check("ConvTranspose", weight, random(4, seed=2), **attrs)
    assert ops == ["nn.conv2d_transpose", "add"]


_POOLS = [
    {"kernel_shape": [3, 3]},
    {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1, "pads": [1, 1, 0, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [4, 4], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"},
]


@pytest.mark.parametrize("attrs", [*_POOLS, {"kernel_shape": [3, 3], "dilations": [2, 2]}])
def test_max_pool(attrs):
    assert check("MaxPool", **attrs) == ["nn.max_pool2d"]


@pytest.mark.parametrize(
    ("attrs", "include"), list(itertools.product([*_POOLS, {"kernel_shape": [9, 11]}], [0, 1]))
)
def test_average_pool(attrs, include):
    ops = check("AveragePool", count_include_pad=include, **attrs)
    assert ops[0] == "nn.avg_pool2d"
    assert set(ops[1:]) <= {"multiply"}


@pytest.mark.parametrize("include", [0, 1])
def test_dilated_average_pool(include):
    # ONNX Runtime refuses dilations here: ONNX's own reference is the judge.
    attrs = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 2, 1, 2]}
    model = one_op("AveragePool", X, opset=19, count_include_pad=include, **attrs)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    _, _, (actual,) = run_imported(model, {"x": X})
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spatial", [1, 3])
def test_pools_of_other_ranks(spatial):
    x = random(1, 3, *[6, 7, 8][:spatial])
    attrs = {"kernel_shape": [3] * spatial, "strides": [2] * spatial, "ceil_mode": 1}
    check("MaxPool", x=x, **attrs)
    check("AveragePool", x=x, pads=[1] * 2 * spatial, **attrs)


def test_global_and_lp_pools():
    assert check("GlobalAveragePool") == ["mean"]
    check("GlobalMaxPool")
    check("GlobalLpPool", p=2)
    check("LpPool", kernel_shape=[3, 3], strides=[2, 2], p=2)
    check("LpPool", kernel_shape=[2, 2], strides=[2, 2], p=3, opset=17)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("beta", [0.75, 0.5, 0.6])
def test_lrn(size, beta):
    ops = check("LRN", size=size, alpha=0.3, beta=beta, bias=1.5)
    assert not any("pool" in op for op in ops)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Celu", {"alpha": 2.0}),
        ("Celu", {}),
        ("Elu", {"alpha": 1.5}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("HardSwish", {}),
        ("LeakyRelu", {"alpha": 0.1}),
        ("Mish", {}),
        ("Relu", {}),
        ("Selu", {}),
        ("Sigmoid", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("Tanh", {}),
        ("ThresholdedRelu", {"alpha": 0.7}),
        ("Erf", {}),
        ("Neg", {}),
        ("Abs", {}),
        ("Exp", {}),
        ("Floor", {}),
        ("Ceil", {}),
        ("Sign", {}),
        ("Shrink", {"lambd": 0.5, "bias": 0.1}),
        ("LpNormalization", {"axis": 1, "p": 2}),
        ("LpNormalization", {"axis": 2, "p": 1}),
        ("MeanVarianceNormalization", {"axes": [0, 2, 3]}),
        ("DepthToSpace", {"blocksize": 2}),
        ("Flatten", {"axis": 0}),
        ("Flatten", {"axis": 2}),
        ("Flatten", {"axis": -1}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("Transpose", {}),
        ("LogSoftmax", {"axis": 1}),
        ("Softmax", {"axis": 1}),
        ("Softmax", {}),
        ("ArgMax", {"axis": 1, "keepdims": 0}),
        ("Identity", {}),
        ("Cast", {"to": 6}),
    ],
)
def test_unary(op, attrs):
    x = random(2, 8, 6, 10) * 3
    check(op, x=x, **attrs)


def test_mean_variance_normalization_by_default():
    model = make_model(
        [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])],
        {"x": X},
        like_first_input=True,
    )
    assert_matches_onnxruntime(model, {"x": X})


def test_activations_of_large_values_stay_finite():
    x = floats(-1e4, -100, -20, 0, 20, 100, 1e4)
    for op in ("Celu", "Elu", "Mish", "Selu", "Softplus"):
        check(op, x=x)


@pytest.mark.parametrize("opset", [7, 9, 12])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_old_softmax_flattens(op, axis, opset):
    check(op, opset=opset, axis=axis, x=random(2, 3, 4, 5))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate):
    ops = check("Gelu", opset=20, approximate=approximate)
    assert ops == ["nn.gelu" if approximate == "none" else "nn.gelu_tanh"]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0.0, 6.0), ["clip"]),
        ((0.0, None), ["nn.relu"]),
        ((-0.5, None), ["maximum"]),
        ((None, 0.5), ["minimum"]),
        ((1.0, -1.0), ["maximum", "minimum"]),
        ((None, None), []),
    ],
)
def test_clip(bounds, expected):
    constants = [None if bound is None else np.float32(bound) for bound in bounds]
    arrays = [None if value is None else np.array(value) for value in constants]
    assert check("Clip", *arrays) == expected


def test_old_clip():
    assert check("Clip", opset=9, min=0.0, max=6.0) == ["clip"]


@pytest.mark.parametrize("slope", [(6, 1, 1), (1,), (11,), (6, 9, 11)])
def test_prelu(slope):
    check("PRelu", random(*slope, seed=3))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.5])
def test_pow(exponent):
    ops = check("Pow", np.array(exponent, np.float32), x=np.abs(X) + 0.1)
    assert ("power" in ops) == (exponent not in (0.5, 1.0, 2.0))


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(op, count):
    arrays = {
        f"x{i}": random(*[(2, 3, 4), (3, 4), (4,), (2, 1, 1)][i], seed=i) for i in range(count)
    }
    model = make_model([helper.make_node(op, list(arrays), ["y"])], arrays)
    ops = relax_ops(assert_matches_onnxruntime(model, arrays))
    assert "stack" not in ops
    assert len(ops) == max(count - 1, 0) + (op == "Mean" and count > 1)


@pytest.mark.parametrize(
    ("op", "operand"),
    [
        ("Add", (6, 1, 1)),
        ("Sub", (11,)),
        ("Mul", (2, 6, 1, 1)),
        ("Div", (1,)),
        ("Add", (1, 1, 9, 11)),
    ],
)
def test_broadcast_binary(op, operand):
    check(op, np.abs(random(*operand, seed=1)) + 0.5)


@pytest.mark.parametrize("opset", [7, 9, 15, 18])
def test_batch_normalization(opset):
    params = [random(6, seed=1), random(6, seed=2), random(6, seed=3), np.abs(random(6, seed=4))]
    ops = check("BatchNormalization", *params, opset=opset, epsilon=1e-3)
    assert ops == ["nn.batch_norm"]


def test_group_normalization():
    """Its shape must survive, which ONNX does not infer: the Shape node would stay otherwise."""
    nodes = [
        helper.make_node("GroupNormalization", ["x", "a", "b"], ["n"], num_groups=3),
        helper.make_node("Shape", ["n"], ["s"]),
        helper.make_node("Reshape", ["n", "s"], ["y"]),
    ]
    constants = {"a": random(6, seed=1), "b": random(6, seed=2)}
    model = make_model(nodes, {"x": X}, constants, opset=21, like_first_input=True)
    assert_matches_onnxruntime(model, {"x": X})


def test_instance_normalization():
    check("InstanceNormalization", random(6, seed=1), random(6, seed=2))


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_layer_normalization(axis):
    shape = X.shape[axis:]
    check("LayerNormalization", random(*shape, seed=1), random(*shape, seed=2), axis=axis)
    assert check("LayerNormalization", random(*shape, seed=1), axis=axis) == ["nn.layer_norm"]


@pytest.mark.parametrize(
    "op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"]
)
def test_reductions(op):
    check(op, ints(2, 3), keepdims=1)
    check(op, ints(-1), keepdims=0)
    check(op, None, keepdims=0)
    if op != "ReduceSum":
        check(op, opset=11, axes=[2, 3], keepdims=1)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 0, -1, 2, 0, 0, 2, -3]])
def test_pad(mode, pads):
    opset = 19 if mode == "wrap" else 18
    fill = np.array(0.5, np.float32) if mode == "constant" else None
    ops = check("Pad", ints(*pads), fill, opset=opset, mode=mode)
    assert ops[-1] == "nn.pad"


def test_pad_with_axes():
    check("Pad", ints(1, 2, 3, 4), None, ints(-1, 1))
    check("Pad", opset=9, pads=[0, 0, 1, 1, 0, 0, 2, 2], value=1.0)


@pytest.mark.parametrize(
    ("scales", "sizes"),
    [((2, 2), None), ((3, 2), None), ((0.5, 0.7), None), (None, (18, 22)), (None, (13, 7))],
)
@pytest.mark.parametrize(
    ("mode", "coordinates", "nearest"),
    [
        ("nearest", "asymmetric", "floor"),
        ("nearest", "half_pixel", "round_prefer_floor"),
        ("nearest", "half_pixel", "round_prefer_ceil"),
        ("nearest", "asymmetric", "ceil"),
        ("nearest", "align_corners", "floor"),
        ("linear", "half_pixel", None),
        ("linear", "align_corners", None),
        ("linear", "asymmetric", None),
        ("linear", "pytorch_half_pixel", None),
        ("cubic", "half_pixel", None),
        ("cubic", "align_corners", None),
    ],
)
def test_resize(mode, coordinates, nearest, scales, sizes):
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if nearest:
        attrs["nearest_mode"] = nearest
    scale = None if scales is None else floats(1, 1, *scales)
    size = None if sizes is None else ints(2, 6, *sizes)
    constants = [None, scale] if size is None else [None, None, size]
    check("Resize", *constants, **attrs)


def test_resize_becomes_the_native_operator_where_it_is_exact():
    twice = floats(1, 1, 2, 2)
    for attrs in (
        {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
        {"mode": "nearest"},
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ):
        assert check("Resize", None, twice, **attrs) == ["image.resize2d"]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_variants(mode):
    check("Resize", None, floats(0.4, 0.6), mode=mode, antialias=1, axes=[2, 3])
    check("Resize", None, None, ints(14, 12), mode=mode, axes=[2, 3])
    check("Resize", None, floats(1, 1, 1.7, 1.3), mode=mode)
    region = floats(0, 0, 0.1, 0.2, 1, 1, 0.9, 1.3)
    check(
        "Resize",
        region,
        None,
        ints(2, 6, 5, 8),
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )


@pytest.mark.parametrize("opset", [7, 8])
def test_old_upsample_by_attribute(opset):
    check("Upsample", opset=opset, scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_9(mode):
    check("Upsample", floats(1, 1, 2, 2), opset=9, mode=mode)


@pytest.mark.parametrize("opset", [10, 11])
def test_old_resize(opset):
    constants = [floats(1, 1, 2, 2)] if opset == 10 else [floats(), floats(1, 1, 2, 2)]
    check("Resize", *constants, opset=opset, mode="nearest")


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode):
    check("DepthToSpace", x=random(2, 8, 3, 4), blocksize=2, mode=mode)
    check("SpaceToDepth", x=random(2, 3, 6, 4), blocksize=2)


def test_split():
    check("Split", axis=3, num_outputs=3, outputs=3)  # 11 = 4 + 4 + 3
    check("Split", ints(1, 2, 3), axis=1, outputs=3)
    check("Split", opset=11, axis=1, split=[2, 4], outputs=2)
    check("Split", axis=1, num_outputs=1)


def test_slice():
    check("Slice", ints(1, -4), ints(9, 2**62), ints(2, 3), ints(2, 1))
    check("Slice", ints(-1), ints(-(2**62)), ints(1), ints(-1))
    check("Slice", opset=9, starts=[0, 2], ends=[1, -1], axes=[1, 3])
    check("Slice", opset=9, starts=[0, 1], ends=[1, 3])


def test_data_movement():
    check("Reshape", ints(0, -1, 11))
    check("Reshape", ints(2, 3, -1))
    check("Squeeze", ints(1), x=random(2, 1, 3))
    check("Squeeze", x=random(2, 1, 3, 1), opset=9, axes=[1, 3])
    check("Unsqueeze", ints(0, -1), x=random(2, 3))
    check("Unsqueeze", x=random(2, 3), opset=11, axes=[1])
    check("Expand", ints(2, 1, 9, 11), x=random(6, 1, 11))
    check("Expand", ints(1, 1), x=random(2, 3, 4))
    check("Tile", ints(1, 2, 1, 3))
    check("Gather", ints(0, 2, -1), axis=1)
    check("Concat", random(2, 3, 9, 11, seed=1), axis=1)


def test_comparison_and_choice():
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("Where", ["positive", "x", "zero"], ["y"]),
    ]
    model = make_model(nodes, {"x": X}, {"zero": np.array(0, np.float32)})
    assert_matches_onnxruntime(model, {"x": X})


@pytest.mark.parametrize(
    "attrs",
    [{}, {"transB": 1}, {"transA": 1}, {"alpha": 0.5, "beta": 2.0}, {"transB": 1, "beta": 0.5}],
)
@pytest.mark.parametrize("bias", [(7,), (1, 7), (3, 7), (1,), None])
def test_gemm(attrs, bias):
    x = random(*((5, 3) if attrs.get("transA") else (3, 5)))
    weight = random(*((7, 5) if attrs.get("transB") else (5, 7)), seed=1)
    constants = [weight] if bias is None else [weight, random(*bias, seed=2)]
    check("Gemm", *constants, x=x, opset=11 if bias else 13, **attrs)


def test_matmul_and_einsum():
    check("MatMul", random(5, 7, seed=1), x=random(2, 3, 5))
    check("MatMul", random(2, 5, 7, seed=1), x=random(2, 3, 5))
    inputs = {"x": random(2, 3, 4), "z": random(2, 4, 5, seed=1)}
    node = helper.make_node("Einsum", ["x", "z"], ["y"], equation="bij,bjk->bik")
    assert_matches_onnxruntime(make_model([node], inputs), inputs)


def test_top_k():
    model = one_op("TopK", X, [ints(3)], outputs=2, axis=1)
    assert_matches_onnxruntime(model, {"x": X})


@pytest.mark.parametrize("opset", [7, 9, 10, 12, 13])
def test_dropout_disappears(opset):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Dropout", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    model = make_model(nodes, {"x": X}, opset=opset)
    assert relax_ops(assert_matches_onnxruntime(model, {"x": X})) == ["nn.relu", "negative"]


def test_swish_and_space_to_depth_modes_of_new_opsets():
    x = random(1, 2, 4, 4)
    expected = x / (1 + np.exp(-x))
    _, module, (actual,) = run_imported(one_op("Swish", x, opset=24), {"x": x})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert relax_ops(module) == ["nn.silu"]
