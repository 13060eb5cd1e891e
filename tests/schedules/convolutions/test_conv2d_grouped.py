"""Grouped convolution, a lane per output channel, against a naive reference."""

from dataclasses import replace

import pytest
from conv_reference import EPILOGUES, check_template
from kernel_harness import FOREIGN, HOST, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions.in_groups import conv2d_grouped as template
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.scheme import GroupedScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

HASWELL = FOREIGN[0]  # vectors of eight
ONE = (1, 1, 1, 1)


def grouped(width, groups, height, columns, kernel=(3, 3), batch=1, **options):
    channels = width * groups
    size = (batch, channels, height, columns, channels)
    return Conv2dWorkload(*size, kernel, groups=groups, **options)


WORKLOADS = [
    grouped(2, 5, 5, 7, padding=ONE),
    grouped(4, 32, 9, 11, padding=ONE, stride=(2, 2)),
    grouped(4, 3, 7, 7, dilation=(2, 2), padding=(2, 1, 2, 3)),
    grouped(8, 3, 6, 14, padding=ONE),
    grouped(16, 3, 7, 7, padding=ONE),
    grouped(32, 2, 8, 5, (5, 1)),
    grouped(24, 2, 1, 1, (1, 1)),
    grouped(4, 4, 4, 4, padding=ONE),
    grouped(8, 8, 8, 8, padding=ONE),
    grouped(24, 5, 3, 3, padding=ONE),  # blocks of 16 would end within a sixth group
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_schemes_match_naive(workload):
    assert template.applies(workload, HASWELL)
    schemes = template.space(workload, HASWELL)
    assert 0 < len(schemes) <= 12
    for scheme in dict.fromkeys((schemes[0], schemes[-1])):
        check_template(template, workload, scheme, target=HASWELL)


@pytest.mark.parametrize("epilogue", EPILOGUES[1:2], ids=str)
@pytest.mark.parametrize("blocks", [(8, 32), (32, 16)], ids=str)
def test_folds(epilogue, blocks):
    workload = replace(grouped(4, 23, 6, 9, padding=ONE, batch=2), epilogue=epilogue)
    layouts = tuple(map(DataLayout, blocks))
    scheme = template.fold(workload, GroupedScheme(8, 4, True), *layouts, HASWELL)
    assert (scheme.in_layout, scheme.out_layout) == layouts
    check_template(template, workload, scheme, threads=2, target=HASWELL)


def test_no_block_ends_within_a_group():
    """A vector reads all channels of its group: none may lie behind the last block."""
    workload = grouped(24, 5, 3, 3)
    assert {s.oc_bn for s in template.space(workload, HASWELL)} == {8}
    wide = DataLayout(16)
    assert template.fold(workload, GroupedScheme(8, 3, True), wide, wide, HASWELL) is None


def test_applies_to_groups_that_vectors_can_follow():
    assert not template.applies(Conv2dWorkload(1, 8, 4, 4, 16, (3, 3), groups=4), HASWELL)
    assert not template.applies(grouped(3, 8, 4, 4), HASWELL)
    assert not template.applies(grouped(1, 8, 4, 4), HASWELL)
    assert not template.applies(grouped(8, 1, 4, 4), HASWELL)


def test_a_vector_spans_groups_without_waste():
    """ResNeXt's first stage: groups of four channels, vectors of eight."""
    workload = grouped(4, 32, 56, 56, padding=ONE)
    best = registry.schemes(workload, HASWELL)[0]
    assert isinstance(best, GroupedScheme)
    assert "vpermilps" in compile_for(template.lower(workload, best, HASWELL), HASWELL)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_compiles_for_other_cpus(target):
    workload = grouped(4, 16, 14, 14, padding=ONE)
    func = template.lower(workload, template.space(workload, target)[0], target, threads=2)
    fma = "fmla" if target.machine == "aarch64" else "vfmadd"
    assert fma in compile_for(func, target)


def test_the_host_has_schemes_of_whole_vectors():
    workload = grouped(2 * HOST.lanes("float32"), 4, 14, 14, padding=ONE)
    assert all(s.oc_bn % HOST.lanes("float32") == 0 for s in template.space(workload, HOST))
