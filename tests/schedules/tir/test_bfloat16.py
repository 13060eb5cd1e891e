"""Kernels compute in float32 and round to bfloat16, by any operator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernel_harness import FOREIGN, HOST, compile_for, run
from tvm import te, tirx

from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.tir.bfloat16 import round_casts

SHAPE = (64, 48)


def narrowing(compute):
    x = te.placeholder(SHAPE, name="x")
    y = te.compute(SHAPE, lambda *i: compute(x(*i)).astype("bfloat16"), name="y")
    return te.create_prim_func([x, y])


@pytest.mark.parametrize("target", [HOST, *FOREIGN], ids=lambda t: t.mcpu)
@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "erf"])
def test_loops_with_let_bindings_are_vectorised(name, target):
    """TVM's own rounding would repeat the expression, and bind names several times."""
    function = schedule_function(narrowing(lambda x: x * getattr(tirx, name)(x)), target)
    assert f"{name}f" not in compile_for(function, target)


def test_numbers_are_rounded_half_to_even_and_nan_stays_nan():
    bits = np.random.default_rng(0).integers(0, 1 << 32, SHAPE, dtype=np.uint32)
    bits[0, :4] = (0x7FFFFFFF, 0xFFFFFFFF, 0x3F808000, 0x3F818000)  # of NaN all are set
    x = bits.view(np.float32)
    function = schedule_function(narrowing(lambda x: x), HOST)
    found = run(function, [x], SHAPE, "bfloat16").astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


def test_a_function_without_bfloat16_is_returned_as_it_is():
    x = te.placeholder(SHAPE, name="x")
    function = te.create_prim_func([x, te.compute(SHAPE, lambda i, j: x[i, j] + 1.0)])
    assert round_casts(function).same_as(function)
