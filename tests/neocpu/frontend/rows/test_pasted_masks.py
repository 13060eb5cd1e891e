"""A loop that pastes masks into images; data decides the number of detections."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.selections import assert_as_onnxruntime, node

MASKS, SIDE, HEIGHT, WIDTH = 6, 5, 13, 17
NUMBERS = {
    "zero": np.array(0, np.int64),
    "one": np.array(1, np.int64),
    "c_zero": np.array([0], np.int64),
    "c_one": np.array([1], np.int64),
    "ones": np.array([1, 1], np.int64),
    "zeros": np.array([0, 0], np.int64),
    "pairs": np.array([2, 2], np.int64),
    "places": np.array([1, 0], np.int64),
    "plane": np.array([0, 1], np.int64),
    "image": np.array([HEIGHT, WIDTH], np.int64),
    "nothing": np.zeros((0, HEIGHT, WIDTH), np.float32),
}


def body(grow: str) -> onnx.GraphProto:
    """Return a loop's body; ``grow`` is added to the extents of a box."""
    nodes = [
        node("Gather", ["padded", "i"], ["mask"]),
        node("Gather", ["corners", "i"], ["box"]),
        node("Split", ["box", "pairs"], ["low_xy", "high_xy"]),
        node("Gather", ["low_xy", "places"], ["low"]),
        node("Gather", ["high_xy", "places"], ["high"]),
        node("Sub", ["high", "low"], ["difference"]),
        node("Add", ["difference", grow], ["extents"]),
        node("Max", ["extents", "ones"], ["size"]),
        node("Unsqueeze", ["mask", "c_zero"], ["mask4"]),
        node("Concat", ["ones", "size"], ["sizes"], axis=0),
        node("Resize", ["mask4", "", "", "sizes"], ["resized"], mode="linear"),
        node("Squeeze", ["resized", "plane"], ["flat"]),
        node("Max", ["low", "zeros"], ["start"]),
        node("Add", ["high", "ones"], ["after"]),
        node("Min", ["after", "image"], ["end"]),
        node("Sub", ["start", "low"], ["from"]),
        node("Sub", ["end", "low"], ["to"]),
        node("Slice", ["flat", "from", "to"], ["seen"]),
        node("Sub", ["image", "end"], ["rest"]),
        node("Concat", ["start", "rest"], ["pads"], axis=0),
        node("Pad", ["seen", "pads"], ["whole"]),
        node("Unsqueeze", ["whole", "c_zero"], ["row"]),
        node("Concat", ["before", "row"], ["after_it"], axis=0),
        node("Identity", ["going"], ["goes_on"]),
    ]
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
    ]
    outputs = [
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("after_it", TensorProto.FLOAT, None),
    ]
    return helper.make_graph(nodes, "body", inputs, outputs)


def pasting(grow: str = "ones") -> onnx.ModelProto:
    nodes = [
        node("NonZero", ["keep"], ["kept"]),
        node("Squeeze", ["kept", "c_zero"], ["which"]),
        node("Gather", ["masks", "which"], ["padded"]),
        node("Gather", ["boxes", "which"], ["floats"]),
        node("Cast", ["floats"], ["corners"], to=TensorProto.INT64),
        node("Shape", ["padded"], ["shape"]),
        node("Gather", ["shape", "zero"], ["number"]),
        node("Loop", ["number", "", "nothing"], ["pasted"], name="paste", body=body(grow)),
        node("Unsqueeze", ["pasted", "c_one"], ["images"]),
    ]
    kinds = {
        "keep": (TensorProto.BOOL, [MASKS]),
        "masks": (TensorProto.FLOAT, [MASKS, 1, SIDE, SIDE]),
        "boxes": (TensorProto.FLOAT, [MASKS, 4]),
    }
    graph = helper.make_graph(
        nodes,
        "pasting",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 1, HEIGHT, WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in NUMBERS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_loop_that_pastes_masks_becomes_products_of_matrices():
    boxes = np.array(
        [[1, 2, 9, 7], [-3, -4, 3, 2], [8, 6, 25, 19], [4, 4, 4, 4], [2, 1, 3, 11], [0, 0, 16, 12]]
    )
    masks = np.random.default_rng(0).uniform(size=(MASKS, 1, SIDE, SIDE)).astype(np.float32)
    given = {"masks": masks, "boxes": boxes.astype(np.float32)}
    keeps = (np.ones(MASKS, bool), np.zeros(MASKS, bool), np.arange(MASKS) % 2 == 1)
    loaded = assert_as_onnxruntime(pasting(), [{**given, "keep": keep} for keep in keeps])
    assert loaded.outputs[0].shape == (MASKS, 1, HEIGHT, WIDTH)


def test_a_loop_that_pastes_something_else_stays_a_loop():
    with pytest.raises(UnsupportedError, match="Loop"):
        load_model(pasting("pairs"))
