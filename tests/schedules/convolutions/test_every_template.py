"""Each template of float32 convolutions against the reference, at sizes that fit nothing."""

from dataclasses import replace

import numpy as np
import pytest
from conv_reference import EPILOGUES, check_template, written
from conv_workloads import conv_workload
from kernel_harness import FOREIGN, HOST, compile_for

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import random_operands
from neocpu.schedules.vocabulary.workload import EpilogueOp

STEPS = (EpilogueOp("bias_add"), EpilogueOp("relu"))
PAD = (1, 1, 1, 1)
LANES = HOST.lanes("float32")
WORKLOADS = [
    conv_workload(2, 17, 7, 9, 31, (3, 3), padding=(1, 0, 2, 1), epilogue=STEPS),
    conv_workload(1, 32, 9, 7, 48, (1, 1), stride=(2, 2), epilogue=STEPS),
    conv_workload(1, 72, 9, 11, 64, (1, 1), epilogue=STEPS),
    conv_workload(1, 32, 9, 11, 32, (3, 3), padding=PAD, groups=32, epilogue=STEPS),
    conv_workload(1, 64, 9, 11, 64, (3, 3), padding=PAD, groups=4, epilogue=STEPS),
]
# The last block of channels is not full.
PADDED = [
    conv_workload(1, LANES, 5, 7, LANES + 3, (1, 1), epilogue=STEPS),
    conv_workload(1, LANES, 5, 7, LANES + 3, (3, 3), padding=PAD, epilogue=STEPS),
]


def computing(workloads, target=HOST):
    """Return the names of templates with the workloads that they compute."""
    return [
        (name, workload)
        for name in registry.algorithms().values()
        for workload in workloads
        if registry.TEMPLATES[name].applies(workload, target)
    ]


def first_space(name, target=HOST):
    """Return the first workload that a template computes, and its schemes."""
    workload = next(w for each, w in computing(WORKLOADS, target) if each == name)
    return workload, registry.TEMPLATES[name].space(workload, target)


NAMES = sorted({name for name, _ in computing(WORKLOADS)})
# Those of CPUs without tiles, too.
FOREIGN_NAMES = sorted({name for name, _ in computing(WORKLOADS, FOREIGN[0])})


@pytest.mark.parametrize(("name", "workload"), computing(WORKLOADS), ids=str)
def test_the_best_and_the_last_scheme_compute_it(name, workload):
    space = registry.TEMPLATES[name].space(workload, HOST)
    for scheme in dict.fromkeys((space[0], space[-1])):
        check_template(workload, scheme, threads=2)


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_epilogues(name, epilogue):
    workload, space = first_space(name)
    check_template(replace(workload, epilogue=epilogue), space[0])


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_kernels_for_other_cpus_have_fused_multiply_adds(name, target):
    workload, space = first_space(name, target)
    large = replace(workload, height=28, width=28)
    func = registry.lower(large, space[0], target, 2)
    assert "T.parallel" in func.script()
    assert ("fmla" if target.machine == "aarch64" else "vfmadd") in compile_for(func, target)


def padded(name, workload):
    """Return a scheme whose last block is not full; None if the template has none."""
    space = registry.TEMPLATES[name].space(workload, HOST)
    return next((s for s in space if workload.out_channels % s.out_layout.block), None)


@pytest.mark.parametrize("pixel", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("name", "workload"), [each for each in computing(PADDED) if padded(*each)], ids=str
)
def test_padded_lanes_stay_finite_if_the_image_is_not(name, workload, pixel):
    """The next layer reads the lanes after the last channel."""
    scheme, operands = padded(name, workload), random_operands(workload, 1)
    operands.data[:, 1, 2, 3] = pixel
    (got,) = written(workload, scheme, operands)
    own = workload.out_channels % scheme.out_layout.block
    assert np.isfinite(got[:, -1, ..., own:]).all()
    assert not np.isfinite(got[:, -1, ..., :own]).all()


@pytest.mark.parametrize("name", NAMES)
def test_estimates_grow_with_the_work_and_shrink_with_threads(name):
    workload, space = first_space(name)
    large = replace(workload, height=8 * workload.height, width=8 * workload.width)
    small, all_of_it = (registry.estimate(each, space[0], HOST, 2) for each in (workload, large))
    assert 0 < small < all_of_it
    assert 1.5 < registry.estimate(large, space[0], HOST, 1) / all_of_it <= 2.1
