"""Winograd convolution against a naive reference, norm-wise, over awkward sizes."""

import math
import re
from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import EPILOGUES, check_template, computed
from conv_workloads import conv_workload
from kernel_harness import FOREIGN, HOST, compile_for, normal

from neocpu.schedules import registry
from neocpu.schedules.convolutions import conv2d_direct
from neocpu.schedules.convolutions.conv2d_reference import Operands, convolve
from neocpu.schedules.convolutions.winograd import conv2d_winograd as template
from neocpu.schedules.convolutions.winograd import winograd_tiling
from neocpu.schedules.convolutions.winograd.filters import filters, tiles_of
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import DirectScheme, WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target

LANES = HOST.lanes("float32")
AVX512 = parse_target("llvm -mcpu=skylake-avx512")
AVX2 = parse_target("llvm -mcpu=znver3")
ONE = (1, 1, 1, 1)
TILES = tiles_of((3, 3), (1, 1))
# Every kernel and stride that has transforms, with every tile.
FILTERS = [
    (tile, kernel, stride)
    for kernel, stride in (
        ((3, 3), (1, 1)),
        ((5, 5), (1, 1)),
        ((1, 7), (1, 1)),
        ((7, 1), (1, 1)),
        ((1, 3), (1, 1)),
        ((5, 1), (1, 1)),
        ((3, 5), (1, 1)),
        ((3, 3), (2, 2)),
        ((5, 5), (2, 2)),
        ((3, 3), (1, 2)),
        ((3, 1), (2, 2)),
    )
    for tile in tiles_of(kernel, stride)
]

WORKLOADS = [
    conv_workload(1, 17, 7, 9, 31, (3, 3), padding=(2, 0, 1, 3)),
    conv_workload(3, 19, 5, 5, 16, (3, 3), padding=ONE),
    conv_workload(1, 16, 3, 3, 23, (3, 3)),  # one pixel
    conv_workload(1, 16, 1, 1, 16, (3, 3), padding=ONE),  # mostly padding
    conv_workload(2, 29, 12, 1, 37, (3, 3), padding=(0, 1, 0, 1)),  # narrower than any tile
    conv_workload(1, 33, 2, 20, 16, (3, 3), padding=(1, 4, 3, 0)),
    conv_workload(16, 16, 16, 16, 16, (3, 3), padding=ONE),
    conv_workload(1, 16, 10, 14, 16, (3, 3)),  # nothing to pad for m = 2 and 4
]


def scheme_of(tile, split=False, ic=LANES, oc=LANES, reg_n=3, vectors=1, strip=2):
    return WinogradScheme(
        ic, oc, reg_n=reg_n, tile=tile, reg_oc=vectors * LANES, strip=strip, oc_split=split
    )


@pytest.mark.parametrize(("tile", "kernel", "stride"), FILTERS)
@needs.one_in(2)
def test_matches_naive_with_every_filter(tile, kernel, stride):
    """Two images of 12 x 15 pixels, padded differently on each side; blocks that divide nothing."""
    workload = conv_workload(2, 17, 12, 15, 31, kernel, stride=stride, padding=(2, 0, 1, 3))
    assert template.applies(workload, HOST)
    check_template(workload, scheme_of(tile, split=tile % 2 == 0, vectors=3), threads=2)


@pytest.mark.parametrize(
    ("kernel", "stride"), [((3, 3), (2, 2)), ((1, 7), (1, 1)), ((5, 5), (1, 1))]
)
def test_one_pixel_and_less_than_a_tile(kernel, stride):
    tile = tiles_of(kernel, stride)[-1]
    one = conv_workload(1, 16, *kernel, 16, kernel, stride=stride, epilogue=EPILOGUES[1])
    assert one.output_shape[2:] == (1, 1)
    check_template(one, scheme_of(tile))
    padding = tuple(taps // 2 for taps in kernel)
    check_template(
        conv_workload(1, 16, 2, 1, 16, kernel, stride=stride, padding=(*padding, *padding)),
        scheme_of(tile, split=True),
    )


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@needs.one_in(3)
def test_matches_naive(workload, tile, split):
    assert template.applies(workload, HOST)
    check_template(workload, scheme_of(tile, split), threads=2)


DILATED = [
    ((11, 13), (2, 2), (3, 3), (2, 2, 2, 2)),
    ((12, 16), (2, 4), (3, 3), (2, 4, 2, 4)),
    ((9, 10), (7, 3), (3, 3), (7, 3, 7, 3)),
    ((5, 17), (1, 6), (3, 3), (1, 5, 0, 8)),
    ((7, 9), (12, 5), (3, 3), (12, 5, 12, 5)),  # only one row of taps reads pixels
    ((14, 11), (2, 3), (5, 5), (4, 6, 4, 6)),
    ((9, 20), (1, 3), (1, 3), (0, 3, 0, 3)),
    ((8, 8), (3, 3), (3, 3), (0, 0, 0, 0)),
    ((3, 2), (4, 4), (3, 3), (5, 5, 5, 5)),  # every tile begins outside the image
]


@pytest.mark.parametrize(("image", "dilation", "kernel", "padding"), DILATED)
@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
def test_dilated(image, dilation, kernel, padding, split):
    workload = conv_workload(2, 17, *image, 31, kernel, padding=padding, dilation=dilation)
    assert template.applies(workload, HOST)
    for tile in tiles_of(kernel, (1, 1))[:2]:
        check_template(workload, scheme_of(tile, split), threads=2)


@pytest.mark.parametrize("workload", WORKLOADS[:3], ids=str)
def test_first_and_last_schemes_match_naive(workload):
    schemes = template.space(workload, HOST)
    assert len(set(schemes)) == len(schemes) > 0
    for scheme in {*schemes[:2], *schemes[-2:]}:
        check_template(workload, scheme)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@needs.one_in(2)
def test_epilogues(epilogue, tile):
    workload = conv_workload(1, 16, 6, 9, 19, (3, 3), padding=ONE, epilogue=epilogue)
    check_template(workload, scheme_of(tile, oc=2 * LANES))


@pytest.mark.parametrize(
    "scheme",
    [
        scheme_of(4, ic=2 * LANES, oc=4 * LANES, vectors=2, reg_n=5),
        scheme_of(4, split=True, ic=4 * LANES, oc=2 * LANES, vectors=4, reg_n=7, strip=1),
        scheme_of(2, split=True, ic=LANES, oc=3 * LANES, vectors=3, reg_n=1, strip=50),
        scheme_of(6, ic=3 * LANES, oc=LANES, vectors=3, reg_n=9, strip=1),
    ],
    ids=str,
)
def test_blocks_and_register_tiles_that_divide_nothing(scheme):
    channels = 3 * LANES - 5
    outs = 3 * LANES - 1 if scheme.reg_oc == 3 * LANES else 4 * LANES - 1
    workload = conv_workload(2, channels, 9, 11, outs, (3, 3), padding=ONE)
    check_template(workload, scheme, threads=3)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_vectors_of_other_widths_match_naive(target):
    """The schedule is that of another target, in this machine's instructions."""
    workload = conv_workload(1, 21, 7, 9, 18, (3, 3), padding=ONE)
    for scheme in template.space(workload, target)[:4]:
        check_template(workload, scheme, target=target)


@pytest.mark.parametrize(
    ("tile", "kernel", "stride"),
    # Each row of the table of factors; with seven taps two dimensions would err too much.
    [f for f in FILTERS if f[1] in ((3, 3), (5, 5), (1, 7)) and f[2] in ((1, 1), (2, 2))],
)
@needs.one_in(2)
def test_error_is_within_its_factor_of_direct_summation(tile, kernel, stride):
    """One vector of channels is the worst case, because direct summation has few terms."""
    workload = conv_workload(1, LANES, 30, 31, LANES, kernel, stride=stride)
    # Non-negative inputs, as after a ReLU, cancel least and round most.
    x = np.maximum(normal(workload.input_shape, 1), 0)
    weights = normal(workload.kernel_shape, 2)
    expected = convolve(workload, x.astype(np.float64), weights)

    def error(scheme):
        return np.linalg.norm(computed(workload, scheme, Operands(x, weights, ())) - expected)

    scheme = scheme_of(tile)
    direct = error(DirectScheme(LANES, LANES, reg_n=2, unroll_ker=False))
    assert error(scheme) <= template.error_factor(scheme, workload) * direct


@pytest.mark.parametrize("magnitude", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("tile", TILES)
@needs.one_in(3)
def test_error_does_not_depend_on_the_magnitude(tile, magnitude):
    workload = conv_workload(1, 128, 14, 14, 16, (3, 3), padding=ONE)
    scheme = scheme_of(tile)
    x = np.maximum(normal(workload.input_shape, 1), 0) * np.float32(magnitude)
    weights = normal(workload.kernel_shape, 2)
    expected = convolve(workload, x.astype(np.float64), weights)
    error = computed(workload, scheme, Operands(x, weights, ())) - expected
    bound = 5e-7 * template.error_factor(scheme, workload)
    assert np.linalg.norm(error) <= bound * np.linalg.norm(expected)
    assert np.abs(error).max() <= 20 * bound * expected.std()


@pytest.mark.parametrize(
    "change",
    [
        {"stride": (3, 3)},
        {"stride": (1, 3)},
        {"kernel": (1, 1)},
        {"dilation": (2, 2), "stride": (2, 2)},
        {"groups": 2},
        {"kernel": (4, 4)},
        {"kernel": (3, 11)},
        {"numerics": Numerics.uniform("float16")},
        {"in_channels": 3},
        {"out_channels": 3},
    ],
    ids=str,
)
def test_does_not_apply(change):
    workload = conv_workload(1, 64, 14, 14, 64, (3, 3), padding=ONE)
    assert template.applies(workload, AVX512)
    assert not template.applies(replace(workload, **change), AVX512)


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"])
@pytest.mark.parametrize(
    "workload",
    [
        conv_workload(1, 64, 56, 56, 64, (3, 3), padding=ONE),
        conv_workload(1, 512, 7, 7, 512, (3, 3), padding=ONE),
        conv_workload(4, 80, 73, 73, 192, (3, 3)),
        conv_workload(1, 17, 1, 2, 33, (3, 3), padding=ONE),
    ],
    ids=str,
)
def test_every_scheme_is_legal(workload, target):
    cpu = parse_target(target)
    schemes = template.space(workload, cpu)
    assert 0 < len(schemes) <= 20
    for scheme in schemes:
        vectors, rest = divmod(scheme.reg_oc, cpu.lanes("float32"))
        assert rest == 0
        assert vectors * scheme.reg_n + vectors + 1 <= cpu.vector_registers, scheme
        assert scheme.ic_bn % cpu.lanes("float32") == scheme.oc_bn % cpu.lanes("float32") == 0


@pytest.mark.parametrize("channels", [64, 96, 130])
def test_space_covers_every_pair_of_blocks_that_direct_has(channels):
    workload = conv_workload(1, channels, 14, 14, channels, (3, 3), padding=ONE)
    spaces = [module.space(workload, AVX512) for module in (template, conv2d_direct)]
    pairs = [{(s.ic_bn, s.oc_bn) for s in space} for space in spaces]
    assert pairs[0] == pairs[1]


def test_space_is_in_order_of_the_estimates():
    workload = conv_workload(1, 64, 56, 56, 64, (3, 3), padding=ONE)
    seconds = [template.estimate(workload, s, AVX512) for s in template.space(workload, AVX512)]
    assert seconds == sorted(seconds)
    assert min(seconds) > 0


@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (7, 2), (14, 4), (100, 3)])
@pytest.mark.parametrize("strip", [1, 2, 5, 200])
def test_strips_cover_all_tiles_once(blocks, threads, strip):
    workload = conv_workload(1, 16, 2, 2 * blocks, 16, (3, 3), padding=ONE)
    scheme = WinogradScheme(16, 16, reg_n=1, tile=2, reg_oc=16, strip=strip, oc_split=False)
    tiling = Tiling(workload, scheme, 16, threads)
    assert tiling.blocks == blocks
    starts = [int(tiling.strip_start(i)) for i in range(tiling.strips + 1)]
    lengths = np.diff(starts)
    assert (starts[0], starts[-1]) == (0, blocks)
    assert lengths.min() >= 1
    assert lengths.max() <= tiling.strip_blocks <= max(strip, 1)
    assert tiling.strips % threads == 0 or tiling.strips == blocks


def test_starts_of_many_strips_do_not_overflow():
    """Strips times register tiles exceed an int32 in an image of two rows."""
    blocks = 100_001
    workload = conv_workload(1, LANES, 2, 2 * blocks, LANES, (3, 3), padding=ONE)
    scheme = WinogradScheme(LANES, LANES, reg_n=1, tile=2, reg_oc=LANES, strip=2, oc_split=False)
    assert Tiling(workload, scheme, LANES, 2).strips * blocks > np.iinfo(np.int32).max
    x, weights = (
        np.ones(workload.input_shape, np.float32),
        np.ones(workload.kernel_shape, np.float32),
    )
    got = computed(workload, scheme, Operands(x, weights, ()), 2)
    expected = np.full(workload.output_shape, 6 * LANES)
    expected[..., [0, -1]] = 4 * LANES
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_packed_weights_are_transformed_and_padded_with_zeros():
    workload = conv_workload(1, 17, 8, 8, 20, (3, 3))
    scheme = WinogradScheme(16, 16, reg_n=4, tile=4, reg_oc=16, strip=1, oc_split=False)
    weights = normal(workload.kernel_shape)
    packed = template.pack_weights(weights, workload, scheme)
    assert packed.shape == template.argument_shapes(workload, scheme)[1][0] == (36, 2, 32, 16)
    assert packed.dtype == np.float32
    matrix = filters(4, (3, 3), (1, 1))[0].kernel_matrix()
    expected = (matrix @ weights[18, 5].astype(np.float64) @ matrix.T).reshape(-1)
    np.testing.assert_allclose(packed[:, 1, 5, 2], expected, rtol=1e-6)
    assert not packed[:, :, 17:].any()
    assert not packed[:, 1, :, 4:].any()


def test_estimate_weighs_fewer_products_against_overhang_and_weights():
    def best(channels, size):
        workload = conv_workload(1, channels, size, size, channels, (3, 3), padding=ONE)
        return registry.schemes(workload, AVX512)[0]

    assert best(64, 56).template == template.TEMPLATE.name
    assert best(256, 28).tile > 2
    # One pixel: each product of a tile is as much work as a tap, and there are four times as many.
    assert best(512, 1).template != template.TEMPLATE.name


def test_a_single_strip_keeps_one_thread_busy():
    workload = conv_workload(1, 64, 20, 20, 64, (3, 3), padding=ONE)
    scheme = WinogradScheme(16, 32, reg_n=28, tile=4, reg_oc=16, strip=1, oc_split=False)
    one, two = (template.estimate(workload, scheme, AVX512, n) for n in (1, 2))
    assert one == two


def test_estimate_follows_the_thread_with_the_longest_strips():
    # Five register tiles in four strips: one thread gets 1 + 1 of them, the other 1 + 2.
    workload = conv_workload(1, 128, 28, 28, 128, (3, 3), padding=ONE)
    scheme = WinogradScheme(8, 8, reg_n=5, tile=6, reg_oc=16, strip=2, oc_split=False)
    tiling = Tiling(workload, scheme, lanes=8, threads=2)
    assert (tiling.blocks, tiling.strips, tiling.busiest_share) == (5, 4, 0.6)
    # Twice as many channels' tasks than strips: each thread gets half of the channels.
    split = Tiling(workload, replace(scheme, oc_split=True), lanes=8, threads=2)
    assert split.busiest_share == 0.5


def test_estimate_counts_weights_read_again():
    # 16 MB of weights: every strip reads them all, a block of channels only its own.
    workload = conv_workload(1, 512, 7, 7, 512, (3, 3), padding=ONE)
    strips = WinogradScheme(8, 8, reg_n=4, tile=2, reg_oc=16, strip=1, oc_split=False)
    split = replace(strips, oc_split=True, strip=4)
    seconds = [template.estimate(workload, scheme, AVX2, 2) for scheme in (split, strips)]
    assert seconds[0] < seconds[1]


def test_products_are_broadcasts_and_multiply_adds_without_spills():
    workload = conv_workload(1, 64, 56, 56, 64, (3, 3), padding=ONE)
    func = template.lower(
        workload,
        WinogradScheme(16, 32, reg_n=14, tile=4, reg_oc=32, strip=1, oc_split=False),
        AVX512,
    )
    blocks = re.split(r"^\S+:", compile_for(func, AVX512), flags=re.MULTILINE)
    products = [b for b in blocks if b.count("vbroadcastss") >= 14 and b.count("vfmadd231ps") >= 28]
    assert products
    for block in products:
        assert not re.search(r"%rsp.*%zmm|%zmm.*%rsp", block), block


def test_large_weights_are_prefetched_and_small_ones_are_not():
    scheme = WinogradScheme(16, 32, reg_n=14, tile=4, reg_oc=32, strip=2, oc_split=False)
    for channels, expected in ((64, True), (32, False)):
        workload = conv_workload(1, channels, 56, 56, channels, (3, 3), padding=ONE)
        assert (math.prod((channels, channels, 36, 4)) > AVX512.l2 // 2) is expected
        assert ("prefetch" in template.lower(workload, scheme, AVX512).script()) is expected


@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
def test_groups_of_output_channels_match_naive(split, monkeypatch):
    """A task keeps the sums of three of five blocks of channels; the last group has two."""
    workload = conv_workload(1, 19, 7, 9, 5 * LANES, (3, 3), padding=ONE)
    scheme = scheme_of(4, split)
    one = Tiling(workload, scheme, LANES).sum_bytes
    monkeypatch.setattr(winograd_tiling, "MAX_GROUP_BYTES", 3 * one)
    tiling = Tiling(workload, scheme, LANES)
    assert (tiling.oc_blocks, tiling.group, tiling.groups) == (5, 3, 2)
    check_template(workload, scheme)


def test_threads_share_groups_of_output_channels():
    workload = conv_workload(1, 64, 7, 7, 9 * LANES, (3, 3), padding=ONE)
    split = scheme_of(2, split=True, strip=50)
    groups = [Tiling(workload, split, LANES, threads).groups for threads in (1, 2, 3, 8, 16)]
    assert groups == [1, 2, 3, 5, 9]
    assert Tiling(workload, split, LANES, 2).busiest_share == 5 / 9
    assert Tiling(workload, replace(split, oc_split=False), LANES, 2).groups == 1


@pytest.mark.parametrize("split", [False, True], ids=["strips", "split"])
def test_folds_match_naive(split):
    """The same tiles, between other layouts."""
    workload = conv_workload(2, 19, 7, 9, 4 * LANES, (3, 3), padding=ONE, epilogue=EPILOGUES[1])
    scheme = scheme_of(4, split, vectors=2)
    folded = template.fold(workload, scheme, DataLayout(2 * LANES), DataLayout(4 * LANES), HOST)
    assert folded == replace(scheme, ic_bn=2 * LANES, oc_bn=4 * LANES)
    check_template(workload, folded, threads=2)


def test_folds_that_split_vectors_are_refused():
    workload = conv_workload(1, LANES, 7, 9, 3 * LANES, (3, 3), padding=ONE)
    scheme, own = scheme_of(4, vectors=3), DataLayout(LANES)
    assert template.fold(workload, scheme, own, DataLayout(4 * LANES), HOST) is not None
    assert template.fold(workload, scheme, DataLayout(1), own, HOST) is None
    assert template.fold(workload, scheme, own, DataLayout(LANES // 2), HOST) is None
