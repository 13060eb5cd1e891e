"""Direct convolution against a naive reference, over awkward sizes."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from conv_reference import check_template, computed
from conv_workloads import conv_workload
from kernel_harness import HOST, compile_for

from neocpu.schedules.convolutions import conv2d_direct as template
from neocpu.schedules.convolutions.conv2d_reference import Operands, convolve
from neocpu.schedules.tir.live_taps import TapAxis, tap_axes
from neocpu.schedules.vocabulary.layout import NCHW, DataLayout
from neocpu.schedules.vocabulary.scheme import DirectScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

AVX512 = parse_target("llvm -mcpu=skylake-avx512")
AVX2 = parse_target("llvm -mcpu=znver3")

WORKLOADS = [
    conv_workload(1, 3, 11, 13, 16, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3)),
    conv_workload(2, 17, 7, 9, 31, (3, 3), padding=(1, 0, 2, 1)),
    conv_workload(1, 33, 8, 8, 33, (3, 3), padding=(2, 2, 2, 2), dilation=(2, 2)),
    conv_workload(3, 5, 1, 1, 7, (1, 1)),
    conv_workload(1, 32, 7, 7, 64, (1, 1), stride=(2, 2)),
    conv_workload(1, 31, 6, 17, 8, (1, 7), padding=(0, 3, 0, 3)),
    conv_workload(1, 1, 9, 9, 2, (3, 3), padding=(1, 1, 1, 1)),
    conv_workload(1, 32, 5, 5, 48, (3, 3), padding=(1, 1, 1, 1), groups=4),
    conv_workload(1, 16, 5, 6, 24, (5, 5), stride=(3, 2), padding=(4, 2, 1, 3)),
    conv_workload(17, 17, 17, 17, 17, (3, 3), padding=(1, 1, 1, 1)),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_first_and_last_schemes_match_naive(workload):
    assert template.applies(workload, HOST)
    schemes = template.space(workload, HOST)
    assert len(set(schemes)) == len(schemes) > 0
    for scheme in {*schemes[:2], *schemes[-2:]}:
        check_template(workload, scheme)


DILATED = conv_workload(1, 9, 9, 11, 13, (3, 3), padding=(6, 9, 7, 8), dilation=(6, 8))


@pytest.mark.parametrize("l2", [1 << 20, 1 << 10], ids=["rows first", "chunks first"])
@pytest.mark.parametrize(
    ("workload", "scheme"),
    [
        (DILATED, DirectScheme(4, 8, reg_n=4, unroll_ker=False, reg_oh=1)),
        (DILATED, DirectScheme(9, 16, reg_n=3, unroll_ker=True, reg_oh=4)),
        (
            replace(DILATED, batch=2, stride=(2, 3)),
            DirectScheme(3, 8, reg_n=2, unroll_ker=False, reg_oh=2),
        ),
        (
            replace(DILATED, in_channels=80, out_channels=8),
            DirectScheme(5, 8, reg_n=3, unroll_ker=False, reg_oh=1, out_bn=0, sum_chunks=2),
        ),
    ],
    ids=str,
)
def test_taps_in_the_padding_are_left_out(workload, scheme, l2):
    assert all(axis.skips for axis in tap_axes(workload, scheme))
    check_template(workload, scheme, target=replace(HOST, l2=l2))


@pytest.mark.parametrize("tile", [1, 3, 4, 20])
@pytest.mark.parametrize(("dilation", "stride", "before"), [(6, 1, 6), (5, 2, 0), (9, 3, 17)])
def test_as_many_taps_are_live_as_read_pixels(tile, dilation, stride, before):
    axis = TapAxis(
        extent=11, outputs=13, taps=3, stride=stride, dilation=dilation, before=before, tile=tile
    )
    live = sum(
        any(0 <= (first + i) * stride + tap * dilation - before < axis.extent for i in range(tile))
        for first in range(0, axis.tiles * tile, tile)
        for tap in range(axis.taps)
    )
    assert axis.live == live
    assert replace(axis, dilation=1).live == 3 * axis.tiles


@pytest.mark.parametrize(
    "scheme",
    [
        DirectScheme(1, 16, reg_n=9, unroll_ker=True, reg_oh=1),
        DirectScheme(8, 32, reg_n=5, unroll_ker=False, reg_oh=3),
        DirectScheme(3, 8, reg_n=2, unroll_ker=True, reg_oh=4),
        DirectScheme(5, 48, reg_n=1, unroll_ker=False, reg_oh=1),
    ],
    ids=str,
)
def test_blocks_and_tiles_that_divide_nothing(scheme):
    workload = conv_workload(1, 7, 9, 11, 29, (3, 3), padding=(1, 1, 1, 1))
    check_template(workload, scheme)


def test_integers_are_summed_exactly():
    """Small integers have exact float32 sums in any order, so no tolerance hides an error."""
    workload = conv_workload(1, 12, 6, 6, 20, (3, 3), padding=(1, 1, 1, 1))
    scheme = DirectScheme(4, 16, reg_n=3, unroll_ker=False, reg_oh=2)
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, workload.input_shape).astype(np.float32)
    weights = rng.integers(-4, 5, workload.kernel_shape).astype(np.float32)
    got = computed(workload, scheme, Operands(x, weights, ()))
    np.testing.assert_array_equal(got, convolve(workload, x, weights))


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"])
def test_every_tile_fits_the_registers(target):
    cpu = parse_target(target)
    workload = replace(WORKLOADS[2], height=30, width=30, out_channels=128, in_channels=64)
    for scheme in template.space(workload, cpu):
        vectors = -(-scheme.oc_bn // cpu.lanes("float32"))
        used = vectors * scheme.reg_n * scheme.reg_oh + vectors + 1
        assert used <= cpu.vector_registers, scheme


def test_space_covers_every_pair_of_blocks():
    workload = conv_workload(1, 64, 14, 14, 128, (3, 3), padding=(1, 1, 1, 1))
    cpu = parse_target("llvm -mcpu=skylake-avx512")
    pairs = {(s.ic_bn, s.oc_bn) for s in template.space(workload, cpu)}
    assert pairs == {(i, o) for i in (16, 32, 64) for o in (16, 32, 64)}


def test_does_not_apply_to_one_output_channel_or_thin_groups():
    assert not template.applies(conv_workload(1, 8, 4, 4, 1, (3, 3)), HOST)
    assert not template.applies(conv_workload(1, 9, 4, 4, 9, (3, 3), groups=9), HOST)


def test_loop_nest_has_one_parallel_loop_and_register_accumulators():
    workload = conv_workload(1, 32, 14, 14, 32, (3, 3), padding=(1, 1, 1, 1))
    func = template.lower(
        workload,
        DirectScheme(16, 32, reg_n=7, unroll_ker=True, reg_oh=2),
        parse_target("llvm -mcpu=skylake-avx512"),
    )
    text = func.script()
    assert text.count("T.parallel(") == 1
    assert 'scope="local"' in text
    assert "T.vectorized(16)" in text
    assert isinstance(func, tvm.tirx.PrimFunc)


def test_estimate_prefers_a_full_tile():
    workload = conv_workload(1, 64, 56, 56, 64, (3, 3), padding=(1, 1, 1, 1))
    full = template.estimate(
        workload, DirectScheme(16, 32, reg_n=14, unroll_ker=False, reg_oh=1), AVX512
    )
    thin = template.estimate(
        workload, DirectScheme(16, 32, reg_n=1, unroll_ker=False, reg_oh=1), AVX512
    )
    assert full < thin / 2


def test_tiles_of_few_registers_use_two_vectors():
    workload = conv_workload(1, 256, 28, 28, 128, (1, 1))
    tiles = [s for s in template.space(workload, AVX2) if s.ic_bn == 8]
    assert tiles[0].oc_bn == 16
    assert 8 <= 2 * tiles[0].reg_oh * tiles[0].reg_n <= 12
    # One vector of channels: no tile that spills, whatever its estimate.
    assert max(s.reg_oh * s.reg_n for s in tiles if s.oc_bn == 8) == 7


def test_estimate_counts_the_weights_each_thread_reads():
    # Two bands of rows: both threads read all weights. One band: each reads half of the channels'.
    workload = conv_workload(1, 1024, 8, 8, 96, (1, 1))
    bands, channels = (
        DirectScheme(8, 16, reg_n=1, unroll_ker=False, reg_oh=4),
        DirectScheme(8, 16, reg_n=1, unroll_ker=False, reg_oh=8),
    )
    one = [template.estimate(workload, s, AVX512, 1) for s in (bands, channels)]
    two = [template.estimate(workload, s, AVX512, 2) for s in (bands, channels)]
    assert two[0] / one[0] > two[1] / one[1]


@pytest.mark.parametrize(("channels", "out", "stride"), [(256, 512, 2), (256, 64, 1), (64, 256, 1)])
def test_estimate_shuns_tall_tiles_whose_rows_share_sets_of_l2(channels, out, stride):
    """The tall tile takes about twice as long, measured at 128 pixels."""
    tall, wide = (
        DirectScheme(8, 16, reg_n=1, unroll_ker=False, reg_oh=4),
        DirectScheme(32, 16, reg_n=2, unroll_ker=False, reg_oh=2),
    )
    for size, better in ((128, wide), (136, tall)):
        workload = conv_workload(1, channels, size, size, out, (1, 1), stride=(stride, stride))
        assert min(tall, wide, key=lambda s: template.estimate(workload, s, AVX2, 2)) == better
    assert template.space(replace(workload, height=128, width=128), AVX2)[0] != tall


@pytest.mark.parametrize(
    ("workload", "scheme"),
    [
        # Rows first: the weights fit L2. Chunks first: they do not.
        (
            conv_workload(2, 20, 9, 9, 40, (3, 3), padding=(1, 1, 1, 1)),
            DirectScheme(16, 16, reg_n=3, unroll_ker=False),
        ),
        (conv_workload(2, 700, 3, 3, 560, (1, 1)), DirectScheme(16, 16, reg_n=3, unroll_ker=False)),
        # Every task pads its strip; the image is padded once.
        (
            conv_workload(1, 8, 12, 12, 16, (3, 3), padding=(1, 1, 1, 1)),
            DirectScheme(8, 16, reg_n=4, unroll_ker=False),
        ),
        (
            conv_workload(1, 8, 5, 5, 128, (5, 5), padding=(2, 2, 2, 2)),
            DirectScheme(8, 16, reg_n=5, unroll_ker=False),
        ),
    ],
    ids=["rows-first", "chunks-first", "strips", "image"],
)
def test_task_orders_and_paddings(workload, scheme):
    check_template(workload, scheme)


def test_the_cases_of_task_orders_have_those_orders():
    small, large = (
        conv_workload(1, 20, 9, 9, 40, (3, 3)),
        conv_workload(1, 700, 3, 3, 560, (1, 1)),
    )
    scheme = DirectScheme(16, 16, reg_n=3, unroll_ker=False)
    cpu = parse_target("llvm -mcpu=znver4")
    assert template.rows_first(small, scheme, cpu)
    assert not template.rows_first(large, scheme, cpu)
    strips = conv_workload(1, 8, 12, 12, 16, (3, 3), padding=(1, 1, 1, 1))
    image = conv_workload(1, 8, 5, 5, 128, (5, 5), padding=(2, 2, 2, 2))
    assert not template.pads_image_once(strips, DirectScheme(8, 16, reg_n=4, unroll_ker=False))
    assert template.pads_image_once(image, DirectScheme(8, 16, reg_n=5, unroll_ker=False))


RESIDUAL = (EpilogueOp("scale"), EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))
LANES = HOST.lanes("float32")


@pytest.mark.parametrize(
    ("in_block", "oc_bn", "out_block"),
    [
        (3, LANES, 2 * LANES),
        (LANES, LANES, 4 * LANES),
        (4 * LANES, 2 * LANES, LANES),
        (LANES, 4 * LANES, LANES),
        (3, 4 * LANES, 2 * LANES),
        (2 * LANES, 3 * LANES, 4 * LANES),
    ],
)
def test_folds_match_naive(in_block, oc_bn, out_block):
    """Stride, padding, batch, prime input channels, and operands in the output's layout."""
    workload = conv_workload(
        2, 13, 6, 7, 12 * LANES, (3, 3), stride=(2, 1), padding=(1, 0, 2, 1), epilogue=RESIDUAL
    )
    scheme = DirectScheme(in_block, oc_bn, reg_n=3, unroll_ker=False)
    folded = template.fold(workload, scheme, scheme.in_layout, DataLayout(out_block), HOST)
    assert folded is not None
    assert folded.out_layout.block == out_block
    assert replace(folded, out_bn=0) == scheme
    check_template(workload, folded, threads=2)


@pytest.mark.parametrize(
    "workload",
    [
        conv_workload(3, 5, 1, 1, 2 * LANES - 3, (1, 1)),
        conv_workload(1, 48, 5, 5, 8 * LANES, (3, 3), padding=(1, 1, 1, 1), groups=4),
        conv_workload(1, 700, 3, 3, 576, (1, 1), epilogue=RESIDUAL),
        conv_workload(1, 1, 9, 9, 4 * LANES, (2, 3), stride=(3, 2), padding=(3, 3, 3, 3)),
    ],
    ids=["one-pixel", "groups", "chunks-first", "one-channel"],
)
def test_folds_of_awkward_workloads_match_naive(workload):
    for scheme in (
        DirectScheme(4, LANES, reg_n=4, unroll_ker=True, reg_oh=2),
        DirectScheme(1, LANES, reg_n=5, unroll_ker=False),
    ):
        folded = template.fold(workload, scheme, scheme.in_layout, DataLayout(2 * LANES), HOST)
        assert folded is not None
        check_template(workload, folded, threads=2)


def test_folds_that_would_leave_lanes_unwritten_or_straddle_are_refused():
    scheme = DirectScheme(LANES, 2 * LANES, reg_n=3, unroll_ker=False)

    def fold(channels, block, source=scheme.in_layout):
        workload = conv_workload(1, 48, 4, 4, channels, (1, 1))
        return template.fold(workload, scheme, source, DataLayout(block), HOST)

    assert fold(3 * LANES, LANES) is None  # four chunks are written, three exist
    assert fold(LANES, 2 * LANES) is not None
    assert fold(4 * LANES, LANES // 2) is None  # a vector in two chunks
    assert fold(4 * LANES, 3 * LANES) is None
    assert fold(4 * LANES, 1) is None  # lanes of a vector in planes of their own
    assert fold(4 * LANES, LANES) is not None
    assert fold(4 * LANES, LANES, NCHW) is None  # loads do not fold


def test_unfolding_a_fold_gives_the_scheme_back():
    workload = conv_workload(1, 48, 4, 4, 4 * LANES, (1, 1))
    scheme = DirectScheme(LANES, LANES, reg_n=3, unroll_ker=False)
    folded = template.fold(workload, scheme, scheme.in_layout, DataLayout(2 * LANES), HOST)
    again = template.fold(workload, folded, scheme.in_layout, scheme.out_layout, HOST)
    assert again == scheme


@pytest.mark.parametrize(("oc_bn", "out_bn"), [(16, 64), (64, 16), (48, 16)])
def test_folded_stores_are_whole_vectors(oc_bn, out_bn):
    """No vector is scattered or split, and there is no new division."""
    cpu = parse_target("llvm -mcpu=skylake-avx512")
    workload = conv_workload(1, 64, 14, 14, 192, (3, 3), padding=(1, 1, 1, 1), epilogue=RESIDUAL)
    scheme = DirectScheme(16, oc_bn, reg_n=4, unroll_ker=False)
    assembly = compile_for(template.lower(workload, replace(scheme, out_bn=out_bn), cpu), cpu)
    plain = compile_for(template.lower(workload, scheme, cpu), cpu)
    assert "vscatter" not in assembly
    for instruction in ("vmovss", "vextractf", "div"):
        assert assembly.count(instruction) <= plain.count(instruction) + 2
    assert assembly.count("vfmadd") == plain.count("vfmadd")
