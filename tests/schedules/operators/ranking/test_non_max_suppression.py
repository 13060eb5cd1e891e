"""NonMaxSuppression against ONNX Runtime and against a scalar loop, over awkward boxes."""

import re

import needs
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.schedules.operators.ranking.non_max_suppression import (
    NonMaxSuppressionWorkload,
    lower_non_max_suppression,
)
from tests.schedules.kernel_harness import FOREIGN, HOST, build, call, compile_for, unwritten


def run(workload, boxes, scores):
    """Return the rows that the kernel selects; only zeros may follow them."""
    kernel = build(lower_non_max_suppression(workload))
    outputs = [unwritten((workload.rows, 3), "int64"), unwritten((1,), "int64")]
    rows, (number,) = call(kernel, [boxes, scores], outputs)
    assert 0 <= number <= workload.rows
    assert not rows[number:].any()
    return rows[:number]


def run_onnxruntime(workload, boxes, scores):
    limits = {
        "most": np.array([workload.max_output], np.int64),
        "iou": np.array([workload.iou_threshold], np.float32),
    }
    if workload.score_threshold is not None:
        limits["score"] = np.array([workload.score_threshold], np.float32)
    node = helper.make_node(
        "NonMaxSuppression",
        ["boxes", "scores", *limits],
        ["selected"],
        center_point_box=int(workload.center_point_box),
    )
    graph = helper.make_graph(
        [node],
        "suppression",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, boxes.shape),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, scores.shape),
        ],
        [helper.make_tensor_value_info("selected", TensorProto.INT64, [None, 3])],
        [numpy_helper.from_array(array, name) for name, array in limits.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"boxes": boxes, "scores": scores})[0]


def naive(workload, boxes, scores):
    """Select by the definition, one pair of boxes at a time, in float32."""
    if workload.center_point_box:
        half = boxes[..., 2:] / 2
        low, high = boxes[..., :2] - half, boxes[..., :2] + half
    else:
        low = np.minimum(boxes[..., :2], boxes[..., 2:])
        high = np.maximum(boxes[..., :2], boxes[..., 2:])

    def overlap(image, a, b):
        shared = np.minimum(high[image, a], high[image, b]) - np.maximum(
            low[image, a], low[image, b]
        )
        if not (shared > 0).all():
            return np.float32(0)
        areas = [np.prod(high[image, i] - low[image, i]) for i in (a, b)]
        return np.prod(shared) / (areas[0] + areas[1] - np.prod(shared))

    rows = []
    for image, label in np.ndindex(*scores.shape[:2]):
        row = scores[image, label]
        least = -np.inf if workload.score_threshold is None else workload.score_threshold
        ranked = [i for i in np.argsort(-row, kind="stable") if row[i] > np.float32(least)]
        kept: list[int] = []
        for box in ranked:
            if len(kept) == workload.max_output:
                break
            if all(
                not overlap(image, box, other) > np.float32(workload.iou_threshold)
                for other in kept
            ):
                kept.append(box)
        rows += [(image, label, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def drawn(workload, seed=0, grid=0):
    """Random boxes and scores; on a coarse grid, coordinates and scores tie."""
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0, 1, (workload.batch, workload.boxes, 4))
    if workload.center_point_box:
        boxes[..., 2:] *= 0.4
    scores = rng.uniform(0, 1, (workload.batch, workload.classes, workload.boxes))
    if grid:
        boxes, scores = np.round(boxes * grid) / grid, np.round(scores * grid) / grid
    return boxes.astype(np.float32), scores.astype(np.float32)


def check(workload, boxes, scores):
    """Check that all three implementations agree, and return the selection."""
    selected = run(workload, boxes, scores)
    np.testing.assert_array_equal(selected, run_onnxruntime(workload, boxes, scores))
    np.testing.assert_array_equal(selected, naive(workload, boxes, scores))
    return selected


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "sizes",  # batch, classes, boxes, max_output
    [(1, 1, 1, 1), (1, 1, 17, 100), (3, 4, 50, 10), (2, 21, 64, 3), (1, 2, 300, 1 << 40)],
)
@pytest.mark.parametrize("grid", [0, 10])
@needs.one_in(3)
def test_random_boxes_match_the_reference(sizes, center, grid):
    batch, classes, boxes, most = sizes
    workload = NonMaxSuppressionWorkload(
        batch=batch,
        classes=classes,
        boxes=boxes,
        max_output=most,
        iou_threshold=0.45,
        score_threshold=0.3,
        center_point_box=center,
    )
    assert len(check(workload, *drawn(workload, grid=grid))) > 0


def test_many_boxes_in_parallel():
    workload = NonMaxSuppressionWorkload(
        batch=2, classes=5, boxes=2000, max_output=40, iou_threshold=0.5, score_threshold=0.05
    )
    boxes, scores = drawn(workload)
    selected = run(workload, boxes, scores)
    assert len(selected) == workload.rows == 400
    np.testing.assert_array_equal(selected, run_onnxruntime(workload, boxes, scores))


def test_nothing_above_the_threshold():
    workload = NonMaxSuppressionWorkload(
        batch=2, classes=3, boxes=40, max_output=10, iou_threshold=0.5, score_threshold=1.0
    )
    assert len(check(workload, *drawn(workload))) == 0


def test_the_score_threshold_is_exclusive():
    workload = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=3, max_output=10, iou_threshold=0.5, score_threshold=0.5
    )
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], np.float32)
    scores = np.array([[[0.5, np.nextafter(np.float32(0.5), 1, dtype=np.float32), 0.4]]])
    assert check(workload, boxes, scores.astype(np.float32)).tolist() == [[0, 0, 1]]


def test_without_a_score_threshold_all_scores_count():
    workload = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=4, max_output=10, iou_threshold=0.5
    )
    boxes = np.array([[[i, i, i + 1, i + 1] for i in range(4)]], np.float32)
    scores = np.array([[[-1.0, 0.0, -7.5, 3.0]]], np.float32)
    assert check(workload, boxes, scores)[:, 2].tolist() == [3, 1, 0, 2]


def test_one_box_suppresses_all_others():
    workload = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=100, max_output=50, iou_threshold=0.5, score_threshold=0.0
    )
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 100, 1))
    scores = np.linspace(0.1, 0.9, 100, dtype=np.float32)[None, None]
    assert check(workload, boxes, scores).tolist() == [[0, 0, 99]]


def test_equal_scores_go_by_index_and_the_sign_of_zero_does_not_matter():
    workload = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=40, max_output=40, iou_threshold=0.5
    )
    boxes = np.array([[[i, 0, i + 1, 1] for i in range(40)]], np.float32)
    scores = np.where(np.arange(40) % 2, np.float32(0.0), np.float32(-0.0))[None, None]
    assert check(workload, boxes, scores)[:, 2].tolist() == list(range(40))


def test_the_overlap_threshold_is_exclusive():
    """Two unit squares share exactly a third of their union."""
    boxes = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5]]], np.float32)
    scores = np.array([[[0.9, 0.8]]], np.float32)
    third = np.float32(0.5) / np.float32(1.5)
    below = np.nextafter(third, np.float32(0), dtype=np.float32)
    for threshold, kept in ((float(third), 2), (float(below), 1)):
        workload = NonMaxSuppressionWorkload(
            batch=1, classes=1, boxes=2, max_output=10, iou_threshold=threshold, score_threshold=0.0
        )
        assert len(check(workload, boxes, scores)) == kept


def test_flipped_corners_and_boxes_without_extent():
    workload = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=6, max_output=10, iou_threshold=0.5, score_threshold=0.0
    )
    boxes = np.array(
        [[[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [0.5, 0.5, 0.5, 0.5], [0, 0, 0, 1],
          [0.5, 0.5, 0.5, 0.5]]],
        np.float32,
    )  # fmt: skip
    scores = np.linspace(0.9, 0.4, 6, dtype=np.float32)[None, None]
    assert check(workload, boxes, scores)[:, 2].tolist() == [0, 3, 4, 5]


def test_negative_sizes_of_centred_boxes_overlap_nothing():
    workload = NonMaxSuppressionWorkload(
        batch=1,
        classes=1,
        boxes=3,
        max_output=10,
        iou_threshold=0.1,
        score_threshold=0.0,
        center_point_box=True,
    )
    boxes = np.array([[[0, 0, 2, 2], [0, 0, -2, 2], [0, 0, -2, -2]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    assert check(workload, boxes, scores)[:, 2].tolist() == [0, 1, 2]


@pytest.mark.parametrize("most", [0, 1])
def test_few_boxes_per_class(most):
    workload = NonMaxSuppressionWorkload(
        batch=2, classes=3, boxes=20, max_output=most, iou_threshold=0.5, score_threshold=0.1
    )
    selected = check(workload, *drawn(workload))
    assert len(selected) == 6 * most
    assert workload.rows == max(1, 6 * most)


def test_scores_that_are_no_numbers_are_never_selected():
    boxes = np.array([[[i, i, i + 1, i + 1] for i in range(5)]], np.float32)
    scores = np.array([[[np.nan, 0.5, -np.nan, np.inf, -np.inf]]], np.float32)
    with_threshold = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=5, max_output=5, iou_threshold=0.5, score_threshold=0.1
    )
    assert check(with_threshold, boxes, scores)[:, 2].tolist() == [3, 1]
    without = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=5, max_output=5, iou_threshold=0.5
    )
    assert run(without, boxes, scores)[:, 2].tolist() == [3, 1, 4]


def test_coordinates_that_are_no_numbers_suppress_nothing():
    workload = NonMaxSuppressionWorkload(
        batch=1, classes=1, boxes=6, max_output=6, iou_threshold=0.3, score_threshold=0.0
    )
    rng = np.random.default_rng(0)
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 6, 1))
    for box, coordinate in ((1, 0), (2, 3), (4, 2)):
        boxes[0, box, coordinate] = np.nan
    boxes[0, 5, 2] = np.inf
    scores = rng.uniform(0.1, 1, (1, 1, 6)).astype(np.float32)
    np.testing.assert_array_equal(
        run(workload, boxes, scores), run_onnxruntime(workload, boxes, scores)
    )


def test_overlaps_within_rounding_of_the_threshold():
    """Every single rounding decides which side of the threshold they are on."""
    workload = NonMaxSuppressionWorkload(
        batch=4, classes=1, boxes=400, max_output=400, iou_threshold=0.5, score_threshold=0.0
    )
    rng = np.random.default_rng(3)
    centres = rng.uniform(0, 20, (4, 200, 2))
    size = rng.uniform(0.5, 2, (4, 200, 2))
    first = np.concatenate([centres, centres + size], -1)
    # Moved by a third of its height, a box shares half of the union with where it was.
    second = first + np.array([1, 0, 1, 0]) * size[..., :1] / 3
    boxes = np.concatenate([first, second], 1).astype(np.float32)
    scores = rng.uniform(0.1, 1, (4, 1, 400)).astype(np.float32)
    selected = check(workload, boxes, scores)
    assert 0 < len(selected) < workload.rows


@pytest.mark.parametrize("target", [*FOREIGN, HOST], ids=str)
@pytest.mark.parametrize("center", [False, True])
def test_no_machine_contracts_products_and_sums(target, center):
    workload = NonMaxSuppressionWorkload(
        batch=1,
        classes=2,
        boxes=50,
        max_output=10,
        iou_threshold=0.5,
        score_threshold=0.1,
        center_point_box=center,
    )
    assembly = compile_for(lower_non_max_suppression(workload), target)
    assert not re.search(r"\b(vfn?m\w+|fn?ml[as]\w*|fn?m(add|sub))\b", assembly)
