"""ONNX's interface to backends: its models, constant inputs and separate plans."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import neocpu.onnx_backend as backend
from neocpu.foundation.errors import ModelError, UnsupportedError, UsageError
from neocpu.frontend.shapes.structural_inputs import structural_inputs

CHEAP = {"threads": 1, "verify": False, "only_databases": True}
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')


def test_a_node_runs():
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    (y,) = backend.run_node(node, [X, np.array([0, 2])], opset_version=18, **CHEAP)
    np.testing.assert_array_equal(y, X.sum((0, 2)))


def test_a_plan_is_made_for_each_shape_and_deciding_value():
    model = model_of("g (float[a, b] x, int64[r] shape) => (float[c, d] y) {y = Reshape(x, shape)}")
    prepared = backend.prepare(model, "CPU", **CHEAP)
    for shape in ([4, 3], [2, 6], [4, 3]):
        (y,) = prepared.run((X[0], np.array(shape)))
        np.testing.assert_array_equal(y, X[0].reshape(shape))
    assert len(prepared._plans) == 2
    assert prepared.run([X[:, 0], np.array([8, 1])])[0].shape == (8, 1)
    assert len(prepared._plans) == 3


def test_inputs_that_decide_no_shape_stay_inputs():
    model = model_of("g (float[n] x, float[n] z) => (float[n] y) {y = Add(x, z)}")
    prepared = backend.prepare(model, **CHEAP)
    for factor in (1, 2):
        (y,) = prepared.run([X[0, 0], factor * X[1, 1]])
        np.testing.assert_array_equal(y, X[0, 0] + factor * X[1, 1])
    assert len(prepared._plans) == 1


def test_empty_tensors_need_no_kernel():
    model = model_of("g (float[n, 3] x) => (float[n, 3] y, float[3] z) "
                     "{y = Relu(x)  z = ReduceSum<keepdims = 0>(x, axes)}")  # fmt: skip
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    y, z = backend.run_model(model, [np.zeros((0, 3), np.float32)], **CHEAP)
    assert y.shape == (0, 3)
    np.testing.assert_array_equal(z, np.zeros(3))


def test_mistakes_are_reported():
    model = model_of("g (float[n] x) => (float[n] y) {y = Relu(x)}")
    with pytest.raises(UsageError, match="neocpu runs on 'CPU', not on 'CUDA'"):
        backend.prepare(model, "CUDA")
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:0")
    with pytest.raises(ModelError):
        backend.prepare(b"no model")
    prepared = backend.prepare(model, **CHEAP)
    with pytest.raises(UsageError, match=r"the model takes 1 inputs \(x\), got 2"):
        prepared.run([X, X])
    with pytest.raises(UsageError, match="input 'x' must be an array, got list"):
        prepared.run([[1.0]])
    with pytest.raises(UsageError, match="run takes no option 'rtol'"):
        prepared.run([X], rtol=1)
    strings = model_of("g (string[n] x) => (string[n] y) {y = Identity(x)}")
    with pytest.raises(UnsupportedError, match="strings"):
        backend.run_model(strings, [np.array(["a"], object)], **CHEAP)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("g (float[2] x, int64[1] s) => (float[n] y) {y = Reshape(x, s)}", {"s"}),
        (
            "g (float[2] x, int64[1] s) => (float[n] y) {t = Neg(s) u = Neg(t) y = Tile(x, u)}",
            {"s"},
        ),
        ("g (float[2] x, int64[1] s) => (float[n] y) {t = Shape(x) y = Reshape(s, t)}", set()),
        (
            "g (bool b, float[2] x, int64[1] s) => (float[n] y) {y = If(b) <"
            "then_branch = t () => (float[n] p) {p = Tile(x, s)}, "
            "else_branch = e () => (float[n] q) {q = Neg(x)}>}",
            {"b", "s"},
        ),
    ],
)
def test_inputs_that_decide_shapes(text, found):
    assert structural_inputs(model_of(text)) == found


def test_sequences_and_narrow_numbers_are_refused():
    sequence = model_of(
        "g (seq(float[4]) xs) => (float[n] y) {y = ConcatFromSequence<axis = 0>(xs)}"
    )
    with pytest.raises(UsageError, match="input 'xs' must be an array, got list"):
        backend.run_model(sequence, [[X[0, 0], X[0, 1]]], **CHEAP)
    listed = model_of("g (float[4] x) => (seq(float[4]) ys) {ys = SequenceConstruct(x, x)}")
    with pytest.raises(UnsupportedError):
        backend.run_model(listed, [X[0, 0]], **CHEAP)
    narrow = model_of("g (float[2] x) => (float8e4m3fn[2] y) {y = Cast<to = 17>(x)}")
    with pytest.raises((UnsupportedError, ModelError)):
        backend.run_model(narrow, [np.zeros(2, np.float32)], **CHEAP)
