"""The numpy reference against ONNX Runtime, at awkward sizes and in every attribute form."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from neocpu.verification.reference.comparison import compare
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import make_model, one_op, run_onnxruntime

LIGHT_MODELS = Path(onnx.__file__).parent / "backend/test/data/light"
RNG = np.random.default_rng(0)


def one_node(op, x, *constants, **attrs):
    """Return a model of one node; its first input is the graph's, the others are constants."""
    given = {key: value for key, value in attrs.items() if value is not None}
    return one_op(op, x, constants, **given)


def check(model, x, rtol=1e-5, atol=1e-5):
    """The reference computes what ONNX Runtime computes."""
    names = [output.name for output in model.graph.output]
    actual = run_reference(model, {"x": x})
    assert list(actual) == names
    expected = dict(zip(names, run_onnxruntime(model, {"x": x}), strict=True))
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        np.testing.assert_allclose(actual[name], value, rtol=rtol, atol=atol)


def random(*shape):
    return RNG.standard_normal(shape).astype("float32")


CONVOLUTIONS = {
    "plain": ((2, 5, 9, 11), (7, 5, 3, 3), {}),
    "pointwise": ((2, 5, 9, 11), (7, 5, 1, 1), {}),
    "strided pointwise": ((2, 5, 9, 11), (7, 5, 1, 1), {"strides": [2, 3]}),
    "asymmetric pads": ((1, 3, 7, 8), (5, 3, 3, 2), {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
    "dilated": ((1, 3, 13, 12), (5, 3, 3, 2), {"dilations": [2, 3], "pads": [1, 2, 3, 0]}),
    "grouped": ((2, 6, 7, 7), (9, 2, 3, 3), {"group": 3}),
    "depthwise": ((2, 6, 7, 8), (6, 1, 3, 3), {"group": 6, "pads": [1] * 4, "strides": [2, 2]}),
    "depthwise multiplier": ((2, 3, 7, 8), (6, 1, 5, 3), {"group": 3, "dilations": [1, 2]}),
    "same upper": ((1, 3, 8, 7), (4, 3, 3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 3, 8, 7), (4, 3, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "valid": ((1, 3, 8, 7), (4, 3, 3, 2), {"auto_pad": "VALID"}),
    "one dimension": ((2, 3, 17), (4, 3, 5), {"pads": [1, 2], "strides": [3]}),
    "three dimensions": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"strides": [1, 2, 1]}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(name, bias):
    x_shape, w_shape, attrs = CONVOLUTIONS[name]
    x, constants = random(*x_shape), [random(*w_shape)]
    if bias:
        constants.append(random(w_shape[0]))
    check(one_node("Conv", x, *constants, **attrs), x, rtol=1e-4, atol=1e-4)


def test_convolution_in_slices_of_rows(monkeypatch):
    monkeypatch.setattr("neocpu.frontend.numpy_operators.fast_operators.COLUMN_BYTES", 4000)
    x = random(1, 3, 17, 9)
    check(one_node("Conv", x, random(4, 3, 3, 3), strides=[2, 1]), x, atol=1e-4)


TRANSPOSED = {
    "plain": ((2, 4, 5, 6), (4, 3, 3, 2), {}),
    "strided": ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    "output padding": (
        (1, 4, 5, 6),
        (4, 3, 3, 3),
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "grouped": ((2, 4, 5, 6), (4, 3, 2, 2), {"group": 2, "strides": [2, 2]}),
    "depthwise": ((2, 4, 5, 6), (4, 1, 2, 2), {"group": 4}),
    "dilated": ((1, 4, 5, 6), (4, 3, 3, 2), {"dilations": [2, 2]}),
    "output shape": ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2], "output_shape": [10, 11]}),
    "same upper": ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "one dimension": ((1, 4, 9), (4, 3, 4), {"strides": [2], "pads": [1, 1]}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name):
    x_shape, w_shape, attrs = TRANSPOSED[name]
    x, w = random(*x_shape), random(*w_shape)
    bias = random(w_shape[1] * attrs.get("group", 1))
    check(one_node("ConvTranspose", x, w, bias, **attrs), x, rtol=1e-4, atol=1e-4)


POOLS = {
    "plain": {"kernel_shape": [3, 2]},
    "strided": {"kernel_shape": [3, 3], "strides": [2, 3]},
    "padded": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 2]},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "padded ceil": {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1] * 4, "ceil_mode": 1},
    "ceil drops a window": {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1],
                            "ceil_mode": 1},
    "same upper": {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "same lower": {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    "valid": {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "VALID"},
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("shape", [(2, 3, 10, 7), (1, 5, 8, 9)])
def test_max_pool(name, shape):
    x = random(*shape)
    check(one_node("MaxPool", x, **POOLS[name]), x)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", POOLS)
def test_indices_of_max_pool(name, order):
    """The first of equal values in a window gives the index."""
    x = RNG.integers(-2, 2, (2, 3, 10, 7)).astype("float32")
    check(one_node("MaxPool", x, outputs=2, storage_order=order, **POOLS[name]), x)


def test_indices_of_windows_with_nan():
    x = random(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    _, places = run_reference(
        one_node("MaxPool", x, outputs=2, kernel_shape=[2, 2]), {"x": x}
    ).values()
    assert places.min() >= 0


def test_dilated_max_pool():
    x = random(1, 3, 11, 12)
    check(one_node("MaxPool", x, kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 0, 1, 1]), x)


def test_max_pool_of_bytes_and_of_one_dimension():
    x = RNG.integers(-128, 127, (1, 2, 7, 7)).astype("int8")
    check(one_node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), x)
    x = random(2, 3, 11)
    check(one_node("MaxPool", x, kernel_shape=[3], strides=[2]), x)


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 10, 7), (1, 5, 8, 9)])
def test_average_pool(name, count_include_pad, shape):
    x = random(*shape)
    attrs = {**POOLS[name], "count_include_pad": count_include_pad}
    check(one_node("AveragePool", x, opset=19, **attrs), x)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p):
    x = random(1, 3, 9, 8)
    attrs = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}
    check(one_node("LpPool", x, p=p, **attrs), x)


@pytest.mark.parametrize("opset", [7, 9, 15])
@pytest.mark.parametrize("shape", [(2, 5, 3, 7), (2, 5), (2, 5, 3)])
def test_batch_normalization(opset, shape):
    x = random(*shape)
    statistics = [random(5), random(5), random(5), np.abs(random(5)) + 0.1]
    model = one_node("BatchNormalization", x, *statistics, opset=opset, epsilon=1e-3)
    check(model, x)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size):
    x = random(2, 7, 3, 4)
    check(one_node("LRN", x, size=size, alpha=0.3, beta=0.6, bias=1.5), x)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    ("opset", "axis"), [(7, None), (11, 1), (11, 3), (11, -2), (13, None), (13, 1)]
)
def test_softmax(op, opset, axis):
    x = random(2, 3, 4, 5)
    check(one_node(op, x, opset=opset, axis=axis), x)


def test_erf():
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, -0.0, np.inf, -np.inf]]).astype("float32")
    check(one_node("Erf", x), x, rtol=1e-6, atol=1e-6)


RESIZES = [
    {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "nearest"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "linear"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "cubic"},
    {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
]


@pytest.mark.parametrize("attrs", RESIZES, ids=lambda attrs: "-".join(map(str, attrs.values())))
@pytest.mark.parametrize("size", [(10, 14), (3, 4), (8, 5), (1, 1)])
def test_resize_to_a_size(attrs, size):
    x = random(2, 3, 5, 7)
    sizes = np.array([2, 3, *size], "int64")
    check(one_node("Resize", x, None, None, sizes, opset=18, **attrs), x, atol=1e-4)


@pytest.mark.parametrize("attrs", RESIZES, ids=lambda attrs: "-".join(map(str, attrs.values())))
@pytest.mark.parametrize("scale", [2.0, 0.6])
def test_resize_by_a_scale(attrs, scale):
    x = random(1, 3, 5, 7)
    scales = np.array([1, 1, scale, scale], "float32")
    empty = np.array([], "float32")
    check(one_node("Resize", x, empty, scales, opset=13, **attrs), x, atol=1e-4)


def test_resize_of_some_axes_and_with_rare_attributes():
    x = random(1, 2, 4, 6)
    scales = np.array([2, 1.5], "float32")
    check(one_node("Resize", x, None, scales, opset=18, axes=[2, 3], mode="linear"), x)
    sizes = np.array([1, 2, 2, 3], "int64")
    check(one_node("Resize", x, None, None, sizes, opset=18, mode="linear", antialias=1), x)
    # It is defined for two of the modes, and onnx's own reference refuses it for the third.
    nearest = {"opset": 18, "mode": "nearest"}
    plain = one_node("Resize", x, None, None, sizes, **nearest)
    smoothed = one_node("Resize", x, None, None, sizes, antialias=1, **nearest)
    found, wanted = (run_reference(model, {"x": x}) for model in (smoothed, plain))
    np.testing.assert_equal(found, wanted)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_and_upsample_of_old_opsets(mode):
    x = random(1, 3, 4, 5)
    scales = np.array([1, 1, 2, 3], "float32")
    check(one_node("Upsample", x, scales, opset=9, mode=mode), x)
    check(one_node("Upsample", x, opset=7, mode=mode, scales=scales.tolist()), x)
    check(one_node("Resize", x, scales, opset=10, mode=mode), x)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_light_models_match_their_recorded_outputs(name):
    model = onnx.load(LIGHT_MODELS / f"light_{name}.onnx")
    recorded = numpy_helper.to_array(onnx.load_tensor(LIGHT_MODELS / f"light_{name}_output_0.pb"))
    weights = {initializer.name for initializer in model.graph.initializer}
    (entry,) = (entry for entry in model.graph.input if entry.name not in weights)
    shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
    # The recorded outputs are those of a ramp from 0 to 1.
    x = (np.arange(np.prod(shape)) / np.prod(shape)).reshape(shape).astype("float32")
    # Squeezenet's logits are all the same number of ten digits: in float32 a softmax of them shows
    # how BLAS shares out the rows, and nothing else.
    outputs = run_reference(model, {entry.name: x}, double=True)
    expected = dict(zip(outputs, [recorded], strict=True))
    assert compare(outputs, expected).ok


def test_imports_neither_tvm_nor_onnxruntime():
    code = (
        "import sys, neocpu.verification.reference; "
        "print({'tvm', 'onnxruntime'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "set()"


def test_several_outputs_keep_the_graph_s_order():
    x = random(2, 6)
    node = helper.make_node("Split", ["x"], ["z", "a"], axis=1, num_outputs=2)
    model = make_model([node], {"x": x}, outputs=["z", "a"])
    outputs = run_reference(model, {"x": x})
    assert list(outputs) == ["z", "a"]
    np.testing.assert_array_equal(outputs["a"], x[:, 3:])


class TestCompare:
    """Tolerances, positions of NaN, and which output is named."""

    def test_errors_and_worst_output(self):
        expected = {"a": np.array([1.0, -4.0]), "b": np.array([100.0])}
        actual = {"b": np.array([101.0]), "a": np.array([1.0, -3.0])}
        result = compare(actual, expected)
        assert (result.max_abs_error, result.max_rel_error) == (1.0, 0.25)
        assert (result.worst_output, result.ok) == ("a", False)

    @pytest.mark.parametrize(("error", "ok"), [(1.9e-3, True), (2.1e-3, False)])
    def test_an_element_may_err_relative_to_its_value_and_to_the_scale(self, error, ok):
        assert compare({"y": np.array([1 + error])}, {"y": np.array([1.0])}).ok is ok

    def test_integers_must_be_equal(self):
        expected = np.array([10**6])
        assert compare({"y": expected}, {"y": expected}).ok
        assert not compare({"y": expected + 1}, {"y": expected}).ok

    @pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
    def test_special_values_must_be_in_the_same_positions(self, special):
        expected = np.array([1.0, special])
        assert compare({"y": expected.copy()}, {"y": expected}).ok
        for actual in ([1.0, 2.0], [special, special], [1.0, 0.0]):
            result = compare({"y": np.array(actual)}, {"y": expected})
            assert (result.ok, result.max_abs_error) == (False, np.inf)

    def test_shapes_must_match(self):
        assert not compare({"y": np.ones((2, 1))}, {"y": np.ones(2)}).ok

    def test_zero_expected(self):
        assert compare({"y": np.zeros(2)}, {"y": np.zeros(2)}).max_rel_error == 0
        assert compare({"y": np.full(2, 1e-9)}, {"y": np.zeros(2)}).max_rel_error == np.inf

    def test_empty(self):
        assert compare({"y": np.zeros((0, 3))}, {"y": np.zeros((0, 3))}).ok
        assert compare({}, {}).ok
