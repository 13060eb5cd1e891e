"""Inputs of unknown shapes are refused, and the message suggests shapes that work."""

import ast
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from neocpu.foundation.errors import ModelError, UnsupportedError, UsageError
from neocpu.frontend.checks.conflicts import candidate_shapes
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import parse_given
from tests.neocpu.frontend.differential import ints, make_model, random
from tests.neocpu.frontend.onnx_models import onnx_model

FLOAT = TensorProto.FLOAT


def model(nodes, inputs, **constants):
    """A model of inputs with these dimensions (None: unknown rank), and an output ``y``."""
    after = "flat = Flatten<axis = 0>(z) y = Squeeze(flat, zeroth)"
    weights = {**constants, "zeroth": np.array([0])}
    return onnx_model(f"{nodes} {after}", inputs, {"y": ["rows"]}, weights, opset=17)


def suggested(made, error=ModelError, shapes=None):
    """Return the shapes that a refusal suggests, after trying them."""
    with pytest.raises(error) as refused:
        load_model(made, shapes)
    text = str(refused.value)
    assert "\n" not in text
    found = {}
    for shapes in re.findall(r"shapes=(\{.*?\})", text):
        found |= ast.literal_eval(shapes)
    loaded = load_model(made, found)
    assert {spec.name: spec.shape for spec in loaded.inputs} == found
    return found


def convolution(channels, size=3):
    return np.ones((4, channels, size, size), np.float32)


CONV = "z = Conv(x, w)"
# Of an image of 48 rows, as networks that read lines of text.
LINE = "p = AveragePool<kernel_shape = [48, 1], strides = [48, 1]>(x) z = Squeeze(p, two)"


@pytest.mark.parametrize(
    "dims", [[-1, 3, -1, -1], ["N", 3, "H", "W"], ["?", 3, "?", "?"], [0, 3, 0, 0]]
)
def test_the_usual_size(dims):
    assert suggested(model(CONV, {"x": dims}, w=convolution(3))) == {"x": (1, 3, 224, 224)}


@pytest.mark.parametrize("channels", [1, 3])
def test_an_unknown_channel_extent_is_that_of_the_weights(channels):
    made = model(CONV, {"x": list("NCHW")}, w=convolution(channels))
    assert suggested(made) == {"x": (1, channels, 224, 224)}


def test_channels_that_are_last():
    nodes = "t = Transpose<perm = [0, 3, 1, 2]>(x) z = Conv(t, w)"
    made = model(nodes, {"x": ["N", "H", "W", 3]}, w=convolution(3))
    assert suggested(made) == {"x": (1, 224, 224, 3)}


def test_a_size_that_the_graph_asks_for():
    assert suggested(model(LINE, {"x": [-1, 3, "?", "W"]}, two=[2])) == {"x": (1, 3, 48, 320)}


def test_another_size_than_the_one_given():
    nodes = """p = AveragePool<kernel_shape = [2, 1], strides = [48, 1]>(x)
        z = Concat<axis = 3>(p, row)"""
    joined = model(nodes, {"x": ["N", 3, "H", "W"]}, row=np.ones((1, 3, 1, 5), np.float32))
    assert suggested(joined, UsageError, {"x": (1, 3, 224, 224)}) == {"x": (1, 3, 48, 320)}


def test_an_unknown_rank():
    assert suggested(model(CONV, {"x": None}, w=convolution(1))) == {"x": (1, 1, 224, 224)}
    product = model("z = MatMul(x, w)", {"x": None}, w=np.ones((224, 5), np.float32))
    assert suggested(product)["x"][-1] == 224


def test_several_inputs_share_the_extents_of_a_name():
    made = model("z = Add(a, b)", {"a": ["N", 1, "H", "W"], "b": ["N", 3, "H", "W"]})
    assert suggested(made) == {"a": (1, 1, 224, 224), "b": (1, 3, 224, 224)}


def test_the_usual_size_is_suggested_if_no_size_fits():
    weights = np.ones((77, 5), np.float32)
    made = model("z = MatMul(x, w)", {"x": ["N", "length"]}, w=weights)
    with pytest.raises(ModelError, match=r"shapes={'x': \(1, 224\)}$"):
        load_model(made)


def test_only_the_batch():
    with pytest.raises(ModelError, match=r"shapes={'x': \(1, 3, 8, 8\)} or batch=1$"):
        load_model(model("z = Relu(x)", {"x": ["N", 3, 8, 8]}))


def test_candidates_are_tried_once():
    value = helper.make_tensor_value_info("x", FLOAT, ["N", 3, "S", "S"])
    shapes = [tuple(each["x"]) for each in candidate_shapes([value], 2)]
    assert len(shapes) == len(set(shapes)) >= 8
    assert shapes[0] == (2, 3, 224, 224)
    assert all(n == 2 and h == w for n, _, h, w in shapes)


def _resized_by_an_input():
    """Return a model like Segment Anything's decoder: two floats give the size of the result."""
    nodes = [
        helper.make_node("Cast", ["size"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Concat", ["image", "whole"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    feeds = {"x": random(1, 4, 16, 16), "size": np.zeros(2, np.float32)}
    return make_model(nodes, feeds, {"image": ints(1, 4)}, opset=17)


def test_an_input_that_decides_a_shape_is_named_with_the_option_to_give():
    with pytest.raises(UnsupportedError, match=r"Resize 'y' decides it.*shapes={'size': \(N, N\)}"):
        load_model(_resized_by_an_input())


def test_each_element_of_an_input_may_be_given():
    loaded = load_model(_resized_by_an_input(), {"size": (48.0, 80.0)})
    assert loaded.outputs[0].shape == (1, 4, 48, 80)
    assert parse_given("size=48,80.5") == ("size", (48.0, 80.5))
    assert parse_given("a=b=-1,2") == ("a=b", (-1.0, 2.0))


def test_an_open_length_is_that_of_the_value():
    feeds = {"x": random(1, 4, 4, 4), "size": ints(0)}
    net = make_model([helper.make_node("Reshape", ["x", "size"], ["y"])], feeds)
    net.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    assert load_model(net, {"size": (8.0, 8.0)}).outputs[0].shape == (8, 8)


def test_as_many_elements_must_be_given_as_there_are():
    with pytest.raises(UsageError, match=r"shapes={'size': \(48.0, 80.0, 3.0\)}: the input is 2"):
        load_model(_resized_by_an_input(), {"size": (48.0, 80.0, 3.0)})
