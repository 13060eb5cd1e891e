"""NonMaxSuppression against ONNX Runtime and against a scalar loop, over awkward boxes."""

import re

import needs
import numpy as np
import onnxruntime
import pytest
from text_models import text_model

from neocpu.schedules.operators.ranking.non_max_suppression import lower_non_max_suppression
from tests.conv_workloads import suppression
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
    limits = {"most": np.array([workload.max_output])}
    limits["iou"] = np.array([workload.iou_threshold], np.float32)
    if workload.score_threshold is not None:
        limits["score"] = np.array([workload.score_threshold], np.float32)
    given = (
        f"float{[*each.shape]} {name}" for each, name in ((boxes, "boxes"), (scores, "scores"))
    )
    center = f"center_point_box = {int(workload.center_point_box)}"
    names = ", ".join(("boxes", "scores", *limits))
    model = text_model(
        f"""suppression ({", ".join(given)}) => (int64[n, 3] selected) {{
            selected = NonMaxSuppression <{center}> ({names})
        }}""",
        limits,
        opset=11,
    )
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
    "sizes",  # batch, classes, boxes, most
    [(1, 1, 1, 1), (1, 1, 17, 100), (3, 4, 50, 10), (2, 21, 64, 3), (1, 2, 300, 1 << 40)],
)
@pytest.mark.parametrize("grid", [0, 10])
@needs.one_in(3)
def test_random_boxes_match_the_reference(sizes, center, grid):
    workload = suppression(*sizes, 0.45, score_threshold=0.3, center_point_box=center)
    assert len(check(workload, *drawn(workload, grid=grid))) > 0


def test_many_boxes_in_parallel():
    workload = suppression(2, 5, 2000, 40, score_threshold=0.05)
    boxes, scores = drawn(workload)
    selected = run(workload, boxes, scores)
    assert len(selected) == workload.rows == 400
    np.testing.assert_array_equal(selected, run_onnxruntime(workload, boxes, scores))


@pytest.mark.parametrize(("most", "least"), [(10, 1.0), (0, 0.1), (1, 0.1)])
def test_few_or_no_boxes_per_class(most, least):
    workload = suppression(2, 3, 20, most, score_threshold=least)
    selected = check(workload, *drawn(workload))
    assert len(selected) == (0 if least == 1.0 else 6 * most)
    assert workload.rows == max(1, 6 * most)


def disjoint(count):
    return [[i, i, i + 1, i + 1] for i in range(count)]


SHARED = [[0, 0, 1, 1], [0, 0.5, 1, 1.5]]
THIRD = np.float32(0.5) / np.float32(1.5)
FLIPPED = [[1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0], [0.5] * 4, [0, 0, 0, 1], [0.5] * 4]
#: Boxes, scores, both thresholds, and the boxes that are selected.
BY_HAND = {
    "the score threshold is exclusive": (
        *(disjoint(3), [0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.4], 0.5, 0.5, [1]),
    ),
    "without a threshold all scores count": (
        *(disjoint(4), [-1.0, 0.0, -7.5, 3.0], 0.5, None, [3, 1, 0, 2]),
    ),
    "one box suppresses all others": (
        *([[0, 0, 1, 1]] * 100, np.linspace(0.1, 0.9, 100), 0.5, 0.0, [99]),
    ),
    "equal scores go by index, and zeros have no sign": (
        *(disjoint(40), np.where(np.arange(40) % 2, 0.0, -0.0), 0.5, None, [*range(40)]),
    ),
    "a third of the union is the threshold": (SHARED, [0.9, 0.8], float(THIRD), 0.0, [0, 1]),
    "a third of the union is above the threshold": (
        *(SHARED, [0.9, 0.8], float(np.nextafter(THIRD, np.float32(0))), 0.0, [0]),
    ),
    "flipped corners and boxes without extent": (
        *(FLIPPED, np.linspace(0.9, 0.4, 6), 0.5, 0.0, [0, 3, 4, 5]),
    ),
    "scores that are no numbers": (
        *(disjoint(5), [np.nan, 0.5, -np.nan, np.inf, -np.inf], 0.5, 0.1, [3, 1]),
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_selections_by_hand(case):
    boxes, scores, iou, least, expected = BY_HAND[case]
    workload = suppression(1, 1, len(boxes), len(boxes), iou, score_threshold=least)
    given = (np.array(each, np.float32) for each in ([boxes], [[scores]]))
    assert check(workload, *given)[:, 2].tolist() == expected


def test_scores_that_are_no_numbers_are_never_selected_without_a_threshold():
    scores = np.array([[[np.nan, 0.5, np.inf, -np.inf]]], np.float32)
    found = run(suppression(1, 1, 4, 4), np.array([disjoint(4)], np.float32), scores)
    assert found[:, 2].tolist() == [2, 1, 3]


def test_negative_sizes_of_centred_boxes_overlap_nothing():
    workload = suppression(1, 1, 3, 10, 0.1, score_threshold=0.0, center_point_box=True)
    boxes = np.array([[[0, 0, 2, 2], [0, 0, -2, 2], [0, 0, -2, -2]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    assert check(workload, boxes, scores)[:, 2].tolist() == [0, 1, 2]


def test_coordinates_that_are_no_numbers_suppress_nothing():
    workload = suppression(1, 1, 6, 6, 0.3, score_threshold=0.0)
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 6, 1))
    for box, coordinate in ((1, 0), (2, 3), (4, 2)):
        boxes[0, box, coordinate] = np.nan
    boxes[0, 5, 2] = np.inf
    scores = np.random.default_rng(0).uniform(0.1, 1, (1, 1, 6)).astype(np.float32)
    np.testing.assert_array_equal(
        run(workload, boxes, scores), run_onnxruntime(workload, boxes, scores)
    )


def test_overlaps_within_rounding_of_the_threshold():
    """Every single rounding decides which side of the threshold they are on."""
    workload = suppression(4, 1, 400, 400, score_threshold=0.0)
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
    workload = suppression(1, 2, 50, 10, score_threshold=0.1, center_point_box=center)
    assembly = compile_for(lower_non_max_suppression(workload), target)
    assert not re.search(r"\b(vfn?m\w+|fn?ml[as]\w*|fn?m(add|sub))\b", assembly)
