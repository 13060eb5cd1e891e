"""Direct convolution against a naive reference, over sizes that fit nothing."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from conv_reference import EPILOGUES, check_template
from kernel_harness import FOREIGN, HOST, compile_for

from neocpu.schedules import conv2d_direct as template
from neocpu.schedules.scheme import DirectScheme
from neocpu.schedules.target import parse_target
from neocpu.schedules.workload import Conv2dWorkload

WORKLOADS = [
    Conv2dWorkload(1, 3, 11, 13, 16, (7, 7), (2, 2), (3, 3, 3, 3)),
    Conv2dWorkload(2, 17, 7, 9, 31, (3, 3), padding=(1, 0, 2, 1)),
    Conv2dWorkload(1, 33, 8, 8, 33, (3, 3), padding=(2, 2, 2, 2), dilation=(2, 2)),
    Conv2dWorkload(3, 5, 1, 1, 7, (1, 1)),
    Conv2dWorkload(1, 32, 7, 7, 64, (1, 1), (2, 2)),
    Conv2dWorkload(1, 31, 6, 17, 8, (1, 7), padding=(0, 3, 0, 3)),
    Conv2dWorkload(1, 1, 9, 9, 2, (3, 3), padding=(1, 1, 1, 1)),
    Conv2dWorkload(1, 32, 5, 5, 48, (3, 3), padding=(1, 1, 1, 1), groups=4),
    Conv2dWorkload(1, 16, 5, 6, 24, (5, 5), (3, 2), padding=(4, 2, 1, 3)),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_first_and_last_schemes_match_naive(workload):
    assert template.applies(workload, HOST)
    schemes = template.space(workload, HOST)
    assert len(set(schemes)) == len(schemes) > 0
    for scheme in {*schemes[:2], *schemes[-2:]}:
        check_template(template, workload, scheme)


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
def test_epilogues(epilogue):
    workload = Conv2dWorkload(1, 6, 6, 9, 19, (3, 3), padding=(1, 1, 1, 1), epilogue=epilogue)
    check_template(template, workload, DirectScheme(4, 16, 4, False, 2))


@pytest.mark.parametrize(
    "scheme",
    [
        DirectScheme(1, 16, 9, True, 1),
        DirectScheme(8, 32, 5, False, 3),
        DirectScheme(3, 8, 2, True, 4),
        DirectScheme(5, 48, 1, False, 1),
    ],
    ids=str,
)
def test_blocks_and_tiles_that_divide_nothing(scheme):
    workload = Conv2dWorkload(1, 7, 9, 11, 29, (3, 3), padding=(1, 1, 1, 1))
    check_template(template, workload, scheme)


def test_integers_are_summed_exactly():
    """Small integers have exact float32 sums, whatever the order: no tolerance hides an error."""
    workload = Conv2dWorkload(1, 12, 6, 6, 20, (3, 3), padding=(1, 1, 1, 1))
    scheme = DirectScheme(4, 16, 3, False, 2)
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, workload.input_shape).astype(np.float32)
    weights = rng.integers(-4, 5, workload.kernel_shape).astype(np.float32)
    from conv_reference import naive_conv2d
    from kernel_harness import run

    func = template.lower(workload, scheme, HOST)
    packed = template.pack_weights(weights, workload, scheme)
    shape = template.argument_shapes(workload, scheme)[-1][0]
    got = run(func, [scheme.in_layout.pack(x), packed], shape)
    expected = naive_conv2d(x, weights, workload)
    np.testing.assert_array_equal(scheme.out_layout.unpack(got, 20), expected)


@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"])
def test_every_tile_fits_the_registers(target):
    cpu = parse_target(target)
    workload = replace(WORKLOADS[2], height=30, width=30, out_channels=128, in_channels=64)
    for scheme in template.space(workload, cpu):
        vectors = -(-scheme.oc_bn // cpu.lanes())
        used = vectors * scheme.reg_n * scheme.reg_oh + vectors + 1
        assert used <= cpu.vector_registers, scheme


def test_space_covers_every_pair_of_blocks():
    workload = Conv2dWorkload(1, 64, 14, 14, 128, (3, 3), padding=(1, 1, 1, 1))
    cpu = parse_target("llvm -mcpu=skylake-avx512")
    pairs = {(s.ic_bn, s.oc_bn) for s in template.space(workload, cpu)}
    assert pairs == {(i, o) for i in (16, 32, 64) for o in (16, 32, 64)}


def test_does_not_apply_to_one_output_channel_or_thin_groups():
    assert not template.applies(Conv2dWorkload(1, 8, 4, 4, 1, (3, 3)), HOST)
    assert not template.applies(Conv2dWorkload(1, 9, 4, 4, 9, (3, 3), groups=9), HOST)


def test_loop_nest_has_one_parallel_loop_and_register_accumulators():
    workload = Conv2dWorkload(1, 32, 14, 14, 32, (3, 3), padding=(1, 1, 1, 1))
    func = template.lower(
        workload, DirectScheme(16, 32, 7, True, 2), parse_target("llvm -mcpu=skylake-avx512")
    )
    text = func.script()
    assert text.count("T.parallel(") == 1
    assert 'scope="local"' in text
    assert "T.vectorized(16)" in text
    assert isinstance(func, tvm.tirx.PrimFunc)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_foreign_targets_use_fused_multiply_add(target):
    workload = Conv2dWorkload(1, 16, 8, 8, 32, (3, 3), padding=(1, 1, 1, 1))
    func = template.lower(workload, template.space(workload, target)[0], target)
    assembly = compile_for(func, target)
    assert "vfmadd" in assembly or "fmla" in assembly


def test_estimate_prefers_a_full_tile():
    workload = Conv2dWorkload(1, 64, 56, 56, 64, (3, 3), padding=(1, 1, 1, 1))
    full = template.estimate(workload, DirectScheme(16, 32, 14, False, 1), HOST)
    thin = template.estimate(workload, DirectScheme(16, 32, 1, False, 1), HOST)
    assert full < thin / 2


def test_estimate_counts_threads():
    workload = Conv2dWorkload(1, 64, 56, 56, 64, (3, 3), padding=(1, 1, 1, 1))
    scheme = DirectScheme(16, 32, 14, False, 1)
    one, two = (template.estimate(workload, scheme, HOST, n) for n in (1, 2))
    assert 1.7 < one / two <= 2.1


@pytest.mark.parametrize(
    ("workload", "scheme"),
    [
        # Rows first: the weights fit L2. Chunks first: they do not.
        (
            Conv2dWorkload(2, 20, 9, 9, 40, (3, 3), padding=(1, 1, 1, 1)),
            DirectScheme(16, 16, 3, False),
        ),
        (Conv2dWorkload(2, 700, 3, 3, 560, (1, 1)), DirectScheme(16, 16, 3, False)),
        # Every task pads its strip; the image is padded once.
        (
            Conv2dWorkload(1, 8, 12, 12, 16, (3, 3), padding=(1, 1, 1, 1)),
            DirectScheme(8, 16, 4, False),
        ),
        (
            Conv2dWorkload(1, 8, 5, 5, 128, (5, 5), padding=(2, 2, 2, 2)),
            DirectScheme(8, 16, 5, False),
        ),
    ],
    ids=["rows-first", "chunks-first", "strips", "image"],
)
def test_task_orders_and_paddings(workload, scheme):
    check_template(template, workload, scheme)


def test_the_cases_above_are_what_they_say():
    small, large = (
        Conv2dWorkload(1, 20, 9, 9, 40, (3, 3)),
        Conv2dWorkload(1, 700, 3, 3, 560, (1, 1)),
    )
    scheme = DirectScheme(16, 16, 3, False)
    cpu = parse_target("llvm -mcpu=znver4")
    assert template._rows_first(small, scheme, cpu)
    assert not template._rows_first(large, scheme, cpu)
    strips = Conv2dWorkload(1, 8, 12, 12, 16, (3, 3), padding=(1, 1, 1, 1))
    image = Conv2dWorkload(1, 8, 5, 5, 128, (5, 5), padding=(2, 2, 2, 2))
    assert not template._pads_image_once(strips, DirectScheme(8, 16, 4, False))
    assert template._pads_image_once(image, DirectScheme(8, 16, 5, False))
