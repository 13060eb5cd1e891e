"""A loop that finds keypoints; data decides the number of detections and their map sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from differential import run_onnxruntime
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.selections import node

FOUND, MAPS, HEIGHT, WIDTH = 5, 3, 7, 9
NUMBERS = {
    "zero": np.array(0, np.int64),
    "c_zero": np.array([0], np.int64),
    "c_one": np.array([1], np.int64),
    "c_two": np.array([2], np.int64),
    "two": np.array(2, np.int64),
    "one": np.array(1, np.int64),
    "flat": np.array([MAPS, -1], np.int64),
    "row": np.array([-1], np.int64),
    "half": np.array(0.5, np.float32),
    "least": np.array(1.0, np.float32),
    "going": np.array(True),
    "no_rows": np.array([0, 3], np.int64),
    "no_scores": np.array([0], np.int64),
    "diagonal": np.arange(MAPS) * (MAPS * MAPS + MAPS + 1),
}


def body(cubic: float, repeated: str) -> onnx.GraphProto:
    """Return the body as PyTorch writes it; ``repeated`` is the axis that rows are joined along."""
    gathers = ("maps", "across", "down", "widths", "heights", "lefts", "tops")
    nodes = [node("Gather", [name, "i"], [f"{name}_i"], axis=0) for name in gathers]
    nodes += [
        node("Div", ["widths_i", "across_i"], ["scale_x"]),
        node("Div", ["heights_i", "down_i"], ["scale_y"]),
        node("Unsqueeze", ["maps_i", "c_one"], ["maps4"]),
        node("Unsqueeze", ["down_i", "c_zero"], ["down_1"]),
        node("Unsqueeze", ["across_i", "c_zero"], ["across_1"]),
        node("Concat", ["down_1", "across_1"], ["sides"], axis=0),
        node("Cast", ["sides"], ["sides_64"], to=TensorProto.INT64),
        node("Shape", ["maps4"], ["shape4"]),
        node("Slice", ["shape4", "c_zero", "c_two", "c_zero"], ["shape2"]),
        node("Concat", ["shape2", "sides_64"], ["sizes"], axis=0),
        node("Resize", ["maps4", "", "", "sizes"], ["resized"], mode="cubic", cubic_coeff_a=cubic),
        node("Gather", ["resized", "zero"], ["whole"], axis=1),
        node("Shape", ["whole"], ["shape"]),
        node("Gather", ["shape", "two"], ["w"], axis=0),
        node("Reshape", ["whole", "flat"], ["lines"]),
        node("ArgMax", ["lines"], ["place"], axis=1, keepdims=0),
        node("Mod", ["place", "w"], ["x"]),
        node("Div", ["place", "w"], ["y"]),
        node("Gather", ["whole", "y"], ["chosen"], axis=1),
        node("Gather", ["chosen", "x"], ["best"], axis=2),
        node("Reshape", ["best", "row"], ["all"]),
        node("Gather", ["all", "diagonal"], ["scores_i"], axis=0),
    ]
    for axis, start in (("x", "lefts_i"), ("y", "tops_i")):
        nodes += [
            node("Cast", [axis], [f"{axis}_f"], to=TensorProto.FLOAT),
            node("Add", ["half", f"{axis}_f"], [f"{axis}_c"]),
            node("Mul", [f"{axis}_c", f"scale_{axis}"], [f"{axis}_s"]),
            node("Add", [f"{axis}_s", start], [f"{axis}_p"]),
            node("Unsqueeze", [f"{axis}_p", "c_zero"], [f"{axis}_r"]),
        ]
    one = numpy_helper.from_array(np.array([1], np.float32))
    nodes += [
        node("Shape", ["y_p"], ["count"]),
        node("ConstantOfShape", ["count"], ["seen"], value=one),
        node("Unsqueeze", ["seen", "c_zero"], ["seen_r"]),
        node("Concat", ["x_r", "y_r", "seen_r"], ["places_i"], axis=0),
        node("Unsqueeze", ["places_i", repeated], ["places_r"]),
        node("Cast", ["places_before"], ["places_f"], to=TensorProto.FLOAT),
        node("Concat", ["places_f", "places_r"], ["places_after"], axis=0),
        node("Unsqueeze", ["scores_i", "c_zero"], ["scores_r"]),
        node("Concat", ["scores_before", "scores_r"], ["scores_after"], axis=0),
        node("Identity", ["going"], ["goes_on"]),
    ]
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
        helper.make_tensor_value_info("places_before", TensorProto.FLOAT, [None, 3, MAPS]),
        helper.make_tensor_value_info("scores_before", TensorProto.FLOAT, [None, MAPS]),
    ]
    outputs = [
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("places_after", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("scores_after", TensorProto.FLOAT, None),
    ]
    return helper.make_graph(nodes, "body", inputs, outputs)


def finding(cubic: float = -0.75, counted: str = "maps", repeated: str = "c_zero"):
    """Return a model of a loop over those detections that are kept."""
    nodes = [
        node("NonZero", ["keep"], ["kept"]),
        node("Squeeze", ["kept", "c_zero"], ["which"]),
        node("Gather", ["all_maps", "which"], ["maps"]),
        node("Gather", ["boxes", "which"], ["some"]),
        node("Split", ["some"], ["lefts_2", "tops_2", "right_2", "down_2"], axis=1, num_outputs=4),
    ]
    for start, end, size, whole in (
        ("lefts", "right", "widths", "across"),
        ("tops", "down", "heights", "down"),
    ):
        nodes += [
            node("Squeeze", [f"{start}_2", "c_one"], [start]),
            node("Squeeze", [f"{end}_2", "c_one"], [f"{end}_end"]),
            node("Sub", [f"{end}_end", start], [f"{size}_any"]),
            node("Clip", [f"{size}_any", "least"], [size]),
            node("Ceil", [size], [whole]),
        ]
    states = ["places_0", "scores_0"]
    nodes += [
        node("Shape", [counted], ["counted_shape"]),
        node("Gather", ["counted_shape", "zero"], ["number"]),
        node("Shape", ["maps"], ["maps_shape"]),
        node("Slice", ["maps_shape", "c_one", "c_two"], ["maps_each"]),
        node("Concat", ["no_rows", "maps_each"], ["places_shape"], axis=0),
        node("ConstantOfShape", ["places_shape"], ["places_0"]),
        node("Concat", ["no_scores", "maps_each"], ["scores_shape"], axis=0),
        node("ConstantOfShape", ["scores_shape"], ["scores_0"]),
        node("Loop", ["number", "going", *states], ["places", "scores"], name="find",
             body=body(cubic, repeated)),
    ]  # fmt: skip
    kinds = {
        "keep": (TensorProto.BOOL, [FOUND]),
        "all_maps": (TensorProto.FLOAT, [FOUND, MAPS, HEIGHT, WIDTH]),
        "boxes": (TensorProto.FLOAT, [FOUND, 4]),
    }
    outputs = {"places": ["n", 3, MAPS], "scores": ["n", MAPS]}
    graph = helper.make_graph(
        nodes,
        "finding",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in NUMBERS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_the_loop_that_finds_keypoints_becomes_one_operator():
    model = finding()
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 20, (FOUND, 2))
    sides = [[13.3, 17.8], [1, 1], [0.2, 40], [9, 7], [4.5, 3.9]]
    given = {
        "all_maps": rng.normal(size=(FOUND, MAPS, HEIGHT, WIDTH)).astype(np.float32),
        "boxes": np.concatenate([low, low + sides], axis=1).astype(np.float32),
    }
    keeps = (np.ones(FOUND, bool), np.zeros(FOUND, bool), np.arange(FOUND) % 2 == 1)
    with neocpu.compile(model, verify=False) as compiled, compiled.module() as module:
        for keep in keeps:
            feeds = {**given, "keep": keep}
            places, scores = module.run(feeds).values()
            expected = run_onnxruntime(model, feeds)
            np.testing.assert_allclose(places, expected[0], rtol=1e-5, atol=1e-4)
            np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"cubic": -0.5}, "Loop 'find'"),
        ({"repeated": "c_two"}, "Loop 'find'"),
        ({"counted": "keep"}, "ResizedPeaks 'scores' .it does not run once for each"),
    ],
)
def test_a_loop_that_finds_something_else_is_refused(changed, named):
    with pytest.raises(UnsupportedError, match=named) as raised:
        load_model(finding(**changed))
    assert "\n" not in str(raised.value)
