"""Selections of two implementations are compared, though rounding may reorder or drop rows."""

from __future__ import annotations

import needs
import numpy as np
import pytest

from neocpu.verification.reference.comparison import Comparison, compare

GROUP = (("boxes", "labels"),)


def detections(count: int = 200) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "boxes": rng.uniform(0, 100, (count, 4)).astype(np.float32),
        "labels": rng.integers(0, 5, count),
        "features": np.ones(3, np.float32),
    }


def rows(outputs: dict[str, np.ndarray], index: np.ndarray) -> dict[str, np.ndarray]:
    """Return the outputs with the rows of ``index``."""
    return {**outputs, **{name: outputs[name][index] for name in GROUP[0]}}


def found(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> Comparison:
    return compare(actual, expected, row_groups=GROUP)


def test_equal_rows_in_order_move_nothing():
    expected = detections()
    actual = {**expected, "boxes": expected["boxes"] * np.float32(1 + 1e-5)}
    result = found(actual, expected)
    assert result.ok
    assert (result.moved_rows, result.unmatched_rows) == (0, 0)
    assert 0 < result.max_abs_error < 0.002


def test_rows_in_another_order_are_found_and_counted():
    expected = detections()
    order = np.arange(200)
    order[[10, 11, 50]] = order[[50, 10, 11]]
    result = found(rows(expected, order), expected)
    assert result.ok
    assert (result.moved_rows, result.unmatched_rows) == (3, 0)
    assert result.max_abs_error == 0
    assert not compare(rows(expected, order), expected).ok


@pytest.mark.parametrize(("missing", "ok"), [(2, True), (3, False)])
def test_one_row_in_a_hundred_may_be_missing(missing, ok):
    expected = detections()
    actual = rows(expected, np.arange(missing, 200))
    assert found(actual, expected).ok is ok
    assert found(expected, actual).ok is ok
    if ok:
        assert found(actual, expected).unmatched_rows == missing
    else:
        assert found(actual, expected).max_abs_error == np.inf


def test_a_row_missing_of_few_is_wrong():
    expected = detections(20)
    assert not found(rows(expected, np.arange(1, 20)), expected).ok


def test_rows_are_matched_across_all_outputs_at_once():
    """Each output has the right values, but the labels belong to other boxes."""
    expected = detections()
    actual = {**expected, "labels": np.roll(expected["labels"], 1)}
    assert sorted(actual["labels"]) == sorted(expected["labels"])
    result = found(actual, expected)
    assert not result.ok
    assert result.worst_output in expected


@pytest.mark.parametrize("labels", [False, True])
@needs.one_in(2)
def test_many_rows_all_moved_by_one_at_the_front(labels):
    """The partner of every row is the first that is left; one row has none."""
    expected = detections(50_000)
    if not labels:
        expected["labels"] = np.zeros((50_000, 1), np.float32)
    first = np.full((1, 4), -1e3, np.float32)
    actual = {
        **expected,
        "boxes": np.concatenate([first, expected["boxes"]]),
        "labels": np.concatenate([expected["labels"][:1], expected["labels"]]),
    }
    result = found(actual, expected) if labels else found(expected, actual)
    assert result.ok
    assert (result.moved_rows, result.unmatched_rows) == (50_000, 1)


def test_many_rows_without_any_partner():
    expected = detections(50_000)
    actual = {**expected, "boxes": expected["boxes"] + 1e3}
    assert not found(actual, expected).ok


def test_a_row_has_one_partner():
    expected = detections(300)
    actual = rows(expected, np.repeat(np.arange(150), 2))
    assert not found(actual, expected).ok


def test_outputs_without_rows_are_compared_elementwise():
    expected = detections()
    actual = {**rows(expected, np.arange(200)[::-1]), "features": np.zeros(3, np.float32)}
    result = found(actual, expected)
    assert not result.ok
    assert result.worst_output == "features"
    assert result.moved_rows == 200


def test_no_rows_on_either_side():
    nothing = rows(detections(), np.arange(0))
    assert found(nothing, nothing).ok
    assert not found(detections(), nothing).ok
    assert not found(nothing, detections()).ok


def test_rows_with_nan_are_matched():
    expected = detections()
    expected["boxes"][3, 2] = np.nan
    result = found(rows(expected, np.arange(200)[::-1]), expected)
    assert result.ok
    assert result.moved_rows == 200


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", ["boxes", "labels"])
def test_a_row_with_one_wrong_number_is_wrong(name, swapped):
    """Few rows lack a partner, but this one is the same detection with a wrong number."""
    expected = detections()
    actual = rows(expected, np.arange(200)[::-1] if swapped else np.arange(200))
    actual[name] = actual[name].copy()
    actual[name].reshape(200, -1)[77, -1] += 3
    assert not found(actual, expected).ok


def test_a_replaced_row_may_be_due_to_rounding():
    expected = detections()
    actual = rows(expected, np.arange(200))
    actual["boxes"] = actual["boxes"].copy()
    actual["boxes"][77] += 1.5
    assert found(actual, expected).unmatched_rows == 1


def test_unmatched_rows_have_an_infinite_error():
    expected, other, fewer = (rows(detections(), np.arange(*r)) for r in ((100,), (50, 150), (90,)))
    for actual in (other, fewer):
        result = found(actual, expected)
        assert (result.ok, result.norm_error) == (False, np.inf)


def test_any_rows_may_be_selected_if_float32_selects_others():
    expected, other, third = (rows(detections(), np.arange(n, n + 100)) for n in (0, 50, 90))
    near = {**expected, "boxes": expected["boxes"] * np.float32(1 + 1e-6)}
    for runs in ([], [near]):
        assert not compare(third, expected, rounded=runs, row_groups=GROUP).ok
    result = compare(third, expected, rounded=[near, other], row_groups=GROUP)
    assert (result.ok, result.norm_error) == (True, np.inf)
    wrong = {**third, "features": np.zeros(3, np.float32)}
    assert not compare(wrong, expected, rounded=[near, other], row_groups=GROUP).ok
