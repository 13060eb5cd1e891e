"""Every algorithm's norm-wise error, over sizes and magnitudes, within its stated factor."""

import math
from dataclasses import replace

import numpy as np
import pytest
import tvm
from conv_workloads import conv_workload
from kernel_harness import HOST, build_all

from neocpu.foundation.errors import UsageError
from neocpu.schedules import registry
from neocpu.schedules.convolutions import conv2d_direct
from neocpu.schedules.convolutions.conv2d_reference import (
    convolve,
    kernel_arguments,
    random_operands,
)
from neocpu.schedules.vocabulary.accuracy import (
    DEFAULT,
    EVERY_TILE,
    LADDER,
    LEVELS,
    SHORT_SUMS,
    STRICT,
    parse_accuracy,
)
from neocpu.schedules.vocabulary.scheme import (
    DirectScheme,
    SplitScheme,
    WinogradScheme,
    scheme_from_json,
)

LANES = HOST.lanes("float32")
ONE = (1, 1, 1, 1)
SPLIT_ERROR = 6e-6  # norm-wise, at most, of float32 by products of bfloat16
WORKLOADS = [
    conv_workload(1, LANES, 13, 11, LANES, (3, 3), padding=ONE),
    conv_workload(1, 67, 12, 12, 32, (3, 3), padding=ONE),
    conv_workload(1, 32, 13, 13, 32, (3, 3), stride=(2, 2), padding=ONE),
    conv_workload(1, 32, 9, 20, 16, (1, 7), padding=(0, 3, 0, 3)),
    conv_workload(1, 300, 9, 9, 40, (1, 1)),
    conv_workload(1, 150, 9, 9, 64, (1, 1)),
    conv_workload(1, 3, 20, 20, 16, (5, 5), stride=(2, 2), padding=(2, 2, 2, 2)),
    conv_workload(1, 32, 14, 14, 32, (3, 3), padding=ONE, groups=4),
    conv_workload(1, 32, 14, 14, 32, (3, 3), padding=ONE, groups=32),
]
# Ranges of data and weights: similar, very different, and different for each input channel.
MAGNITUDES = [(1.0, 1.0), (1e30, 1e-30), (1e-30, 1e30), (1e15, 1e15), (None, None)]


def algorithms(workload):
    """Return the best scheme of each template, and of each of Winograd's tiles; direct's first."""
    found = {}
    for scheme in registry.schemes(workload, HOST):
        found.setdefault((scheme.template, getattr(scheme, "tile", 0)), scheme)
    plain = [s for s in found.values() if isinstance(s, DirectScheme)]
    return [*plain, *(s for s in found.values() if not isinstance(s, DirectScheme))]


def build(workload, schemes):
    """Return one function per scheme."""
    return build_all(
        {f"f{i}": registry.lower(workload, scheme, HOST) for i, scheme in enumerate(schemes)}
    )


def scaled(operands, data, weights):
    """Return operands of another magnitude; for None it differs between input channels."""
    channels = operands.data.shape[1]
    if data is None:
        each = (10.0 ** np.linspace(-6, 6, channels)).astype(np.float32).reshape(1, -1, 1, 1)
        per_group = operands.weights.shape[1]
        if per_group < channels:  # each group has its own
            inverse = np.repeat(
                1 / each.reshape(-1, per_group), len(operands.weights) // (channels // per_group), 0
            )
            inverse = inverse.reshape(len(operands.weights), per_group, 1, 1)
        else:
            inverse = 1 / each
        return replace(operands, data=operands.data * each, weights=operands.weights * inverse)
    return replace(
        operands,
        data=operands.data * np.float32(data),
        weights=operands.weights * np.float32(weights),
    )


def error(function, workload, scheme, operands):
    """Return the norm-wise error of one kernel against float64."""
    packed = registry.pack_weights(operands.weights, workload, scheme)
    arguments = kernel_arguments(workload, scheme, operands, packed)
    output = tvm.runtime.tensor(
        np.full(scheme.out_layout.shape(workload.output_shape), np.nan, "f")
    )
    function(*(tvm.runtime.tensor(np.ascontiguousarray(x)) for x in arguments), output)
    got = scheme.out_layout.unpack(output.numpy(), workload.out_channels).astype(np.float64)
    truth = convolve(workload, operands.data.astype(np.float64), operands.weights)
    largest = np.abs(truth).max()
    return np.linalg.norm((got - truth) / largest) / np.linalg.norm(truth / largest)


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_errors_are_within_their_factor_of_direct_summation(workload):
    schemes = algorithms(workload)
    functions = build(workload, schemes)
    for data, weights in MAGNITUDES:
        operands = scaled(random_operands(workload, 3), data, weights)
        errors = [
            error(function, workload, scheme, operands)
            for function, scheme in zip(functions, schemes, strict=True)
        ]
        for scheme, found in zip(schemes[1:], errors[1:], strict=True):
            # Two orders of the same sums differ too.
            most = 1.3 * registry.error_bound(scheme, workload) * errors[0]
            if isinstance(scheme, SplitScheme):  # errs as much in short sums as in long ones
                most = max(most, SPLIT_ERROR)
            assert found <= most, scheme
        assert errors[0] < 1e-6


@pytest.mark.parametrize("out_bn", [0, LANES])
@pytest.mark.parametrize("groups", [1, 2])
def test_split_sums_err_less(groups, out_bn):
    workload = conv_workload(1, 192 * groups, 6, 7, 32, (3, 3), padding=ONE, groups=groups)
    plain = DirectScheme(
        LANES, 2 * LANES if groups == 1 else LANES, reg_n=3, unroll_ker=False, reg_oh=2
    )
    if out_bn and out_bn != plain.oc_bn:
        plain = replace(plain, out_bn=out_bn)
    split = registry.exact_form(SHORT_SUMS, plain, workload)
    each = 9 * split.sum_chunks * LANES
    assert 0 < each <= conv2d_direct.PART
    assert replace(split, sum_chunks=0) == plain
    assert scheme_from_json(split.to_json()) == split
    operands = random_operands(workload, 3)
    functions = build(workload, [plain, split])
    before, after = (
        error(function, workload, scheme, operands)
        for function, scheme in zip(functions, (plain, split), strict=True)
    )
    assert after < 0.6 * before


def test_only_long_sums_are_split():
    scheme = DirectScheme(8, 16, reg_n=3, unroll_ker=False)
    short = conv_workload(1, 32, 8, 8, 16, (3, 3))
    long = replace(short, in_channels=256)
    few = DirectScheme(64, 16, reg_n=3, unroll_ker=False)
    assert registry.exact_form(SHORT_SUMS, scheme, short) == scheme
    assert registry.exact_form(EVERY_TILE, scheme, long) == scheme
    assert registry.exact_form(SHORT_SUMS, scheme, long).sum_chunks > 0
    assert registry.exact_form(SHORT_SUMS, few, long) == few  # four parts only


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_strict_leaves_direct_summation_alone(workload):
    every = registry.schemes(workload, HOST)
    strict = registry.admitted(SHORT_SUMS, every, workload)
    assert strict
    assert not any(isinstance(scheme, WinogradScheme) for scheme in strict)
    assert registry.admitted(EVERY_TILE, every, workload) == every


def test_long_sums_go_to_templates_that_split_them():
    long = conv_workload(1, 512, 8, 8, 64, (3, 3), padding=ONE)
    strict = registry.admitted(SHORT_SUMS, registry.schemes(long, HOST), long)
    assert {scheme.template for scheme in strict} == {DirectScheme.template}
    # A single output channel has no other template.
    single = replace(long, out_channels=1)
    found = registry.schemes(single, HOST)
    every = tuple(scheme for scheme in found if not isinstance(scheme, SplitScheme))
    assert registry.admitted(SHORT_SUMS, every, single) == every


def test_levels_are_ordered_and_named():
    assert STRICT.bound < DEFAULT.bound
    assert DEFAULT.admissions == LADDER
    assert STRICT.admissions == (SHORT_SUMS,)


def test_every_rung_is_stricter_than_the_one_before():
    rungs = [(rung.error_factor, rung.longest_sum) for rung in LADDER]
    assert rungs == sorted(set(rungs), reverse=True)
    assert all(1 <= factor < math.inf for factor, _ in rungs)


def test_levels_are_known_by_name():
    assert [parse_accuracy(name) for name in LEVELS] == [DEFAULT, STRICT]
    with pytest.raises(UsageError, match="did you mean 'strict'"):
        parse_accuracy("strikt")
