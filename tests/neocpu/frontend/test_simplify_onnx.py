"""Simplification of ONNX graphs: nodes that are removed, folded and rewritten."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.frontend.load import load_model
from neocpu.frontend.opsets.opset_raising import opset_of
from neocpu.frontend.simplify_onnx import TARGET_OPSET
from tests.neocpu.frontend.differential import (
    assert_matches_onnxruntime,
    floats,
    ints,
    make_model,
    random,
    relax_ops,
    run_imported,
)
from tests.neocpu.frontend.onnx_models import graph_model
from tests.text_models import nodes_of

X = random(1, 4, 6, 6)


def simplified_ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in load_model(model).simplified.graph.node]


def test_shape_chains_fold():
    """``view(x.size(0), -1)`` as PyTorch traced it."""
    nodes = """s = Shape(x) n = Gather<axis = 0>(s, zero) n1 = Unsqueeze<axes = [0]>(n)
        shape = Concat<axis = 0>(n1, rest) y = Reshape(x, shape)"""
    text = f"(float[1, 4, 6, 6] x) => (float[n, features] y) {{ {nodes} }}"
    model = graph_model(text, opset=9, zero=np.array(0), rest=ints(-1))
    assert simplified_ops(model) == ["Reshape"]
    assert_matches_onnxruntime(model, {"x": X})


def test_generated_constants_fold():
    nodes = """ones = ConstantOfShape<value = float[1] {2.0}>(dims) r = Range(start, limit, delta)
        f = Cast<to = 1>(r) e = Expand(f, dims) scale = Mul(ones, e) y = Mul(x, scale)"""
    constants = {"dims": ints(4, 6, 6), "start": np.array(0), "limit": np.array(6)}
    text = f"(float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {{ {nodes} }}"
    model = graph_model(text, delta=np.array(1), **constants)
    assert simplified_ops(model) == ["Mul"]
    assert_matches_onnxruntime(model, {"x": X})


def test_dead_duplicate_and_identity_nodes_go():
    text = (
        "i = Identity(x) a = Relu(i) b = Relu(x) unused = Sigmoid(x) d = Dropout(b) y = Add(a, d)"
    )
    model = graph_model(f"(float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) {{ {text} }}", opset=12)
    assert simplified_ops(model) == ["Relu", "Add"]
    assert_matches_onnxruntime(model, {"x": X})


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18, 21, 23])
def test_opset_is_raised_and_never_lowered(opset):
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, opset=opset)
    loaded = load_model(model)
    assert opset_of(loaded.simplified) == max(opset, TARGET_OPSET)
    assert opset_of(loaded.original) == opset


def test_inputs_and_outputs_keep_names_order_and_aliases():
    """Outputs may be an input, a constant, twice the same value, or also used inside."""
    text = """same = Identity(b) inner = Relu(a) twin = Relu(a) last = Neg(inner)
        fixed = Constant<value_floats = [1.0, 2.0]>()"""
    feeds = {"b": random(2, 3, seed=1), "a": random(3, 2), "idle": random(1, seed=2)}
    outputs = ["last", "twin", "same", "inner", "fixed"]
    model = make_model(nodes_of(text), feeds, outputs=outputs)
    loaded = load_model(model)
    assert [value.name for value in loaded.simplified.graph.input] == list(feeds)
    assert [value.name for value in loaded.simplified.graph.output] == outputs
    assert_matches_onnxruntime(model, feeds)


def test_weights_reach_the_simplified_model_unchanged():
    weight = random(64, 4, 3, 3, seed=1)
    model = make_model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": X}, {"w": weight})
    (kept,) = load_model(model).simplified.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(kept), weight)


_AMOUNTS = (0, 0, 1, 2, 0, 0, 2, 1)


def pad_and(op: str, fill: float = 0.0, amounts: tuple[int, ...] = _AMOUNTS, **attrs):
    names = ["p", "w"] if op == "Conv" else ["p"]
    nodes = [
        helper.make_node("Pad", ["x", "pads", "fill"], ["p"]),
        helper.make_node(op, names, ["y"], **attrs),
    ]
    constants = {"pads": ints(*amounts), "fill": np.array(fill, np.float32)}
    if op == "Conv":
        constants["w"] = random(3, 4, 3, 3, seed=1)
    return make_model(nodes, {"x": X}, constants)


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0, 0, 1]}, {"auto_pad": "VALID"}])
def test_zero_padding_goes_into_the_convolution(attrs):
    model = pad_and("Conv", strides=[2, 2], **attrs)
    assert relax_ops(assert_matches_onnxruntime(model, {"x": X})) == ["nn.conv2d"]


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 1, 1, 1], "count_include_pad": 1}])
def test_zero_padding_goes_into_the_average(attrs):
    model = pad_and("AveragePool", kernel_shape=[3, 3], **attrs)
    assert relax_ops(assert_matches_onnxruntime(model, {"x": X})) == ["nn.avg_pool2d"]


def rounded(model: onnx.ModelProto, *zeros: int, scale: float = 0.05) -> onnx.ModelProto:
    """Insert a QuantizeLinear and DequantizeLinear, by two zero points, before the last node."""
    names = [f"z{zero}" for zero in zeros] or [""]
    *above, last = model.graph.node
    between = [
        helper.make_node("QuantizeLinear", [last.input[0], "s", names[0]], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", names[-1]], ["d"]),
    ]
    last.input[0] = "d"
    nodes = [*above, *between, last]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    constants = {"s": np.float32(scale), **{f"z{zero}": np.uint8(zero) for zero in zeros}}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(array), name) for name, array in constants.items()
    )
    return model


@pytest.mark.parametrize("zeros", [(), (0,), (128,), (255,)])
@pytest.mark.parametrize("op", ["Conv", "AveragePool"])
def test_zero_padding_goes_through_rounding(op, zeros):
    """Padding moves into the convolution or the average, because zero is on every grid."""
    attrs = {"kernel_shape": [3, 3]} if op == "AveragePool" else {"strides": [2, 2]}
    model = rounded(pad_and(op, **attrs), *zeros)
    assert "nn.pad" not in relax_ops(assert_matches_onnxruntime(model, {"x": X}))


def test_padding_stays_where_rounding_moves_zeros_or_others_read_it():
    read_twice = rounded(pad_and("Conv"), 128)
    read_twice.graph.node.append(helper.make_node("Relu", ["d"], ["other"]))
    shown = helper.make_tensor_value_info("other", TensorProto.FLOAT, (1, 4, 9, 9))
    read_twice.graph.output.append(shown)
    other_zero, no_zero = rounded(pad_and("Conv"), 128, 120), rounded(pad_and("Conv", fill=1.0), 9)
    for model in (other_zero, no_zero, read_twice):
        assert "nn.pad" in relax_ops(assert_matches_onnxruntime(model, {"x": X}))


def test_other_padding_stays():
    models = [
        pad_and("Conv", fill=1.0),
        pad_and("Conv", amounts=(0, 0, -1, 1, 0, 0, 1, 1)),
        pad_and("AveragePool", kernel_shape=[3, 3], amounts=(0, 0, 1, 1, 0, 0, 1, 1), fill=2.0),
        pad_and("MaxPool", kernel_shape=[3, 3]),
    ]
    for model in models:
        assert "nn.pad" in relax_ops(assert_matches_onnxruntime(model, {"x": X}))


def test_prelu_of_opset_6_has_a_slope_per_channel():
    x = random(1, 4, 4, 4)  # as wide as it has channels: broadcasting would hide the mistake
    slope = floats(0.1, 0.2, 0.3, 0.4)
    model = make_model([helper.make_node("PRelu", ["x", "a"], ["y"])], {"x": x}, {"a": slope})
    model.opset_import[0].version = 6
    expected = np.where(x < 0, x * slope[:, None, None], x)
    _, _, (actual,) = run_imported(model, {"x": x})
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_large_models_print_nothing(capfd):
    nodes = nodes_of("a, b = Split<axis = 0, num_outputs = 2>(c) t = Add(x, a) y = Add(t, b)")
    model = make_model(nodes, {"x": X}, {"c": random(2, 4, 6, 6)})
    load_model(model)
    assert capfd.readouterr() == ("", "")
