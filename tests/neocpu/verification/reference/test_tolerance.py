"""The bound on each element: it finds one wrong element, grows with the tensor, and forgives
rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neocpu.verification.reference.comparison import compare
from neocpu.verification.reference.tolerance import FEWEST, RELATIVE, UNDERFLOW, tolerances, within

Array = np.ndarray
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
WRONG = 0.01
"""The smallest planted error, relative to an element's own value and to its scale."""


def scale(values: Array) -> Array:
    """Return each element's scale by its definition, slice after slice."""
    found = np.full(values.shape, np.sqrt(np.mean(values**2)))
    for axis, extent in enumerate(values.shape):
        for index in range(extent):
            where = (*[slice(None)] * axis, index)
            each = values[where]
            if extent > 1 and each.size >= FEWEST:
                found[where] = np.minimum(found[where], np.sqrt(np.mean(each**2)))
    return found


def softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def boxes(rng: np.random.Generator) -> Array:
    """Return a detector's output: 300 boxes in pixels, above the scores of 16 classes."""
    return np.concatenate(
        [rng.uniform(0, 640, (1, 4, 300)), rng.uniform(0, 1, (1, 16, 300)) ** 4], axis=1
    )


def outlier(rng: np.random.Generator) -> Array:
    values = rng.standard_normal((1, 8, 20, 20))
    values[0, 3, 5, 7] = 1e5
    return values


TENSORS: dict[str, Callable[[np.random.Generator], Array]] = {
    "logits": lambda rng: 700 * rng.standard_normal((1, 1000)),
    "batch": lambda rng: rng.standard_normal((32, 10)),
    "few": lambda rng: rng.standard_normal((1, 3)),
    "rectified": lambda rng: np.maximum(rng.standard_normal((1, 16, 14, 14)), 0),
    "softmax": lambda rng: softmax(20 * rng.standard_normal((1, 1000))),
    "segmentation": lambda rng: softmax(5 * rng.standard_normal((1, 24, 24, 21))),
    "channels": lambda rng: (
        rng.standard_normal((1, 16, 14, 14)) * 10.0 ** np.arange(-8, 8).reshape(-1, 1, 1)
    ),
    "boxes": boxes,
    "outlier": outlier,
    "offset": lambda rng: 100 + rng.standard_normal((1, 8, 9, 9)),
}

tensors = st.builds(
    lambda name, seed, power: TENSORS[name](np.random.default_rng(seed)) * 10.0**power,
    st.sampled_from(sorted(TENSORS)),
    st.integers(0, 2**32 - 1),
    st.floats(-4, 4),
)


def rounded(values: Array, seed: int) -> Array:
    """Return values with the error of float32 sums of about a hundred products."""
    noise = np.random.default_rng(seed).standard_normal(values.shape)
    return (values + 2e-6 * noise * (np.abs(values) + scale(values))).astype(np.float32)


def accepts(actual: Array, expected: Array) -> bool:
    return compare({"y": actual}, {"y": expected}).ok


@UNTIMED
@given(tensors, st.integers(0, 2**32 - 1))
def test_rounding_is_accepted(values, seed):
    assert accepts(rounded(values, seed), values)


@UNTIMED
@given(tensors, st.floats(-4, 4))
def test_the_bound_grows_with_the_tensor(values, power):
    factor = 10.0**power
    before, after = (tolerances(each) - UNDERFLOW for each in (values, values * factor))
    np.testing.assert_allclose(after, before * factor, rtol=1e-9)


@UNTIMED
@given(tensors)
def test_a_scale_is_the_smallest_root_mean_square_around_an_element(values):
    expected = RELATIVE * (np.abs(values) + scale(values)) + UNDERFLOW
    np.testing.assert_allclose(tolerances(values), expected, rtol=1e-12)


@UNTIMED
@given(
    tensors,
    st.integers(0, 2**32 - 1),
    st.sampled_from(["zero", "negative", "neighbour", "own", "scale"]),
)
def test_one_planted_error_is_found(values, seed, kind):
    rng = np.random.default_rng(seed)
    actual = rounded(values, seed)
    place = tuple(rng.integers(0, extent) for extent in values.shape)
    near = (*place[:-1], (place[-1] + 1) % values.shape[-1])
    size = max(abs(values[place]), scale(values)[place])
    wrong = {
        "zero": 0.0,
        "negative": -values[place],
        "neighbour": values[near],
        "own": values[place] * (1 + WRONG),
        "scale": values[place] + 1.01 * WRONG * scale(values)[place],
    }[kind]
    actual[place] = wrong
    if abs(wrong - values[place]) >= WRONG * size:
        assert not accepts(actual, values)


@pytest.mark.parametrize("shape", [(1, 64, 125, 125), (1000, 1000), (1_000_000,)])
def test_one_wrong_element_in_a_million_is_found(shape):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape)
    actual = (values * (1 + 1e-6 * rng.standard_normal(shape))).astype(np.float32)
    assert accepts(actual, values)
    for place in rng.integers(0, 1_000_000, 5):
        planted = actual.copy()
        planted.flat[place] += WRONG * max(abs(values.flat[place]), 1)
        assert not accepts(planted, values)


def test_a_wrong_score_beside_boxes_in_pixels_is_found():
    values = boxes(np.random.default_rng(0))
    for tensor in (values, values.transpose(0, 2, 1)):
        actual = tensor.astype(np.float32)
        score = (0, 9, 200) if tensor is values else (0, 200, 9)
        actual[score] += 0.01
        assert not accepts(actual, tensor)


def test_an_outlier_hides_nothing_elsewhere():
    values = outlier(np.random.default_rng(0))
    actual = values.astype(np.float32)
    actual[0, 3, 5, 8] += 0.05  # beside it, in its row and channel
    assert not accepts(actual, values)


def evaluate(chain: list[str], values: Array, parts: int) -> Array:
    """Run random layers in the dtype of ``values``; sums have a number of parts."""
    rng = np.random.default_rng(1)
    for layer in ["dense", *chain]:
        width = values.shape[1]
        weights = rng.standard_normal((width, 16 if layer == "narrow" else 64)).astype(np.float32)
        if layer == "relu":
            values = np.maximum(values, 0)
        elif layer == "shift":
            values = values - values[:, :1]
        elif layer == "softmax":
            values = softmax(values)
        else:
            values = sum(values[:, part::parts] @ weights[part::parts] for part in range(parts))
    return values


@UNTIMED
@given(
    st.lists(st.sampled_from(["dense", "relu", "shift", "softmax", "narrow"]), max_size=6),
    st.integers(0, 2**32 - 1),
    st.floats(-4, 4),
)
def test_random_layers_in_another_order_of_sums_are_accepted(chain, seed, power):
    x = np.random.default_rng(seed).standard_normal((8, 64)) * 10.0**power
    x = x.astype(np.float32)
    truth = evaluate(chain, x.astype(np.float64), 1)
    runs = [{"y": evaluate(chain, each, 1)} for each in (x, np.nextafter(x, np.float32(9e9)))]
    found = compare({"y": evaluate(chain, x, 4)}, {"y": truth}, rounded=runs)
    assert found.ok


def test_elements_cut_off_by_relu_have_the_tolerance_of_float32():
    """One channel has a single pixel of a thousand that is slightly positive."""
    rng = np.random.default_rng(0)
    before = rng.standard_normal((1, 8, 32, 32))
    before[0, 5] -= 10
    before[0, 5, 3, 3] = 1e-4
    noise = 1e-6 * rng.standard_normal((2, *before.shape))
    values, actual, single = (np.maximum(before + each, 0) for each in (0, *noise))
    assert not accepts(actual, values)
    found = compare({"y": actual}, {"y": values}, rounded=[{"y": single}])
    assert found.ok
    actual[0, 2, 3, 3] += 0.01
    assert not compare({"y": actual}, {"y": values}, rounded=[{"y": single}]).ok


def test_integers_may_be_rounded_as_by_float32():
    values, actual = np.array([3, 7, 9]), np.array([3, 8, 9])
    assert not accepts(actual, values)
    assert compare({"y": actual}, {"y": values}, rounded=[{"y": np.array([3, 8, 9])}]).ok
    assert not compare({"y": actual}, {"y": values}, rounded=[{"y": np.array([4, 7, 9])}]).ok


def test_elements_that_overflow_float32_are_not_compared():
    values, single = np.arange(1.0, 5), np.array([1, np.inf, np.nan, 4])
    runs = [{"y": single}]
    for actual in (single, np.array([1, np.nan, 3e38, 4]), values):
        found = compare({"y": actual}, {"y": values}, rounded=runs)
        assert (found.ok, found.norm_error) == (True, 0)
    for actual in ([np.inf, 2, 3, 4], [1, np.inf, np.nan, 5], [1, 2.5, np.nan, 4]):
        actual = np.array(actual)
        assert not compare({"y": actual}, {"y": values}, rounded=runs).ok


def test_elements_that_overflow_float64_may_equal_float32():
    values, runs = np.array([1.0, np.inf, 3.0]), [{"y": np.array([1.0, 2.0, 3.0])}]
    assert not accepts(runs[0]["y"], values)
    assert compare(runs[0], {"y": values}, rounded=runs).ok
    assert not compare({"y": np.array([1.0, 2.5, 3.0])}, {"y": values}, rounded=runs).ok


def test_values_that_float32_loses_are_no_difference():
    tiny = float(np.finfo(np.float32).tiny)
    values = tiny * np.array([0.1, 50.0, 1e6])
    assert accepts(np.array([0.0, 50 * tiny, 1e6 * tiny]), values)
    found = compare({"y": np.array([0.0, 0.0, 1e6 * tiny])}, {"y": values})
    assert (found.ok, found.norm_error) == (True, 0)
    assert not accepts(np.array([0.0, 0.0, 0.0]), values)


def test_nothing_finite_is_within_of_an_infinity():
    expected = np.array([np.inf, -np.inf, np.nan, 1.0])
    bound = tolerances(expected)
    assert (bound[:3] == 0).all()
    np.testing.assert_array_equal(within(expected, expected, bound), [True] * 4)
    other = np.array([1e300, np.inf, 0.0, np.nan])
    np.testing.assert_array_equal(within(other, expected, bound), [False] * 4)
