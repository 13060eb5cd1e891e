"""Boxes of YOLO's heads against suppression in plain loops."""

import numpy as np
import pytest
from differential import make_model

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.processing.answers import find_head
from neocpu.frontend.processing.load_processed import load_processed
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from tests.text_models import nodes_of

SIDE, CLASSES = 96, 5
SCORE, OVERLAP = 0.25, 0.45


def head(is_v8, boxes=189):
    """Return a head's output: centres, sizes and scores."""
    rng = np.random.default_rng(1)
    places = np.concatenate(
        [rng.uniform(0, SIDE, (boxes, 2)), rng.uniform(8, 60, (boxes, 2))], axis=1
    )
    scores = rng.uniform(0, 1, (boxes, CLASSES)) ** 3
    if is_v8:
        return np.concatenate([places, scores], axis=1).T[None].astype(np.float32)
    certain = rng.uniform(0.3, 1, (boxes, 1))
    return np.concatenate([places, certain, scores], axis=1)[None].astype(np.float32)


def detector(made):
    """A model that returns ``made``, whatever its picture."""
    nodes = nodes_of(
        "mean = ReduceMean<keepdims = 0>(images) zero = Mul(mean, nothing) "
        "output0 = Add(made, zero)"
    )
    images = np.zeros((1, 3, SIDE, SIDE), np.float32)
    constants = {"made": made, "nothing": np.zeros((), np.float32)}
    return make_model(nodes, {"images": images}, constants, ["output0"])


def intersection_over_union(a, b):
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.prod(np.clip(high - low, 0, None))
    return shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def suppressed(made, is_v8):
    """Return the remaining boxes, scores and classes, by class and falling score."""
    rows = made[0].T if is_v8 else made[0]
    scores = rows[:, 4:] if is_v8 else rows[:, 5:] * rows[:, 4:5]
    corners = np.concatenate(
        [rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1
    )
    kept = []
    for label in range(CLASSES):
        best = np.flatnonzero((scores.argmax(axis=1) == label) & (scores.max(axis=1) > SCORE))
        mine: list[int] = []
        for box in best[np.argsort(-scores[best, label])]:
            overlaps = (intersection_over_union(corners[box], corners[one]) for one in mine)
            if all(each <= OVERLAP for each in overlaps):
                mine.append(box)
        kept += [(box, label) for box in mine]
    places, labels = np.array(kept).T
    return corners[places], scores[places, labels], labels


@pytest.mark.parametrize("is_v8", [True, False], ids=["v8", "v5"])
def test_boxes_are_of_the_picture(is_v8):
    made = head(is_v8)
    asked = Processing.parse(
        input="images=48x64", resize=f"{SIDE}x{SIDE}:letterbox", nms=f"yolo:{SCORE}:{OVERLAP}"
    )
    boxes, scores, classes = suppressed(made, is_v8)
    assert 20 < len(boxes) < 150
    with neocpu.compile(detector(made), processing=asked) as compiled:
        (_, note) = compiled.plan.processing
        assert f"189 boxes of {CLASSES} classes" in note
        with compiled.module() as module:
            found = module.run({"images": np.zeros((1, 48, 64, 3), np.uint8)})
    assert list(found) == ["boxes", "scores", "classes"]
    np.testing.assert_array_equal(found["classes"], classes)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-6)
    # 48x64 become 72x96, 12 below the top.
    moved = (boxes - [0, 12, 0, 12]) * (64 / SIDE)
    np.testing.assert_allclose(found["boxes"], np.clip(moved, 0, [64, 48, 64, 48]), atol=1e-4)


def test_boxes_have_coordinates_of_the_models_input_without_pictures():
    made = head(is_v8=True)
    asked = Processing.parse(nms=f"yolo:{SCORE}:{OVERLAP}")
    with neocpu.compile(detector(made), processing=asked) as compiled, compiled.module() as module:
        found = module.run({"images": np.zeros((1, 3, SIDE, SIDE), np.float32)})
    np.testing.assert_allclose(found["boxes"], suppressed(made, is_v8=True)[0], atol=1e-4)


def spec(*shape, name="y", dtype="float32"):
    return TensorSpec(name, dtype, shape)


def test_detector_heads_are_recognised_by_their_shape():
    found = find_head([spec(1, 84, 8400)], (640, 640))
    assert (found.is_v8, found.classes, found.boxes) == (True, 80, 8400)
    assert "YOLOv8" in str(found)
    found = find_head([spec(1, 25200, 6), spec(1, 3, 80, 80, 6, name="raw")], (640, 640))
    assert (found.is_v8, found.classes, found.boxes) == (False, 1, 25200)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([spec(1, 1000)], "no output is"),
        ([spec(1, 300, 6)], "no output is"),  # boxes that YOLOv10 suppressed itself
        ([spec(1, 300, 84)], "no output is"),  # a transformer's queries
        ([spec(8, 84, 8400)], "no output is"),
        ([spec(1, 84, 84)], "no output is"),
        ([spec(1, 84, 8400, dtype="int32")], "no output is"),
        ([spec(1, 84, 8400), spec(1, 84, 8400, name="z")], "more than one output"),
        ([spec(1, 116, 8400), spec(1, 32, 160, 160, name="z")], "a head with masks"),
    ],
)
def test_outputs_that_are_no_heads_are_refused(outputs, message):
    with pytest.raises(UsageError, match=message):
        find_head(outputs, (640, 640))


def test_two_postprocessing_steps_for_one_output_are_refused():
    asked = Processing.parse(nms="yolo:0.1:0.5", outputs={"output0": "softmax"})
    with pytest.raises(UsageError, match="can have nms= or outputs=, not both"):
        load_processed(detector(head(is_v8=True)), NO_SHAPES, asked)
