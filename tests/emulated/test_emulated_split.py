"""Convolutions of float32 by tiles of bfloat16: their errors, and infinities and NaN."""

import numpy as np
import pytest
from conv_workloads import conv_workload
from test_emulated_kernels import CPUS, on, output

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import Operands, conv2d, random_operands
from neocpu.schedules.convolutions.matrix_products import conv2d_split
from neocpu.schedules.vocabulary.accuracy import DEFAULT, STRICT
from neocpu.schedules.vocabulary.layout import DataLayout

TARGET = CPUS["sapphirerapids"]
EMULATED = pytest.mark.parametrize("target", [on("sapphirerapids")])
WORKLOAD = conv_workload(1, 64, 6, 9, 16, (3, 3), padding=(1, 1, 1, 1))


def computed(operands, folder):
    scheme = conv2d_split.space(WORKLOAD, TARGET)[0]
    got = output(WORKLOAD, scheme, TARGET, operands, folder)
    return scheme.out_layout.unpack(got, WORKLOAD.out_channels)


def error(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@EMULATED
@pytest.mark.parametrize("scale", [1.0, 2.0**-100, 2.0**90])
def test_errs_a_few_millionths_whatever_the_magnitude(target, scale, tmp_path):
    operands = random_operands(WORKLOAD, 1)
    operands = Operands(operands.data * np.float32(scale), operands.weights, operands.epilogue)
    found = error(computed(operands, tmp_path), conv2d(WORKLOAD, operands))
    assert 5e-7 < found < 6e-6


@EMULATED
@pytest.mark.parametrize(("rows", "depth", "columns"), [(19, 96, 48), (5, 160, 16), (33, 64, 80)])
def test_rows_of_a_matrix_are_pixels_whose_channels_are_one_block(
    target, rows, depth, columns, tmp_path
):
    matrix = conv_workload(1, depth, rows, 1, columns, (1, 1))
    first = conv2d_split.space(matrix, TARGET)[0]
    scheme = conv2d_split.fold(matrix, first, DataLayout(depth), DataLayout(columns), TARGET)
    operands = random_operands(matrix, 1)
    got = output(matrix, scheme, TARGET, operands, tmp_path).reshape(rows, columns)
    want = conv2d(matrix, operands)[0, :, :, 0].T
    assert 5e-7 < error(got, want) < 6e-6


def test_blocks_of_part_of_a_line_are_not_read():
    matrix = conv_workload(1, 80, 19, 1, 48, (1, 1))
    first = conv2d_split.space(matrix, TARGET)[0]
    assert conv2d_split.fold(matrix, first, DataLayout(80), DataLayout(48), TARGET) is None


@EMULATED
def test_split_products_turn_infinity_into_nan_and_keep_nan_in_place(target, tmp_path):
    operands = random_operands(WORKLOAD, 1)
    data = operands.data.copy()
    data[0, 3, 2, 2], data[0, 40, 5, 8] = np.inf, np.nan
    got = computed(Operands(data, operands.weights, operands.epilogue), tmp_path)
    touched = np.zeros((6, 9), bool)
    touched[1:4, 1:4] = touched[4:6, 7:9] = True
    assert np.array_equal(np.isnan(got[0]), np.broadcast_to(touched, got[0].shape))


def test_strict_plans_have_no_split_products():
    schemes = registry.schemes(WORKLOAD, TARGET)
    assert any(each.template == "conv2d_split" for each in schemes)
    strict = registry.admitted(STRICT.admission, schemes, WORKLOAD)
    assert strict
    assert not any(each.template == "conv2d_split" for each in strict)
    default = registry.admitted(DEFAULT.admission, schemes, WORKLOAD)
    assert any(each.template == "conv2d_split" for each in default)


def test_packed_weights_are_the_sums_of_their_parts():
    scheme = conv2d_split.space(WORKLOAD, TARGET)[0]
    weights = random_operands(WORKLOAD, 1).weights
    packed = conv2d_split.pack_weights(weights, WORKLOAD, scheme).view(np.uint16)
    parts = (packed.astype(np.uint32) << 16).view(np.float32)
    assert parts.shape[0] * 16 >= WORKLOAD.out_channels
    back = (parts[:, :, :, :, 0] + parts[:, :, :, :, 1])[0]
    back = back.reshape(2, 3, 3, 16, 16, 2).transpose(4, 0, 3, 5, 1, 2).reshape(16, 64, 3, 3)
    assert error(back, weights) < 2.0**-16
