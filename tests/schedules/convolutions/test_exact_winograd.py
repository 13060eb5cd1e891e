"""Winograd's integer convolution equals direct convolution bit for bit if that is proved."""

import random
from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import WRITTEN_OVER, computed, written
from conv_workloads import (
    CUBIC,
    FAR_TAPS,
    FEW_CHANNELS,
    PAD,
    TINY,
    TWO_IMAGES,
    UNEVEN_PADDING,
    WINDOW,
    conv_workload,
    typed,
)
from drawn_winograd import drawn_case
from integer_winograd import (
    HASWELL,
    NO_WINOGRAD,
    SKYLAKE,
    ZEN4,
    assert_computes_with_instructions,
    assert_loops_over_products,
)
from kernel_harness import check_first_and_last, check_folds

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands, wrong_answer
from neocpu.schedules.convolutions.dot_products import conv2d_dot
from neocpu.schedules.convolutions.winograd import conv2d_winograd as template
from neocpu.schedules.convolutions.winograd import edge_tiles, exact_filter
from neocpu.schedules.convolutions.winograd.exact_filter import (
    FACTOR,
    FILTERS,
    LIMIT,
    ExactFilter,
    bound_of_any,
    bound_of_weights,
    transformed_weights,
)
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.numerics import Numerics, Quantisation
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

ALDER_LAKE = parse_target("llvm -mcpu=alderlake")
TARGETS = [ZEN4, HASWELL, SKYLAKE, ALDER_LAKE]

INTEGERS = Numerics(data="uint8", weights="int8", sum="int32", output="uint8")
TO_FLOAT = replace(INTEGERS, output="float32")
SIGNED = replace(INTEGERS, output="int8")
ASYMMETRIC = replace(INTEGERS, quantised=(("data", Quantisation("tensor", symmetric=False)),))
SCALED = (EpilogueOp("bias_add"), EpilogueOp("rescale"))
PLAIN = (*SCALED, EpilogueOp("quantise", (0.0,)))
RESIDUAL = (*SCALED, EpilogueOp("add"), EpilogueOp("relu"), EpilogueOp("quantise", (0.0,)))
ZERO_POINT = (*SCALED, EpilogueOp("quantise", (101.0,)))
MOST_CHANNELS = 1827

WORKLOADS = [
    typed(WINDOW, INTEGERS, PLAIN),
    typed(TWO_IMAGES, INTEGERS, RESIDUAL),
    typed(FEW_CHANNELS, ASYMMETRIC, ZERO_POINT),
    typed(UNEVEN_PADDING, ASYMMETRIC, PLAIN),
    typed(conv_workload(1, 130, 3, 3, 31, (3, 3)), TO_FLOAT, SCALED),  # one pixel
    typed(TINY, INTEGERS, PLAIN),
    typed(FAR_TAPS, INTEGERS, PLAIN),
    typed(CUBIC, INTEGERS, PLAIN),
]


def check(workload, scheme, threads=1, target=ZEN4, operands=None, expected=None):
    """Compare a kernel with the reference, or with ``expected``."""
    operands = operands or random_operands(workload, 1)
    expected = conv2d(workload, operands) if expected is None else expected
    for got in written(workload, scheme, operands, threads, target, WRITTEN_OVER):
        assert wrong_answer(scheme, got, expected) is None, (str(workload), str(scheme))
        assert np.array_equal(scheme.out_layout.unpack(got, workload.out_channels), expected)


def by_direct(workload, target):
    """Return direct convolution's output: LLVM may round once where numpy rounds twice."""
    scheme = conv2d_dot.space(workload, target)[0]
    return computed(workload, scheme, random_operands(workload, 1), 1, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@needs.one_in(2)
def test_schemes_are_exact(workload, target):
    check_first_and_last(check, template, workload, target)


def scheme_of(workload, target=ZEN4):
    return template.space(workload, target)[0]


def drawn(seed):
    rng = random.Random(seed)
    workload, scheme, threads = drawn_case(rng, [INTEGERS, ASYMMETRIC, TO_FLOAT], [4])
    steps = SCALED if workload.numerics == TO_FLOAT else rng.choice([PLAIN, RESIDUAL, ZERO_POINT])
    return replace(workload, epilogue=steps), scheme, threads


@pytest.mark.parametrize("seed", range(32))
@needs.one_in(4)
def test_drawn_convolutions_are_exact(seed):
    workload, scheme, threads = drawn(seed)
    for target in (ZEN4, HASWELL):
        assert template.applies(workload, target)
        check(workload, scheme, threads, target, expected=by_direct(workload, target))


def extreme(channels, weight, datum=255):
    """Return a convolution whose sums are as large as any, and its operands."""
    workload = conv_workload(
        1, channels, 5, 5, 16, (3, 3), padding=PAD, numerics=TO_FLOAT, epilogue=SCALED
    )
    operands = random_operands(workload, 1)
    data = np.full_like(operands.data, datum)
    weights = np.full_like(operands.weights, weight)
    weights[1::2] = 127 if weight < 0 else -127  # and equally large sums of the other sign
    bias, scale = (np.zeros_like(operands.epilogue[0]), np.ones_like(operands.epilogue[1]))
    return workload, replace(operands, data=data, weights=weights, epilogue=(bias, scale))


@pytest.mark.parametrize("target", [ZEN4, HASWELL], ids=lambda target: target.mcpu)
@pytest.mark.parametrize("channels", [16, 101, 1024, MOST_CHANNELS])
@pytest.mark.parametrize("weight", [-128, 127, -127])
@needs.one_in(2)
def test_sums_as_large_as_they_get(channels, weight, target):
    workload, operands = extreme(channels, weight)
    assert template.applies(workload, target)
    check(workload, template.space(workload, target)[0], target=target, operands=operands)


def test_the_bound_is_sharp(monkeypatch):
    """One more channel is not proved to be exact, and is wrong."""
    workload, operands = extreme(MOST_CHANNELS + 1, -128)
    scheme = scheme_of(extreme(MOST_CHANNELS, -128)[0])
    assert not template.applies(workload, ZEN4)
    assert not bound_of_weights(operands.weights).holds
    with pytest.raises(AssertionError, match="need a proof"):
        template.pack_weights(operands.weights, workload, scheme)
    monkeypatch.setattr(exact_filter, "LIMIT", 2 * LIMIT)
    assert template.applies(workload, ZEN4)
    with pytest.raises(AssertionError, match="largest error"):
        check(workload, scheme, operands=operands)


def test_the_proof_follows_weights():
    """The bound is 255 times the larger sum of positive or negative weights of a channel."""
    weights = np.zeros((3, 5, 3, 3), np.int8)
    weights[0, :2] = 1
    weights[1, 0, 0] = (-128, 127, -128)
    weights[2, 3] = -2
    assert bound_of_weights(weights).largest == 255 * 256
    every = np.full((1, MOST_CHANNELS, 3, 3), -128, np.int8)
    assert bound_of_weights(every) == bound_of_any(MOST_CHANNELS * 9)
    assert bound_of_weights(every).holds
    assert registry.proof(scheme_of(WORKLOADS[0]), WORKLOADS[0]).largest == 255 * 128 * 9 * 40
    assert LIMIT == 1 << 29
    assert SumBound(LIMIT - 1, LIMIT).holds
    assert not SumBound(LIMIT, LIMIT).holds


@pytest.mark.parametrize("down", [1, 2, 3, 4])
@pytest.mark.parametrize("across", [1, 2, 3, 4])
def test_transforms_of_all_tiles_yield_900_times_the_sums(down, across):
    """Smaller tiles use some of a whole tile's products, of the same weights."""
    rng = np.random.default_rng(1)
    given = rng.integers(0, 256, (down + 2, across + 2))
    taps = rng.integers(-128, 128, (3, 3))
    rows, columns = (ExactFilter(each, 3, 1) for each in (down, across))
    g = FILTERS[0].kernel_matrix()
    weights = (g @ taps @ g.T)[np.ix_(rows.points, columns.points)]
    data = rows.input_matrix() @ given @ columns.input_matrix().T
    got = rows.output_matrix() @ (weights * data) @ columns.output_matrix().T
    windows = np.lib.stride_tricks.sliding_window_view(given, (3, 3))
    assert np.array_equal(got, FACTOR * np.einsum("yxij,ij->yx", windows, taps))


@pytest.mark.parametrize(
    ("height", "width", "points"),
    [(14, 14, 22 * 22), (7, 7, 11 * 11), (13, 28, 21 * 42), (8, 9, 12 * 15), (2, 1, 4 * 3)],
)
@pytest.mark.parametrize("threads", [1, 3])
@needs.one_in(2)
def test_tiles_at_the_edges_are_smaller(height, width, points, threads):
    workload = replace(WORKLOADS[1], height=height, width=width)
    for reg_n in (1, 4, 28):
        scheme = WinogradScheme(
            32, 16, reg_n=reg_n, tile=4, reg_oc=16, strip=1, oc_split=True, edge_tiles=True
        )
        tiling = Tiling(workload, scheme, 16)
        assert sum(each.count * each.tiles for each in tiling.edges.classes) == 2 * points
        check(workload, scheme, threads)


def test_whole_tiles_need_no_smaller_tiles():
    whole = replace(WORKLOADS[1], height=8, width=12)
    assert not any(scheme.edge_tiles for scheme in template.space(whole, ZEN4))
    strips = WinogradScheme(
        32, 16, reg_n=4, tile=4, reg_oc=16, strip=1, oc_split=False, edge_tiles=True
    )
    assert Tiling(WORKLOADS[1], strips, 16).edges is None  # of rows, which have no corners
    dilated = replace(WORKLOADS[6], batch=1)
    assert not any(scheme.edge_tiles for scheme in template.space(dilated, ZEN4))
    layer = replace(WORKLOADS[1], batch=1, height=14, width=14, in_channels=256, out_channels=256)
    assert template.space(layer, ZEN4)[0].edge_tiles


@pytest.mark.parametrize("channels", [17, 131])
@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("target", [ZEN4, HASWELL], ids=lambda target: target.mcpu)
@needs.one_in(2)
def test_weights_are_transformed_on_the_fly(channels, edges, target):
    """Blocks have two vectors, and a part of the sums covers 64 channels."""
    workload = replace(WORKLOADS[3], in_channels=channels, out_channels=50)
    scheme = WinogradScheme(
        32,
        16,
        reg_n=3,
        tile=4,
        reg_oc=32,
        strip=2,
        oc_split=True,
        edge_tiles=edges,
        on_the_fly=True,
    )
    assert Tiling(workload, scheme, 16).parts == (1 if edges or channels == 17 else 3)
    assert template.argument_shapes(workload, scheme)[1] == (
        (2, -(-channels // 32) * 16, 9, 64),
        "int8",
    )
    check(workload, scheme, 3, target)


def test_other_schemes_keep_transformed_weights():
    workload, scheme = (
        WORKLOADS[1],
        WinogradScheme(32, 16, reg_n=4, tile=4, reg_oc=16, strip=1, oc_split=False),
    )
    strips = replace(scheme, on_the_fly=True)
    shapes = template.argument_shapes(workload, scheme)
    assert template.argument_shapes(workload, strips) == shapes
    check(workload, strips)


def test_vectors_of_taps_are_transformed_as_the_matrix_has_it():
    taps = [np.array([-128, 127, 3, 0]), np.array([-128, -128, 5, 1]), np.array([-128, 127, -7, 0])]
    got = FILTERS[0].kernel(taps, keep=lambda value: value)
    assert np.array_equal(got, FILTERS[0].kernel_matrix() @ taps)


@pytest.mark.parametrize("tile", [1, 2, 3, 4])
def test_16_bits_hold_transformed_values(tile):
    b, g = ExactFilter(tile, 3, 1).input_matrix(), FILTERS[0].kernel_matrix()
    whole = FILTERS[0].input_matrix()
    data, weights = np.kron(b, whole), np.kron(g, g)
    positive, negative = np.maximum(data, 0).sum(axis=1), np.minimum(data, 0).sum(axis=1)
    assert max(255 * positive.max(), -255 * negative.min()) <= 24990
    if tile == 4:
        assert (255 * positive.max(), 255 * negative.min()) == (24990, -24990)
    assert 128 * np.abs(weights).sum(axis=1).max() == 28800
    every = np.full((1, 1, 3, 3), -128, np.int8)
    assert np.abs(transformed_weights(every).astype(int)).max() == 28800


@pytest.mark.parametrize("wrong", ["inverse", "matrix", "edge", "transform"])
def test_a_wrong_constant_is_found(monkeypatch, wrong):
    if wrong == "inverse":
        # The lowest bit whose product with a multiple of four is not beyond 32 bits is the last
        # that counts: that of an odd sum alone.
        monkeypatch.setattr(exact_filter, "_INVERSE", exact_filter._INVERSE ^ 1 << 29)
    elif wrong == "matrix":
        matrix = [list(row) for row in exact_filter._KERNEL_MATRIX]
        matrix[4][2] = 1
        monkeypatch.setattr(exact_filter, "_KERNEL_MATRIX", matrix)
    elif wrong == "transform":
        monkeypatch.setattr(ExactFilter, "kernel", lambda _, taps: [taps[0]] * 6)
    else:
        monkeypatch.setitem(exact_filter._POINTS, 1, (0, 1, 3))
        edge_tiles.edge_tiles.cache_clear()
    workload = WORKLOADS[4]
    schemes = (*template.space(workload, HASWELL), *template.sparing(workload, HASWELL))
    if wrong == "transform":
        scheme = next(each for each in schemes if each.on_the_fly)
    else:
        scheme = next(each for each in schemes if each.edge_tiles == (wrong == "edge"))
    with pytest.raises(AssertionError, match="largest error"):
        check(workload, scheme, target=HASWELL)
    edge_tiles.edge_tiles.cache_clear()


@pytest.mark.parametrize(
    "change",
    [
        *NO_WINOGRAD,
        {"in_channels": MOST_CHANNELS + 1},
        {"numerics": replace(INTEGERS, data="int8")},
    ],
    ids=str,
)
def test_does_not_apply_to_other_workloads(change):
    assert template.applies(replace(WORKLOADS[0], epilogue=()), ZEN4)
    assert not template.applies(replace(WORKLOADS[0], epilogue=(), **change), ZEN4)


def test_needs_an_instruction():
    assert_computes_with_instructions(WORKLOADS[0])


@pytest.mark.parametrize(
    ("channels", "pixels", "cpu", "chosen"),
    [
        (64, 56, ZEN4, "conv2d_winograd"),
        (128, 28, ZEN4, "conv2d_winograd"),
        (256, 56, ZEN4, "conv2d_winograd"),
        (512, 7, ZEN4, "conv2d_dot"),  # eight times the weights, for four tiles
        (256, 14, HASWELL, "conv2d_winograd"),
    ],
)
def test_estimates_choose_as_measurements_do(channels, pixels, cpu, chosen):
    workload = conv_workload(1, channels, pixels, pixels, channels, (3, 3), padding=PAD)
    workload = replace(workload, numerics=INTEGERS, epilogue=PLAIN)
    assert registry.schemes(workload, cpu)[0].template == chosen


def test_folds_between_any_blocks_of_whole_vectors():
    check_folds(check, template, WORKLOADS[0], ZEN4, (48, 32), refused=[(8, 16)])


def test_the_error_bound_is_that_of_direct_and_no_weight_layout_is_shared():
    scheme = template.space(WORKLOADS[0], ZEN4)[0]
    assert registry.error_bound(scheme, WORKLOADS[0]) == 1.0
    assert registry.weight_layout(WORKLOADS[0], scheme) is None


@pytest.mark.parametrize(("target", "instruction"), [(ZEN4, "vpdpwssd"), (HASWELL, "vpmaddwd")])
@pytest.mark.parametrize(("channels", "pixels"), [(64, 56), (256, 14)])
def test_hot_loop_is_products_and_their_loads(target, instruction, channels, pixels):
    assert_loops_over_products(WORKLOADS[0], channels, pixels, target, instruction)
