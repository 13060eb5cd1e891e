"""Nodes compute the same from constants as from inputs."""

import numpy as np
import pytest
from differential import ints, make_model, random, run_onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from neocpu.frontend.load import load_model
from neocpu.frontend.simplify_onnx import simplify_model
from neocpu.verification.reference.runner import run_reference
from tests.text_models import nodes_of

HOLED = random(2, 5)
HOLED[0, 1] = -np.inf


@pytest.mark.parametrize(
    ("node", "constants", "opset"),
    [
        (
            'Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(k, "", s)',
            {"k": random(1, 2, 5, 7), "s": np.array([1, 1, 2.3, 1.7], np.float32)},
            18,
        ),
        (
            'GridSample<mode = "cubic", padding_mode = "border">(k, g)',
            {"k": random(1, 2, 5, 7), "g": random(1, 4, 4, 2, seed=1) * 1.2},
            20,
        ),
        ("LogSoftmax(k)", {"k": HOLED}, 18),
        ("LpNormalization<p = 1, axis = 1>(k)", {"k": random(3, 4, 5)}, 18),
        (
            'MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER">(k)',
            {"k": random(1, 2, 13, 13)},
            18,
        ),
        (
            "GroupNormalization<num_groups = 2>(k, s, b)",
            {"k": random(1, 4, 3, 3), "s": random(4), "b": random(4, seed=1)},
            21,
        ),
        ("ConvTranspose(k, w)", {"k": random(1, 2, 4, 4), "w": random(2, 3, 3, 3, seed=1)}, 18),
    ],
    ids=lambda value: value.partition("(")[0] if isinstance(value, str) else "",
)
def test_constants_are_folded_as_onnxruntime_computes_them(node, constants, opset):
    nodes = nodes_of(f"c = {node} y = Add(x, c)")
    shape = run_onnxruntime(make_model(nodes[:1], {}, constants, ["c"], opset), {})[0].shape
    x = random(*shape, seed=3)
    made = make_model(nodes, {"x": x}, constants, opset=opset)
    folded = simplify_model(made)
    assert [each.op_type for each in folded.graph.node] == ["Add"]
    (value,) = folded.graph.initializer
    (expected,) = run_onnxruntime(made, {"x": x})
    np.testing.assert_allclose(numpy_helper.to_array(value) + x, expected, rtol=1e-4, atol=1e-5)


def test_all_outputs_of_a_node_are_folded():
    nodes = nodes_of("a, b = Split<num_outputs = 2>(k) ya = Add(x, a) yb = Add(x, b)")
    made = make_model(nodes, {"x": random(2)}, {"k": random(4)}, ["ya", "yb"])
    assert [each.op_type for each in simplify_model(made).graph.node] == ["Add", "Add"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pads_that_become_attributes_change_nothing(data):
    """This holds for any other attributes of the convolution or the pooling."""
    draw, pair = data.draw, st.tuples(st.integers(0, 2), st.integers(0, 2))
    op = draw(st.sampled_from(["AveragePool", "Conv"]))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    attrs = {
        "kernel_shape": kernel,
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "dilations": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
    }
    own = draw(st.sampled_from(["none", "pads", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if own == "pads":
        attrs["pads"] = [min(pad, k - 1) for pad, k in zip(draw(pair) * 2, kernel * 2, strict=True)]
    elif own != "none":
        attrs["auto_pad"] = own
    constants = {"p": ints(0, 0, *draw(pair), 0, 0, *draw(pair))}
    names = ["a"]
    if op == "Conv":
        constants["w"] = random(4, 2, *kernel)
        attrs["group"] = 2
        names.append("w")
    else:
        attrs["ceil_mode"] = draw(st.integers(0, 1))
        attrs["count_include_pad"] = draw(st.integers(0, 1))
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"]),
        helper.make_node(op, names, ["y"], **attrs),
    ]
    x = random(1, 4, *draw(st.tuples(st.integers(5, 9), st.integers(5, 9))))
    made = make_model(nodes, {"x": x}, constants, opset=19)
    expected = run_reference(made, {"x": x})["y"]
    actual = run_reference(load_model(made).simplified, {"x": x})["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_outputs_that_are_left_out():
    node = helper.make_node("MaxPool", ["k"], ["c", ""], kernel_shape=[2, 2])
    nodes = [node, helper.make_node("Add", ["x", "c"], ["y"])]
    made = make_model(nodes, {"x": random(1, 2, 3, 3)}, {"k": random(1, 2, 4, 4)})
    assert [each.op_type for each in simplify_model(made).graph.node] == ["Add"]


def test_statistics_that_nodes_make():
    """MXNet writes ``spatial=0`` and a statistic per channel; here they are Constant nodes."""
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.abs(random(3))))
        for name in "sbmv"
    ]
    nodes.append(helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0))
    x = random(1, 3, 4, 3)
    made = make_model(nodes, {"x": x}, opset=8, like_first_input=True)
    assert "BatchNormalization" in {each.op_type for each in load_model(made).simplified.graph.node}
