"""Rows that a NonMaxSuppression selects from each image of a batch."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from neocpu.compilation.read_model import load_for_import
from neocpu.frontend.importer import import_relax
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.graph.simplify import simplify
from neocpu.ir.row_analysis.proof import Rows, prove_independent_rows

BOXES, CLASSES, MOST = 20, 3, 4
NUMBERS = {
    "sizes": np.array([4, CLASSES]),
    "most": np.array([MOST]),
    "iou": np.array([0.5], "float32"),
    "least": np.array([0.2], "float32"),
    "image_and_box": np.array([0, 2]),
    "one": np.array([1]),
    "zero": np.array(0),
    "two": np.array(2),
    "boxes": np.array([BOXES]),
    "flat": np.array([-1, 4]),
    "scale": np.array([[2, 3, 2, 3]], "float32"),
}
SELECT = (
    "b, s = Split <axis = 2> (x, sizes) t = Transpose <perm = [0, 2, 1]> (s) "
    "selected = NonMaxSuppression (b, t, most, iou, least) "
)
LOOK_UP = (
    "places = Gather <axis = 1> (selected, image_and_box) found = GatherND (b, places) "
    "score = GatherND (t, selected) column = Unsqueeze (score, one) "
    "label = Gather <axis = 1> (selected, one) kind = Cast <to = 1> (label) "
    "pixels = Mul (found, scale) image = Gather <axis = 1> (selected, zero) "
    "n = Unsqueeze (image, one) number = Cast <to = 1> (n) "
    "detections = Concat <axis = 1> (number, pixels, column, kind) "
)
BY_HAND = (
    "image = Gather <axis = 1> (selected, zero) box = Gather <axis = 1> (selected, two) "
    "start = Mul (image, boxes) place = Add (start, box) all = Reshape (b, flat) "
    "found = Gather <axis = 0> (all, place) "
)


def detector(body: str, outputs: str) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 18]>'
    x = f"float[n,{BOXES},{4 + CLASSES}] x"
    model = onnx.parser.parse_model(f"{head} g ({x}) => ({outputs}) {{ {SELECT} {body} }}")
    used = {name for node in model.graph.node for name in node.input}
    for name, array in NUMBERS.items():
        if name in used:
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def proof(model: onnx.ModelProto, rows: int) -> Rows:
    shapes = InputShapes.parse({"x": (rows, BOXES, 4 + CLASSES)})
    loaded = load_for_import(model, shapes)
    return prove_independent_rows(simplify(import_relax(loaded)), loaded.row_counts)


@pytest.mark.parametrize(
    ("body", "outputs", "numbered"),
    [
        ("", "int64[r,3] selected", (((0, 1),),)),
        (LOOK_UP, "float[r,7] detections, float[r] score", (((0, 1),), ())),
        (BY_HAND, "float[r,4] found, int64[r] place", ((), ((0, BOXES),))),
        (BY_HAND, "float[r,4] found", ()),
    ],
)
def test_selected_boxes_are_proven_to_belong_to_their_image(
    body: str, outputs: str, numbered: tuple
):
    found = [proof(detector(body, outputs), rows) for rows in (1, 2, 3)]
    assert [each.mixed for each in found] == [None] * 3
    assert len({each.function for each in found}) == 1
    assert [each.numbered for each in found[1:]] == [numbered] * 2


@pytest.mark.parametrize(
    ("body", "output", "reason"),
    [
        # The box of another image.
        (
            "place = Gather <axis = 1> (selected, two) all = Reshape (b, flat) "
            "found = Gather <axis = 0> (all, place)",
            "float[r,4] found",
            "may select from other rows",
        ),
        (BY_HAND.replace("Add (start, box)", "Add (start, start)"), "float[r,4] found", "may p"),
        (
            "f = Cast <to = 1> (selected) y = Mul (f, f)",
            "float[r,3] y",
            "computes with the numbers",
        ),
        ("y = Cast <to = 9> (selected)", "bool[r,3] y", "converts the numbers"),
        ("f = Cast <to = 1> (selected) m = ReduceMax (f) y = Sub (f, m)", "float[r,3] y", "m"),
    ],
)
def test_boxes_that_depend_on_other_images_end_the_proof_with_a_reason(
    body: str, output: str, reason: str
):
    found = proof(detector(body, output), 3)
    assert found.function is None
    assert reason in str(found.mixed)
