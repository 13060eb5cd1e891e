"""The vectorised functions against float64 references over their whole range."""

import math

import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, compile_for, run
from tvm import te, tirx

from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.tir.vector_math import vectorize_calls

REFERENCES = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
}


def unary(name, size):
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x, te.compute((size,), lambda i: getattr(tirx, name)(x[i]))])


@pytest.mark.parametrize("name", REFERENCES)
def test_matches_float64(name):
    x = np.concatenate([np.linspace(-87, 88, 4001), np.linspace(-4, 4, 4001), [0.0, 1e-8, -1e-8]])
    x = x.astype(np.float32)
    got = run(schedule_function(unary(name, x.size), HOST), [x], x.shape)
    expected = REFERENCES[name](x.astype(np.float64))
    bound = 3e-7 if name == "erf" else 1e-6
    np.testing.assert_allclose(got, expected, rtol=bound, atol=bound)


def test_exp_is_accurate_relative_to_its_size():
    x = np.linspace(-86.9, 88, 20001).astype(np.float32)
    got = run(vectorize_calls(unary("exp", x.size)), [x], x.shape)
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=5e-7)


@pytest.mark.parametrize("name", ["atan", "asin", "acos"])
def test_arc_functions_match_float64(name):
    inner = np.linspace(-1, 1, 4001)
    x = inner if name != "atan" else np.concatenate([inner, np.linspace(-50, 50, 4001), [1e30]])
    x = np.concatenate([x, [0.5, -0.5, 1e-8, -1e-8, 0.0, -0.0, np.inf, -np.inf, 1.5]])
    x = x.astype(np.float32)
    got = run(schedule_function(unary(name, x.size), HOST), [x], x.shape)
    with np.errstate(invalid="ignore"):
        expected = getattr(np, f"arc{name[1:]}")(x.astype(np.float64))
    np.testing.assert_allclose(got, expected, rtol=5e-7, atol=1e-7)
    np.testing.assert_array_equal(np.signbit(got[x == 0]), np.signbit(expected[x == 0]))


def without_denormals(x):
    """Return numbers as float32, with zeros of the same sign for denormal ones, as kernels run."""
    x = x.astype(np.float32)
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("name", ["sin", "cos", "log"])
def test_accuracy_over_all_float32_numbers(name):
    """Numbers of random bits include denormal, huge and infinite ones, and NaN."""
    data = np.random.default_rng(0)
    x = np.concatenate([
        data.integers(0, 2**32, 1 << 17, dtype=np.uint32).view(np.float32),
        data.normal(0, 10, 1 << 14).astype(np.float32),
        np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**50, 2.0**127], np.float32),
        np.arange(-400, 400).astype(np.float32) * np.float32(np.pi / 4),
    ])  # fmt: skip
    got = run(schedule_function(unary(name, x.size), HOST), [x], x.shape)
    # The logarithm looks at the bits of positive numbers, denormal ones too.
    read = np.where(x > 0, x, without_denormals(x)) if name == "log" else without_denormals(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = without_denormals(getattr(np, name)(read.astype(np.float64)))
    np.testing.assert_array_max_ulp(got[np.isfinite(expected)], expected[np.isfinite(expected)], 2)
    np.testing.assert_array_equal(got[~np.isfinite(expected)], expected[~np.isfinite(expected)])
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


EXTREMES = np.array([-np.inf, -1e30, -200, -88.5, 88.5, 88.7, 89, 1e30, np.inf], np.float32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", np.exp(np.minimum(EXTREMES, 100).astype(np.float64))),
        ("sigmoid", EXTREMES > 0),
        ("tanh", np.sign(EXTREMES)),
        ("erf", np.sign(EXTREMES)),
    ],
)
def test_extremes_go_where_the_function_goes(name, expected):
    got = run(vectorize_calls(unary(name, EXTREMES.size)), [EXTREMES], EXTREMES.shape)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(got, expected.astype(np.float32), rtol=1e-5, atol=2e-38)


@pytest.mark.parametrize(
    "name", ["exp", "log", "sigmoid", "tanh", "erf", "sin", "cos", "atan", "asin", "acos"]
)
def test_nan_stays_nan(name):
    x = np.array([np.nan, 1, -np.nan, 0.5], np.float32)
    got = run(vectorize_calls(unary(name, x.size)), [x], x.shape)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))


def test_functions_without_exponentials_are_returned_as_they_are():
    func = unary("floor", 16)
    assert vectorize_calls(func).same_as(func)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_no_library_call_is_left(target):
    text = compile_for(schedule_function(unary("exp", 4096), target), target)
    assert "expf" not in text
