"""ONNX's interface to backends: what is taken as it is, as a constant, or apart."""

from __future__ import annotations

import ml_dtypes
import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

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


def test_what_decides_nothing_stays_an_input():
    model = model_of("g (float[n] x, float[n] z) => (float[n] y) {y = Add(x, z)}")
    prepared = backend.prepare(model, **CHEAP)
    for factor in (1, 2):
        (y,) = prepared.run([X[0, 0], factor * X[1, 1]])
        np.testing.assert_array_equal(y, X[0, 0] + factor * X[1, 1])
    assert len(prepared._plans) == 1


def test_what_is_empty_needs_no_kernel():
    model = model_of("g (float[n, 3] x) => (float[n, 3] y, float[3] z) "
                     "{y = Relu(x)  z = ReduceSum<keepdims = 0>(x, axes)}")  # fmt: skip
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    y, z = backend.run_model(model, [np.zeros((0, 3), np.float32)], **CHEAP)
    assert y.shape == (0, 3)
    np.testing.assert_array_equal(z, np.zeros(3))


def test_sequences_and_optional_values():
    text = "g (seq(float[4]) xs) => (seq(float[4]) ys, float[n] z) "
    body = "{ys = SequenceInsert(xs, a)  z = ConcatFromSequence<axis = 0>(ys)}"
    model = model_of(f"{text} <float[4] a = {{1, 2, 3, 4}}> {body}")
    ys, z = backend.run_model(model, [[X[0, 0], X[0, 1]]], **CHEAP)
    assert [each.tolist() for each in ys] == [X[0, 0].tolist(), X[0, 1].tolist(), [1, 2, 3, 4]]
    np.testing.assert_array_equal(z, np.concatenate(ys))
    with pytest.raises(UsageError, match="input 'xs' must be a list, got ndarray"):
        backend.run_model(model, [X[0]], **CHEAP)


def test_what_is_wrong_is_said():
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


NARROW = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}


@needs.one_in(3)
@pytest.mark.parametrize("kind", NARROW)
def test_narrow_floats_are_rounded_and_read_as_their_format_says(kind):
    dtype = np.dtype(NARROW[kind])
    name = TensorProto.DataType.Name(kind).lower()
    cast = f"y = Cast<to = {kind}, saturate = 0>(x)" if "8" in name else f"y = Cast<to = {kind}>(x)"
    model = model_of(f"g (float[n] x) => ({name}[n] y, float[n] z) {{{cast} z = Cast<to = 1>(y)}}")
    model.opset_import[0].version, model.ir_version = 23, 11
    codes = np.arange(16 if "4e2" in name else 256, dtype=np.uint8).view(dtype)
    values = codes.astype(np.float32)
    finite = np.unique(values[np.isfinite(values)])
    halves = (finite[1:] + finite[:-1]) / 2
    noise = np.random.default_rng(0).standard_normal(99).astype(np.float32) * finite.max()
    around = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    x = np.concatenate([values, halves, *around, noise, np.float32([-0.0])])
    if "4e2" in name:
        x = x[np.abs(x) <= 6]
    y, z = backend.run_model(model, [x], **CHEAP)
    assert y.dtype == dtype
    expected = x.astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(z, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(z[numbers]), np.signbit(expected[numbers]))


def test_what_computes_in_narrow_numbers_is_refused():
    model = model_of("g (float8e4m3fn[2] x) => (float8e4m3fn[2] y) {y = Neg(x)}")
    with pytest.raises((UnsupportedError, ModelError)):
        backend.run_model(model, [np.zeros(2, ml_dtypes.float8_e4m3fn)], **CHEAP)
