"""Elementwise, normalising and data-moving operators against ONNX Runtime, one node at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

import neocpu
from tests.neocpu.frontend.differential import (
    DATA,
    assert_matches_onnxruntime,
    check,
    floats,
    ints,
    make_model,
    node_of,
    one_op,
    random,
    relax_ops,
    run_imported,
    run_onnxruntime,
)

X = DATA


PLAIN = """
Abs Ceil Celu Cosh Erf Exp Floor HardSwish Identity LogSoftmax Mish Neg Relu Selu Sigmoid Sign Sinh
Softmax Softplus Softsign Tanh Transpose
"""
UNARY = [
    *((op, {}) for op in PLAIN.split()),
    ("ArgMax", {"axis": 1, "keepdims": 0}),
    ("Cast", {"to": 6}),
    ("Celu", {"alpha": 2.0}),
    ("DepthToSpace", {"blocksize": 2}),
    ("Elu", {"alpha": 1.5}),
    *(("Flatten", {"axis": axis}) for axis in (0, 2, -1)),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("LeakyRelu", {"alpha": 0.1}),
    ("LogSoftmax", {"axis": 1}),
    ("LpNormalization", {"axis": 1, "p": 2}),
    ("LpNormalization", {"axis": 2, "p": 1}),
    ("MeanVarianceNormalization", {"axes": [0, 2, 3]}),
    ("Shrink", {"lambd": 0.5, "bias": 0.1}),
    ("Softmax", {"axis": 1}),
    ("ThresholdedRelu", {"alpha": 0.7}),
    ("Transpose", {"perm": [0, 2, 3, 1]}),
]


@pytest.mark.parametrize(("op", "attrs"), UNARY)
def test_unary(op, attrs):
    check(op, x=random(2, 8, 6, 10) * 3, **attrs)


def test_mean_variance_normalization_by_default():
    nodes = [node_of("MeanVarianceNormalization", "x")]
    assert_matches_onnxruntime(make_model(nodes, {"x": X}, like_first_input=True), {"x": X})


def test_activations_of_large_values_stay_finite():
    x = floats(-1e4, -100, -20, 0, 20, 100, 1e4)
    for op in ("Celu", "Elu", "Mish", "Selu", "Softplus"):
        check(op, x=x)


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -math.inf, 0.0])
@pytest.mark.parametrize("op", ["Elu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid"])
def test_nan_attributes_affect_only_their_own_results(op, alpha):
    x = floats(-3, -1e-3, 1e-3, 0.5, 7)
    model = one_op(op, x, alpha=alpha)
    _, _, (ours,) = run_imported(model, {"x": x})
    (theirs,) = run_onnxruntime(model, {"x": x})
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_hyperbolic_functions_near_zero_and_where_they_are_just_finite():
    x = floats(-89.3, -1e-3, 0, 1e-4, 0.5, 89.4)
    for op in ("Sinh", "Cosh"):
        model = one_op(op, x)
        _, _, (y,) = run_imported(model, {"x": x})
        np.testing.assert_allclose(y, getattr(np, op.lower())(x.astype(np.float64)), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32"])
def test_shrink_and_sign_of_every_type(dtype):
    x = np.array([0, 1, 2, 5, 100], dtype) - np.array(0 if dtype == "uint8" else 2, dtype)
    check("Shrink", x=x, lambd=1.5, bias=0.25)
    check("Sign", x=x)


def test_equality_of_booleans():
    """LLVM does not compare vectors of booleans as numbers."""
    a, b = random(16, 6, 5, 24) > 0, random(16, 1, 5, 24, seed=1) > 0
    model = make_model([node_of("Equal", "a b")], {"a": a, "b": b})
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        np.testing.assert_array_equal(module.run({"a": a, "b": b})["y"], a == b)


@pytest.mark.parametrize("opset", [7, 9, 12])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
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
    assert check("Clip", opset=9, min=0.0, max=6.0) == ["clip"]


@pytest.mark.parametrize("slope", [(6, 1, 1), (1,), (11,), (6, 9, 11)])
def test_prelu(slope):
    check("PRelu", random(*slope, seed=3))
    for x in (-2.0, 0.0, 3.0):
        check("PRelu", np.array(0.25, np.float32), x=np.array(x, np.float32))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.5])
def test_pow(exponent):
    ops = check("Pow", np.array(exponent, np.float32), x=np.abs(X) + 0.1)
    assert ("power" in ops) == (exponent == -1.5)


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


BROADCAST = [("Add", (6, 1, 1)), ("Sub", (11,)), ("Mul", (2, 6, 1, 1)), ("Div", (1,))]


@pytest.mark.parametrize(("op", "operand"), [*BROADCAST, ("Add", (1, 1, 9, 11))])
def test_broadcast_binary(op, operand):
    check(op, np.abs(random(*operand, seed=1)) + 0.5)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_shifts_by_all_bits_leave_only_the_sign(dtype):
    x = np.array([5, -5, 127, -128, -1, 4], "int8").astype(dtype)
    amounts = np.array([1, 1, 31, 40, 9, 0], dtype)
    expected = x >> np.minimum(amounts, np.iinfo(dtype).bits - 1)
    if dtype == "uint8":
        expected = np.where(amounts < 8, expected, 0).astype(dtype)
    nodes = [node_of("BitShift", "x amounts", direction="RIGHT")]
    feeds = {"x": x, "amounts": amounts}
    model = make_model(nodes, feeds, opset=28, like_first_input=True)
    np.testing.assert_array_equal(run_imported(model, feeds)[2][0], expected)


def test_mod_of_floats_has_the_sign_of_its_divisor():
    x = np.array([3, -3, 3, -3, 0, -3, 3, -1, 1, np.inf, 5.5, 1e-30, -1e-30], np.float32)
    y = np.array([2, 2, -2, -2, -2, *[np.inf] * 2, *[-np.inf] * 2, 2, -1.5, -1e-30, 2], np.float32)
    check("Mod", y, x=x, fmod=0, opset=28)


@pytest.mark.parametrize("opset", [7, 9, 15, 18])
def test_batch_normalization(opset):
    params = [random(6, seed=1), random(6, seed=2), random(6, seed=3), np.abs(random(6, seed=4))]
    ops = check("BatchNormalization", *params, opset=opset, epsilon=1e-3)
    assert ops == ["nn.batch_norm"]
    check("InstanceNormalization", *params[:2])


def test_group_normalization():
    """ONNX does not infer its shape; without it, the Shape node would stay."""
    nodes = [
        node_of("GroupNormalization", "x a b", "n", num_groups=3),
        node_of("Shape", "n", "s"),
        node_of("Reshape", "n s"),
    ]
    constants = {"a": random(6, seed=1), "b": random(6, seed=2)}
    model = make_model(nodes, {"x": X}, constants, opset=21, like_first_input=True)
    assert_matches_onnxruntime(model, {"x": X})


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_layer_normalization(axis):
    shape = X.shape[axis:]
    check("LayerNormalization", random(*shape, seed=1), random(*shape, seed=2), axis=axis)
    assert check("LayerNormalization", random(*shape, seed=1), axis=axis) == ["nn.layer_norm"]


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
    nodes = [node_of("Greater", "x zero", "positive"), node_of("Where", "positive x zero")]
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
    node = node_of("Einsum", "x z", equation="bij,bjk->bik")
    assert_matches_onnxruntime(make_model([node], inputs), inputs)


@pytest.mark.parametrize("opset", [7, 9, 10, 12, 13])
def test_dropout_disappears(opset):
    nodes = [node_of("Relu", "x", "a"), node_of("Dropout", "a", "b"), node_of("Neg", "b")]
    model = make_model(nodes, {"x": X}, opset=opset)
    assert relax_ops(assert_matches_onnxruntime(model, {"x": X})) == ["nn.relu", "negative"]


def test_swish_and_space_to_depth_modes_of_new_opsets():
    x = random(1, 2, 4, 4)
    expected = x / (1 + np.exp(-x))
    _, module, (actual,) = run_imported(one_op("Swish", x, opset=24), {"x": x})
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert relax_ops(module) == ["nn.silu"]
