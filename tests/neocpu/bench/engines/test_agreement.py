"""Outputs are compared, and a difference is named."""

import math

import numpy as np
import pytest

from neocpu.bench.engines.agreement import (
    MAX_RELATIVE_ERROR,
    QUANTISED_ERROR,
    mismatch,
    paired_rows,
    relative_error,
)


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ([[3.0, 4.0]], [[3.0, 4.0]], 0.0),
        ([[3.0, 4.5]], [[3.0, 4.0]], 0.1),
        ([[0.0, 0.5]], [[0.0, 0.0]], 0.5),
        ([[3.0]], [[3.0, 4.0]], math.inf),
        ([[math.nan, 4.0]], [[3.0, 4.0]], math.inf),
        ([[math.nan, 4.0]], [[math.nan, 4.0]], 0.0),
        ([[1.0], [2.0]], [[1.0]], math.inf),
        ([[1, 2]], [[1, 2]], 0.0),
        ([], [], 0.0),
    ],
)
def test_relative_error_is_norm_wise(output, reference, expected):
    arrays = ([np.array(a) for a in side] for side in (output, reference))
    assert relative_error(*arrays) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ([[3.0, 4.0]], [[9.0, 4.0]], ""),
        ([[[1.0], [2.0]]], [[[1.0]]], "boxes (2, 1) vs (1, 1)"),
        ([[1.0], [2.0, 3.0]], [[1.0], [2.0]], "output 1 (2,) vs (1,)"),
        ([[1.0], [2.0]], [[1.0]], "2 outputs vs 1"),
        ([[math.nan]], [[1.0]], "boxes holds NaN or infinity where only one of the two does"),
        ([[math.nan]], [[math.nan]], ""),
    ],
)
def test_outputs_that_cannot_be_compared_are_named(output, reference, expected):
    arrays = ([np.array(a) for a in side] for side in (output, reference))
    assert mismatch(*arrays, names=["boxes"]) == expected


def detections(scores):
    """Rows as detectors return them: boxes, labels and scores, of three classes."""
    scores = np.array(scores, np.float32)
    boxes = np.stack([scores, scores + 1, scores + 2, scores + 3], axis=1) * 100
    return [boxes, (np.arange(len(scores)) * 0).astype(np.int64), scores]


GROUPS = ((0, 1, 2),)


def paired_error(outputs, reference, groups):
    ours, theirs, missing = paired_rows(outputs, reference, groups)
    assert missing == 0
    return relative_error(ours, theirs)


def test_rows_that_change_places_are_the_same_detections():
    swapped = [array[[0, 2, 1, 3]] for array in detections([0.9, 0.5, 0.7, 0.2])]
    reference = detections([0.9, 0.5, 0.7, 0.2])
    assert relative_error(swapped, reference) > MAX_RELATIVE_ERROR
    assert paired_error(swapped, reference, GROUPS) == 0.0
    assert paired_error(swapped, reference, ()) > MAX_RELATIVE_ERROR


def test_a_row_too_many_is_forgiven_in_a_hundred_only():
    scores = np.linspace(0.1, 0.9, 200)
    few, many = detections(scores[:5]), detections(scores[:6])
    assert paired_error(many, few, GROUPS) == np.inf
    few, many = detections(scores[:-1]), detections(scores)
    assert paired_error(many, few, GROUPS) == 0.0


def test_different_detections_are_not_paired():
    reference, other = detections([0.9, 0.5]), detections([0.9, 0.4])
    assert paired_error(other, reference, GROUPS) > MAX_RELATIVE_ERROR


def test_detections_in_fewer_bits_are_close_and_a_few_differ():
    reference = detections(np.linspace(0.1, 0.9, 100))
    boxes, labels, scores = (array[3:].copy() for array in reference)
    boxes += 4
    labels[:7] = 5
    found = paired_rows([boxes, labels, scores], reference, GROUPS, QUANTISED_ERROR)
    ours, theirs, missing = found
    assert 0.01 < relative_error(ours, theirs) < 0.2
    assert missing == pytest.approx(0.1, abs=0.001)
    *_, missing = paired_rows([array[:30] for array in reference], reference, GROUPS, 0.5)
    assert missing > QUANTISED_ERROR
    narrow = [boxes[:, :3], labels, scores]
    ours, theirs, missing = paired_rows(narrow, reference, GROUPS, QUANTISED_ERROR)
    assert relative_error(ours, theirs) == np.inf
