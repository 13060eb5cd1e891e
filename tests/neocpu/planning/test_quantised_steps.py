"""Epilogues of integer convolutions compute what the model says, up to one step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conv_workloads import conv_workload
from tvm import relax

from neocpu.ir.constants import StoredWeights
from neocpu.planning.quantised.grids import Grid
from neocpu.planning.quantised.quantised_steps import ConvForm, float_steps, split, stored_form
from neocpu.schedules.convolutions.conv2d_reference import Operands, conv2d
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

RNG = np.random.default_rng(0)
WORKLOAD = conv_workload(2, 13, 7, 6, 11, (3, 3), stride=(2, 1), padding=(1, 0, 2, 1))
IN, RESIDUAL, OUT = Grid(0.03, 19), Grid(0.11, 128), Grid(0.09, 7)
OTHER = relax.Var("other", relax.TensorType(WORKLOAD.output_shape, "float32"))
BIAS, ADD, RELU = EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu")


def weights(largest: int = 127, axis: int = 0, zero: int = 0) -> StoredWeights:
    values = RNG.integers(-largest, largest + 1, WORKLOAD.kernel_shape)
    scale = RNG.uniform(0.001, 0.02, WORKLOAD.out_channels).astype(np.float32)
    if zero:
        return StoredWeights((values // 2 + zero).astype(np.uint8), scale[:1],
                             np.array([zero], np.uint8), axis)  # fmt: skip
    return StoredWeights(values.astype(np.int8), scale, np.zeros(len(scale), np.int8), axis)


def bias(stored: StoredWeights, whole: bool) -> np.ndarray:
    unit = stored.scale * np.float32(IN.scale)
    count = RNG.integers(-900, 900, WORKLOAD.out_channels) + (0 if whole else 0.3)
    return (count * unit).astype(np.float32)


def chains(stored: StoredWeights) -> dict:
    return {
        "nothing": [],
        "rounded": [(BIAS, bias(stored, True)), (RELU, None), (OUT, None)],
        "a bias between integers": [(BIAS, bias(stored, False)), (OUT, None)],
        "a residual": [(BIAS, bias(stored, True)), (RESIDUAL, None), (ADD, OTHER), (RELU, None),
                       (OUT, None)],
        "clipped": [(EpilogueOp("clip", (0.0, 6.0)), None), (Grid(6 / 255, 0), None)],
        "leaky": [(BIAS, bias(stored, True)), (EpilogueOp("leaky_relu", (0.1,)), None),
                  (OUT, None)],
        "a scaled sigmoid": [(BIAS, bias(stored, False)), (EpilogueOp("sigmoid"), None),
                             (Grid(1 / 255, 0), None)],
    }  # fmt: skip


def evaluate(form: ConvForm, data: np.ndarray, others: np.ndarray) -> np.ndarray:
    given = tuple(others if isinstance(each, relax.Var) else each for each in form.operands)
    return conv2d(form.workload, Operands(data, form.weights, given, border=form.zero))


def real(grid: Grid, stored: np.ndarray) -> np.ndarray:
    return ((stored.astype(np.float32) - grid.zero) * np.float32(grid.scale)).astype(np.float32)


@pytest.mark.parametrize("stored", [weights(), weights(zero=120)], ids=["s8", "asymmetric u8"])
@pytest.mark.parametrize("name", chains(weights()))
@pytest.mark.parametrize("store", [True, False], ids=["integers", "float32"])
def test_a_form_of_integers_is_the_one_of_real_numbers(name, store, stored):
    steps = chains(stored)[name]
    ends_on_grid = bool(steps) and isinstance(steps[-1][0], Grid)
    if store and not ends_on_grid:
        pytest.skip("nothing to store as integers")
    data = RNG.integers(0, 256, WORKLOAD.input_shape).astype(np.uint8)
    others = RNG.integers(0, 256, WORKLOAD.output_shape).astype(np.uint8)
    kinds, operands = split(float_steps(steps, WORKLOAD.out_channels))
    plain = ConvForm(replace(WORKLOAD, epilogue=kinds), stored.real, operands)
    expected = evaluate(plain, real(IN, data), real(RESIDUAL, others))
    form = stored_form(WORKLOAD, stored, IN, steps, {OTHER: RESIDUAL}, store=store)
    assert form is not None
    numerics = form.workload.numerics
    assert (numerics.data, numerics.output) == ("uint8", "uint8" if store else "float32")
    assert form.workload.pads_with_zero_point
    got = evaluate(form, data, others if store else real(RESIDUAL, others))
    if ends_on_grid:
        grid = steps[-1][0]
        far = np.abs((real(grid, got) if store else got) - expected) / grid.scale
        assert far.max() < 1.01
        assert (far > 0.01).mean() < 0.01
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_operators_of_another_form_stay_in_float32():
    scales = np.full(WORKLOAD.in_channels, 0.1, np.float32)
    across = replace(weights(), scale=scales, zero=np.zeros(13, np.int8), axis=1)
    assert stored_form(WORKLOAD, across, IN, [], {}, store=False) is None
    wide = StoredWeights(np.array([[[[255]]]] * 11, np.uint8), np.float32([0.1]),
                         np.array([0], np.uint8), 0)  # fmt: skip
    assert stored_form(WORKLOAD, wide, IN, [], {}, store=False) is None, "above 127"
    many = replace(WORKLOAD, in_channels=70000, kernel=(1, 1))
    heavy = StoredWeights(np.full((11, 70000, 1, 1), 127, np.int8), np.float32([0.1]),
                          np.array([0], np.int8), 0)  # fmt: skip
    assert stored_form(many, heavy, IN, [], {}, store=False) is None, "sums above 2^31"
    onto_real = [(ADD, OTHER), (OUT, None)]
    assert stored_form(WORKLOAD, weights(), IN, onto_real, {}, store=True) is None


@pytest.mark.parametrize(
    ("largest", "products"), [(127, 0), (64, 2), (32, 4), (16, 8), (1, 8)], ids=str
)
def test_the_number_of_products_that_16_bits_hold(largest, products):
    stored = StoredWeights(np.full(WORKLOAD.kernel_shape, largest, np.int8), np.float32([1]),
                           np.array([0], np.int8), 0)  # fmt: skip
    form = stored_form(WORKLOAD, stored, IN, [], {}, store=False)
    assert form.workload.numerics.int16_sums == products
    negative = replace(stored, values=-stored.values)
    assert stored_form(WORKLOAD, negative, IN, [], {}, store=False).workload == form.workload


def test_one_pair_that_is_too_large_decides():
    values = np.ones(WORKLOAD.kernel_shape, np.int8)
    values[4, 6:8, 1, 1] = 64, 65
    stored = StoredWeights(values, np.float32([1]), np.array([0], np.int8), 0)
    form = stored_form(WORKLOAD, stored, IN, [], {}, store=False)
    assert form.workload.numerics.int16_sums == 0
    values[4, 7, 1, 1] = -65  # of both signs, no sum is larger than either
    form = stored_form(WORKLOAD, stored, IN, [], {}, store=False)
    assert form.workload.numerics.int16_sums == 8


def test_cpus_with_dot_instructions_do_not_look_at_the_weights():
    form = stored_form(WORKLOAD, weights(16), IN, [], {}, store=False)
    assert form.workload.numerics.int16_sums == 8
    assert form.on(parse_target("haswell")) is not None
    assert form.on(parse_target("haswell")).workload == form.workload
    assert form.on(parse_target("znver4")).workload.numerics.int16_sums == 0
    assert form.on(parse_target("nehalem")) is None
