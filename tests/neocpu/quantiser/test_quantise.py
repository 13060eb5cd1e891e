"""Quantised models are standard ONNX, and close to the original in every engine."""

from __future__ import annotations

from functools import cache

import needs
import numpy as np
import onnx
import onnxruntime
import pytest
from differential import make_model
from onnx import helper, numpy_helper

import neocpu
from neocpu import QuantiseOptions
from neocpu.foundation.errors import UsageError
from neocpu.frontend.load import load_model
from neocpu.quantiser.equalisation import equalise
from neocpu.quantiser.float_graph import float_graph
from neocpu.quantiser.ranges import METHODS
from tests.neocpu.quantised_models import image, network, run_onnxruntime
from tests.neocpu.two_stage import two_stages

DATA = [image(seed) for seed in range(6)]


@cache
def of_network(**options):
    return quantise(network(), **options)


def quantise(model=None, **options):
    """Quantise a model; results of the usual model are shared among tests."""
    if model is None:
        return of_network(**options)
    return neocpu.quantize(model, DATA, QuantiseOptions(**options), threads=2)


def decibels(wanted, found):
    noise = float(np.square(wanted - found).sum())
    return 10 * np.log10(float(np.square(wanted).sum()) / noise) if noise else np.inf


def ops(proto):
    return [node.op_type for node in proto.graph.node]


def test_the_model_is_near_its_own_in_every_engine(tmp_path):
    made = quantise()
    onnx.checker.check_model(made.proto, full_check=True)
    path = tmp_path / "quantised.onnx"
    made.save(path)
    optimised = onnxruntime.InferenceSession(str(path))
    with neocpu.compile(path, precision="int8", small=True) as compiled:
        module = compiled.module()
        for seed in range(20, 24):
            x = image(seed)
            wanted = run_onnxruntime(network(), x)
            for found in (
                run_onnxruntime(made.proto, x),
                optimised.run(None, {"x": x})[0],
                module(x),
            ):
                assert decibels(wanted, found) > 20
    convolutions = [op for op in compiled.plan.ops if op.kind == "conv2d"]
    assert all(op.precision == "int8" for op in convolutions)


def test_openvino_reads_a_quantised_model(tmp_path):
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    made = quantise()
    made.save(tmp_path / "quantised.onnx")
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(tmp_path / "quantised.onnx", "CPU", exact)
    x = image(20)
    assert decibels(run_onnxruntime(network(), x), compiled({"x": x})[0]) > 20


def test_the_reported_error_is_the_measured_one():
    made = quantise(correction="none")
    found = [run_onnxruntime(made.proto, x) for x in DATA]
    wanted = [run_onnxruntime(network(), x) for x in DATA]
    measured = decibels(np.concatenate(wanted), np.concatenate(found))
    assert made.report.outputs["y"] == pytest.approx(measured, abs=0.5)
    assert made.report.layers[0].name == "conv_stem"
    assert {tensor.method for tensor in made.report.tensors} == {"percentile"}
    assert made.report.to_json()["samples"] == len(DATA)


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@needs.one_in(2)
def test_every_method_makes_a_model(method):
    made = quantise(method=method, symmetric=method == "js")
    assert made.report.outputs["y"] > 15
    chosen = {tensor.method for tensor in made.report.tensors}
    assert chosen <= set(METHODS) if method == "auto" else chosen == {method}


def test_every_tensor_between_layers_is_on_a_grid():
    made = quantise()
    readers = {
        name for node in made.proto.graph.node if node.op_type == "Conv" for name in node.input
    }
    real = {o for n in made.proto.graph.node if n.op_type == "DequantizeLinear" for o in n.output}
    assert readers <= real
    assert made.proto.graph.node[-1].op_type == "Gemm", "outputs stay as exact as they are"
    assert "BatchNormalization" not in ops(made.proto)


def test_a_pooling_and_a_concatenation_pass_integers_on():
    made = quantise()
    by_result = {node.output[0]: node for node in made.proto.graph.node}
    for op in ("MaxPool", "Concat"):
        (node,) = (n for n in made.proto.graph.node if n.op_type == op)
        scales = {by_result[name].input[1] for name in node.input}
        arrays = {each.name: numpy_helper.to_array(each) for each in made.proto.graph.initializer}
        (after,) = (
            n
            for n in made.proto.graph.node
            if n.op_type == "QuantizeLinear" and n.input[0] == node.output[0]
        )
        found = {float(arrays[name]) for name in scales}
        assert float(arrays[after.input[1]]) in found


def test_corrections_of_biases_help():
    weights = {c: quantise(correction=c, int16_sums=8).report.outputs["y"]
               for c in ("none", "weights", "mean-variance", "activations")}  # fmt: skip
    assert weights["weights"] > weights["none"]
    assert weights["activations"] >= weights["weights"]
    assert weights["mean-variance"] > weights["none"] - 1


def test_small_weights_cost_little_and_none_is_too_large():
    from neocpu.schedules.convolutions.dot_products.int16_sums import SUM_BOUND, largest_sums

    for products in (2, 4, 8):
        made = quantise(int16_sums=products)
        assert made.report.outputs["y"] > 20
        for each in made.proto.graph.initializer:
            values = numpy_helper.to_array(each)
            if values.dtype == np.int8 and values.ndim == 4:
                assert largest_sums(values, products).max() <= SUM_BOUND


def test_layers_and_tensors_may_be_left_out_or_wide():
    plain = quantise()
    left = quantise(exclude=("conv_left", "Gemm"))
    assert len(left.report.layers) == len(plain.report.layers) - 2
    wide = quantise(wide=("x", "block"))
    assert {t.name for t in wide.report.tensors if t.grid.bits == 16} == {"x", "block"}
    everything = tuple(tensor.name for tensor in plain.report.tensors)
    finest = quantise(wide=everything, int16_sums=0).report.outputs["y"]
    assert finest > quantise(int16_sums=0).report.outputs["y"]
    with neocpu.compile(wide.proto) as compiled:
        x = image(9)
        wanted = run_onnxruntime(wide.proto, x)
        np.testing.assert_allclose(compiled.module()(x), wanted, atol=0.1 * np.abs(wanted).max())


def test_equalised_layers_compute_the_same():
    model = network()
    for each in model.graph.initializer:  # channels of very different sizes
        if each.name == "w_left":
            uneven = numpy_helper.to_array(each) * np.geomspace(0.01, 10, 37).reshape(-1, 1, 1, 1)
            each.CopyFrom(numpy_helper.from_array(uneven.astype(np.float32), each.name))
    graph = float_graph(load_model(model))
    equal = equalise(graph)
    x = image(3)
    np.testing.assert_allclose(
        run_onnxruntime(equal.proto, x), run_onnxruntime(model, x), rtol=1e-3, atol=1e-4
    )
    gained = [
        quantise(model, per_channel=False, equalise=e).report.outputs["y"] for e in (True, False)
    ]
    assert gained[0] > gained[1] + 1


def test_models_that_cannot_be_quantised_are_refused():
    made = quantise()
    with pytest.raises(UsageError, match="quantised already"):
        quantise(made.proto)
    for misspelt, message in (
        ({"exclude": ("conv_steam",)}, "no node or operator 'conv_steam' to exclude; did you mean"),
        ({"wide": ("blok",)}, "no quantised tensor is called 'blok'; did you mean 'block'"),
    ):
        with pytest.raises(UsageError, match=message):
            quantise(**misspelt)
    with pytest.raises(UsageError, match="no convolution or dense layer"):
        quantise(small([node("Relu", "x", "y")], {}, DATA[0].shape))
    for wrong, message in (
        ({"method": "mze"}, "unknown method 'mze'"),
        ({"correction": "bias"}, "unknown correction 'bias'"),
        ({"int16_sums": 3}, "int16_sums must be one of 0, 2, 4, 8"),
        ({"samples": 0}, "samples must be"),
        ({"percentile": 30.0}, "percentile must be above 50"),
    ):
        with pytest.raises(UsageError, match=message):
            QuantiseOptions(**wrong)


def test_data_that_are_no_numbers_are_named():
    spoilt = [x.copy() for x in DATA[:2]]
    spoilt[1][0, 0, 0, 0] = np.nan
    with pytest.raises(UsageError, match="calibration sample 1 makes tensor 'x' infinite or NaN"):
        neocpu.quantize(network(), spoilt)


def test_constant_calibration_data_are_noted():
    made = neocpu.quantize(network(), [np.zeros_like(DATA[0])])
    assert "constant" in made.report.notes[0]
    assert all(tensor.grid.scale > 0 for tensor in made.report.tensors)


def small(nodes, arrays, shape=(1, 4, 6, 6)):
    """Return a model of an input ``x`` and a result ``y``."""
    inferred = make_model(nodes, {"x": np.zeros(shape, np.float32)}, arrays, opset=17)
    inferred.graph.output[0].type.tensor_type.elem_type = 1
    return inferred


def weights(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], f"{op}_{output}", **attributes)


def small_data():
    return [weights(1, 4, 6, 6, seed=seed) for seed in range(4)]


def quantise_small(model, **options):
    return neocpu.quantize(model, small_data(), QuantiseOptions(**options))


def test_channels_with_other_readers_are_not_equalised():
    shared = [node("Conv", "x w1 b", "a"), node("Relu", "a", "r"), node("Conv", "r w2 b", "y")]
    narrow = [node("Conv", "x w1", "a"), node("Relu", "a", "r"), node("Conv", "r w2", "y")]
    cases = (
        (shared, {"w1": 9 * weights(4, 4, 1, 1), "b": weights(4), "w2": weights(4, 4, 1, 1)}),
        (narrow, {"w1": 9 * weights(1, 4, 1, 1), "w2": weights(5, 1, 1, 1)}),
    )
    for nodes, arrays in cases:
        model = small(nodes, arrays)
        equal = equalise(float_graph(load_model(model)))
        x = weights(1, 4, 6, 6, seed=9)
        wanted = run_onnxruntime(model, x)
        np.testing.assert_allclose(run_onnxruntime(equal.proto, x), wanted, rtol=1e-4, atol=1e-4)


def test_a_pooled_tensor_that_others_read_keeps_its_values():
    nodes = [
        node("Conv", "x w1", "a"),
        node("MaxPool", "a", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Conv", "p w2", "c"),
        node("Sigmoid", "a", "s"),
        node("Add", "c s", "y"),
    ]
    made = quantise_small(small(nodes, {"w1": weights(4, 4, 1, 1), "w2": weights(4, 4, 1, 1)}))
    (sigmoid,) = (n for n in made.proto.graph.node if n.op_type == "Sigmoid")
    assert sigmoid.input[0] == "a"


def test_names_that_are_taken_are_left_alone():
    nodes = [
        node("Conv", "x y_bias y_weights_scale", "a"),
        node("Relu", "a", "a_scale"),
        node("Conv", "a_scale x_scale", "y"),
    ]
    arrays = {
        "y_bias": weights(4, 4, 1, 1),
        "y_weights_scale": weights(4),
        "x_scale": weights(4, 4, 1, 1),
    }
    model = small(nodes, arrays)
    made = quantise_small(model)
    onnx.checker.check_model(made.proto, full_check=True)
    x = weights(1, 4, 6, 6, seed=9)
    assert decibels(run_onnxruntime(model, x), run_onnxruntime(made.proto, x)) > 20


def test_sums_of_integers_are_left_alone():
    nodes = [
        node("Conv", "x w", "c"),
        node("Cast", "c", "i", to=6),
        node("Abs", "i", "j"),
        node("Add", "i j", "k"),
        node("Cast", "k", "y", to=1),
    ]
    made = quantise_small(small(nodes, {"w": 9 * weights(4, 4, 1, 1)}))
    assert {tensor.name for tensor in made.report.tensors} == {"x"}


def test_infinite_outputs_are_equal_or_wrong():
    from neocpu.quantiser.observation import _Tally

    same, other = _Tally(), _Tally()
    same.add(np.float32([1, -np.inf]), np.float32([1, -np.inf]))
    other.add(np.float32([1, -np.inf]), np.float32([9, 0]))
    assert same.decibels == np.inf
    assert other.decibels == -np.inf


def detector() -> onnx.ModelProto:
    """Return convolutions that find boxes, and the selection of some."""
    boxes = [
        node("Conv", "x w", "c"),
        node("Relu", "c", "r"),
        node("Conv", "r v", "d"),
        node("Reshape", "d shape", "b"),
        node("Slice", "b zero one two", "s"),
        node("Transpose", "s", "t", perm=[0, 2, 1]),
        node("NonMaxSuppression", "b t most", "y"),
    ]
    arrays = {
        "w": weights(8, 4, 1, 1),
        "v": weights(4, 8, 1, 1),
        "shape": np.array([1, 36, 4]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
        "most": np.array([5]),
    }
    model = small(boxes, arrays)
    model.graph.output[0].type.tensor_type.elem_type = 7
    return model


def test_layers_before_selected_rows_are_quantised():
    """The tensors that select rows are compared, because data decides the number of rows."""
    made = quantise_small(detector())
    onnx.checker.check_model(made.proto, full_check=True)
    assert set(made.report.outputs) == {"b", "t"}
    assert all(10 < value < 100 for value in made.report.outputs.values())
    kinds = ops(made.proto)
    assert kinds.count("QuantizeLinear") == 2
    (selection,) = (n for n in made.proto.graph.node if n.op_type == "NonMaxSuppression")
    assert list(selection.output) == ["y"]
    assert [value.name for value in made.proto.graph.output] == ["y"]
    session = onnxruntime.InferenceSession(made.proto.SerializeToString())
    x = small_data()[0]
    (wanted,) = session.run(None, {"x": x})
    with neocpu.compile(made.proto, precision="int8", small=True, threads=2) as compiled:
        np.testing.assert_array_equal(compiled.module()(x), wanted)


def test_a_detector_keeps_its_limits_too():
    with neocpu.compile_calibrated(
        detector(), small_data(), precision="int8", small=True, max_error=0.2, threads=2
    ) as compiled:
        found = compiled.plan.calibration
    assert 0 < found.error < 0.2
    assert [layer.name for layer in found.layers] == ["Conv_c", "Conv_d"]
    assert all(layer.noise > 0 for layer in found.layers)


def test_a_detector_of_rows_alone_is_compared_by_what_they_are_taken_of():
    graph = float_graph(load_model(two_stages()))
    assert graph.compared == ("candidates", "objectness", "features")
    assert [layer.result for layer in graph.layers] == ["c", "object_map", "move_map"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e-42, 1e-38, 1e-26, 1e-20, 1e20, 1e37])
def test_data_of_any_size_quantise(size):
    data = (np.random.default_rng(0).standard_normal((4, 3, 8, 8)) * size).astype(np.float32)
    convolution = small(
        [node("Conv", "x w b", "y")],
        {"w": weights(4, 3, 3, 3), "b": np.ones(4, np.float32)},
        (1, 3, 8, 8),
    )
    made = neocpu.quantize(convolution, data)
    scales = [
        numpy_helper.to_array(each)
        for each in made.proto.graph.initializer
        if each.name.endswith("_scale")
    ]
    assert all(np.isfinite(scale).all() and (scale > 0).all() for scale in scales)
    neocpu.compile(made.proto, verify=False).close()
