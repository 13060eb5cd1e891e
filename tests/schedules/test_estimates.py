"""Properties of every analytic estimate, on every CPU and for awkward workloads."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from conv_workloads import conv_workload, join

from neocpu.foundation.cpus import CACHES
from neocpu.schedules import registry
from neocpu.schedules.convolutions import conv2d_direct
from neocpu.schedules.convolutions.winograd.filters import filters
from neocpu.schedules.estimates.memory_traffic import fork_seconds
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS
from neocpu.schedules.vocabulary.scheme import (
    DirectScheme,
    GroupScheme,
    JoinScheme,
    MatrixScheme,
    SplitScheme,
    TransformScheme,
    WinogradScheme,
)
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp, Workload

TARGETS = [
    *(parse_target(name) for name in ("nehalem", "haswell", "znver1", *CACHES)),
    parse_target("llvm -mcpu=znver4 -mattr=-avx512f"),
]
THREADS = (1, 2, 3, 16, 128)
ONE = (1, 1, 1, 1)
CONVOLUTIONS = [
    conv_workload(1, 1, 1, 1, 1, (1, 1)),
    conv_workload(64, 512, 1, 1, 1000, (1, 1)),
    conv_workload(1, 1, 9, 9, 64, (3, 3), padding=ONE),
    conv_workload(1, 64, 9, 9, 1, (3, 3), padding=ONE),
    conv_workload(64, 3, 224, 224, 64, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3)),
    conv_workload(1, 512, 33, 33, 256, (3, 3), padding=(12,) * 4, dilation=(12, 12)),
    conv_workload(1, 128, 14, 14, 128, (3, 3), stride=(2, 2), padding=ONE, groups=32),
    conv_workload(1, 6, 4, 4, 9, (3, 3), groups=3),
    conv_workload(1, 97, 31, 31, 97, (5, 5), padding=(2, 2, 2, 2), groups=97),
    conv_workload(1, 32, 8192, 8192, 32, (3, 3), padding=ONE),
    conv_workload(1, 17, 3, 2000, 31, (1, 5), padding=(0, 2, 0, 2)),
    conv_workload(1, 512, 7, 7, 512, (3, 3), padding=ONE),
    conv_workload(3, 19, 5, 5, 33, (3, 3), padding=(2, 0, 1, 3)),
]


def of_each_template(workload, target):
    """The best and the worst scheme of each template."""
    schemes = registry.schemes(workload, target)
    by_name = {name: [s for s in schemes if s.template == name] for name in registry.TEMPLATES}
    return [s for found in by_name.values() for s in dict.fromkeys((*found[:1], *found[-1:]))]


def curve(workload: Workload, scheme, target):
    """Estimates for each number of threads."""
    return [registry.estimate(workload, scheme, target, threads) for threads in THREADS]


def check(curve_):
    """Check that estimates are finite and positive, and that a thread adds at most its forks."""
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in curve_)
    for fewer, more in pairwise(curve_):
        assert more <= fewer * 1.0001 + 2 * fork_seconds(2, TARGETS[0])


def assert_not_cheaper(dear, cheap):
    assert all(a >= b * 0.9999 for a, b in zip(dear, cheap, strict=True))


@pytest.mark.parametrize("workload", CONVOLUTIONS, ids=str)
def test_estimates_grow_with_images_and_epilogues(workload):
    """More images and longer epilogues do not take less time."""
    for target in TARGETS:
        for scheme in of_each_template(workload, target):
            seconds = curve(workload, scheme, target)
            check(seconds)
            images = replace(workload, batch=2 * workload.batch)
            assert_not_cheaper(curve(images, scheme, target), seconds)
            longer = replace(workload, epilogue=(EpilogueOp("bias_add"), EpilogueOp("relu")))
            assert_not_cheaper(curve(longer, scheme, target), seconds)


def products_saved(workload, scheme):
    """Return the products of direct convolution divided by those of the scheme."""
    dilated = isinstance(scheme, DirectScheme) and workload.dilation != (1, 1)
    if dilated or isinstance(scheme, GroupScheme):
        return 1 / math.prod(map(share_of_pixels, (workload,) * 2, (0, 1)))
    if isinstance(scheme, SplitScheme):
        return 1 / 3  # of parts of the values
    if not isinstance(scheme, WinogradScheme):
        return 1.0
    lines = filters(scheme.tile, workload.kernel, workload.stride)
    return math.prod(line.tile * line.taps / line.span for line in lines)


def share_of_pixels(workload, axis):
    """Return the share of (output, tap) pairs along an axis that read a pixel, not padding."""
    outputs, taps = workload.output_shape[2 + axis], workload.kernel[axis]
    stride, dilation = workload.stride[axis], workload.dilation[axis]
    places = (
        output * stride + tap * dilation - workload.padding[axis]
        for output in range(outputs)
        for tap in range(taps)
    )
    extent = workload.input_shape[2 + axis]
    return sum(0 <= place < extent for place in places) / (outputs * taps)


def unit_of(workload, scheme, target):
    """Return the multiplying unit of a kernel."""
    if isinstance(scheme, SplitScheme):
        return target.find_matrix_unit(BFLOAT16_PRODUCTS)
    if isinstance(scheme, MatrixScheme):
        return target.find_matrix_unit(workload.numerics)
    return target.dot_unit(workload.numerics)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_no_kernel_beats_the_machine(target):
    """The limit is multiply-adds at full width and clock, on every thread."""
    for workload in CONVOLUTIONS:
        for scheme in of_each_template(workload, target):
            fewer, unit = products_saved(workload, scheme), unit_of(workload, scheme, target)
            peak = 2 * unit.macs * unit.per_cycle * target.frequency
            for threads, seconds in zip(THREADS, curve(workload, scheme, target), strict=True):
                assert seconds >= workload.flops / fewer / (peak * threads)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_memory_bounds_estimates(target):
    lanes = target.lanes("float32")
    for channels, side in ((1, 1), (3, 7), (128, 56), (2048, 7), (64, 4096)):
        shape = (1, channels, side, side)
        blocks = ((1, lanes), (lanes, 1), (lanes, 4 * lanes))
        formats = [[Format(DataLayout(block), "float32") for block in pair] for pair in blocks]
        joins = [
            join(operator, (channels,) * 2, (1, side, side), lanes)
            for operator in ("elementwise", "concat")
        ]
        for workload, scheme in (
            *((TransformWorkload.between(shape, *pair), TransformScheme()) for pair in formats),
            *((each, JoinScheme()) for each in joins),
        ):
            seconds = curve(workload, scheme, target)
            check(seconds)
            larger = replace(workload, height=2 * side)
            assert_not_cheaper(curve(larger, scheme, target), seconds)


def test_the_groups_of_a_convolution_pad_the_image_once():
    """Each chunk of the output copies the pixels of its own group, three times for 3x3."""
    target = parse_target("llvm -mcpu=znver3")
    scheme = DirectScheme(8, 8, reg_n=7, unroll_ker=False)
    for groups in (1, 2):
        padded = conv_workload(1, 64, 14, 14, 16, (3, 3), padding=ONE, groups=groups)
        bare = replace(padded, height=16, width=16, padding=(0, 0, 0, 0))
        copies = 3 * (16 // 8) // groups
        cycles = copies * 14 * 14 * (64 // 8) * conv2d_direct.STRIP_CYCLES
        seconds = [registry.estimate(workload, scheme, target) for workload in (padded, bare)]
        assert seconds[0] - seconds[1] == pytest.approx(cycles / target.frequency)
