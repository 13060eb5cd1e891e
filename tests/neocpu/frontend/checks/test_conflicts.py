"""Image sizes that a network cannot take: the message names the node and possible sizes."""

from __future__ import annotations

import ast

import numpy as np
import onnx
import pytest
from onnx import helper

from neocpu.foundation.errors import ModelError, UsageError
from neocpu.frontend import models
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import InputShapes
from tests.neocpu.frontend.onnx_models import onnx_model


def u_net(levels: int, dims: list[int | str] | None = None) -> onnx.ModelProto:
    """Halve an image some times, double it again, and join both ways at every size."""
    nodes, weights = [], {"double": np.array([1, 1, 2, 2], np.float32)}

    def conv(source: str, channels: int, result: str) -> None:
        weights[f"{result}w"] = np.ones((4, channels, 3, 3), np.float32)
        nodes.append(helper.make_node("Conv", [source, f"{result}w"], [result], pads=[1, 1, 1, 1]))

    value = "x"
    for level in range(levels):
        conv(value, 3 if level == 0 else 4, f"down{level}")
        value = f"half{level}"
        nodes.append(
            helper.make_node(
                "MaxPool", [f"down{level}"], [value], kernel_shape=[2, 2], strides=[2, 2]
            )
        )
    for level in reversed(range(levels)):
        up, both = f"up{level}", f"both{level}"
        nodes.append(helper.make_node("Resize", [value, "", "double"], [up], mode="nearest"))
        nodes.append(
            helper.make_node("Concat", [f"down{level}", up], [both], f"/join{level}", axis=1)
        )
        value = f"out{level}"
        conv(both, 8, value)
    dims = dims or ["n", 3, "h", "w"]
    return onnx_model(nodes, {"x": dims}, {value: list("NCHW")}, weights, opset=13)


def refusal(model: onnx.ModelProto, *shape: int) -> str:
    with pytest.raises(UsageError) as caught:
        load_model(model, InputShapes({"x": shape}))
    return str(caught.value)


def test_the_first_node_both_shapes_and_the_multiple():
    message = refusal(u_net(3), 1, 3, 225, 225)
    assert message == (
        "Concat '/join0' cannot take 'down0' of shape 1x4x225x225 beside 'up0' of shape "
        "1x4x224x224: height and width must be a multiple of 8, as in "
        "shapes={'x': (1, 3, 232, 232)}"
    )


@pytest.mark.parametrize("levels", [1, 2, 4, 5])
@pytest.mark.parametrize("extra", [1, 31])
def test_the_multiple_is_the_smallest_that_always_fits(levels, extra):
    multiple = 2**levels
    message = refusal(u_net(levels), 1, 3, 64 + extra, 64)
    assert f"must be a multiple of {multiple}, as in shapes={{'x': (1, 3, " in message
    load_model(u_net(levels), ast.literal_eval(message.rpartition("shapes=")[2]))


def test_no_multiple_is_suggested_if_none_helps():
    nodes = "[sum] y = Add(x, c)"
    ends = {"x": ["n", 3, "h", "w"]}, {"y": list("NCHW")}
    model = onnx_model(nodes, *ends, {"c": np.ones((3, 5, 7), np.float32)})
    message = refusal(model, 1, 3, 8, 8)
    assert message.startswith("Add 'sum' cannot take 'x' of shape 1x3x8x8")
    assert message.endswith("give the model another shape (shapes=)")


def test_a_model_that_contradicts_itself():
    with pytest.raises(ModelError, match="Concat '/join0' cannot take 'down0' of shape 1x4x9x9"):
        load_model(u_net(2, [1, 3, 9, 9]))


def test_a_dynamic_batch_whose_graph_is_for_one_image():
    nodes = "[token] y = Concat<axis = 1>(x, c)"
    constants = {"c": np.ones((1, 1, 5), np.float32)}
    model = onnx_model(nodes, {"x": ["n", 3, 5]}, {"y": list("nab")}, constants)
    assert load_model(model, InputShapes(batch=1)).outputs[0].shape == (1, 4, 5)
    words = "batch=4: Concat 'token' cannot take 'x' of shape 4x3x5.*fixes another batch"
    with pytest.raises(UsageError, match=words):
        load_model(model, InputShapes(batch=4))


def test_a_shape_that_is_written_into_the_graph():
    """ONNX infers such a shape for any input."""
    nodes = "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) [flat] y = Reshape(p, s)"
    ends = {"x": ["n", 3, "h", "w"]}, {"y": list("ab")}
    model = onnx_model(nodes, *ends, {"s": np.array([1, 3 * 112 * 112])})
    assert load_model(model, {"x": (1, 3, 224, 224)}).outputs[0].shape == (1, 37632)
    what = "Reshape 'flat' cannot make 1x37632 of 'p' of shape"
    assert (
        refusal(model, 4, 3, 64, 64)
        == f"{what} 4x3x32x32: it takes shapes={{'x': (4, 3, 112, 112)}}"
    )
    assert (
        refusal(model, 1, 3, 32, 32)
        == f"{what} 1x3x16x16: it takes shapes={{'x': (1, 3, 224, 224)}}"
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("unet", "height and width must be a multiple of 16"),
        ("yolov3_tiny", "it takes shapes={'input': (1, 3, 416, 416)}"),
    ],
)
def test_built_in_networks_with_dynamic_sizes(name, advice):
    model = models.build(name)
    (entry,) = model.graph.input
    for axis in (2, 3):
        entry.type.tensor_type.shape.dim[axis].dim_param = "hw"[axis - 2]
    del model.graph.value_info[:]
    with pytest.raises(UsageError) as caught:
        load_model(model, {entry.name: (1, 3, 225, 225)})
    assert "Concat" in str(caught.value)
    assert advice in str(caught.value)
