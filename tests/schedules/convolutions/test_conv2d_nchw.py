"""NCHW convolution, grouped or not, against a naive reference."""

from dataclasses import replace

import pytest
from conv_reference import EPILOGUES, check_template
from conv_workloads import conv_workload
from kernel_harness import HOST

from neocpu.schedules.convolutions import conv2d_nchw as template
from neocpu.schedules.vocabulary.scheme import NchwScheme
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp

WORKLOADS = [
    conv_workload(1, 3, 9, 11, 5, (3, 3), padding=(1, 1, 1, 1)),
    conv_workload(2, 17, 7, 7, 31, (1, 1)),
    conv_workload(1, 5, 8, 8, 7, (1, 1), stride=(2, 2)),
    conv_workload(1, 7, 1, 1, 33, (1, 1)),
    conv_workload(3, 1, 13, 20, 1, (5, 2), stride=(1, 3), padding=(2, 0, 1, 1)),
    conv_workload(1, 4, 20, 37, 6, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3)),
    conv_workload(1, 3, 12, 12, 9, (3, 3), dilation=(2, 3), padding=(0, 3, 2, 1)),
    conv_workload(1, 12, 6, 6, 18, (3, 3), groups=6, padding=(1, 1, 1, 1)),
    conv_workload(2, 10, 6, 5, 14, (1, 1), groups=2),
    conv_workload(1, 7, 6, 9, 7, (3, 3), groups=7, stride=(2, 2), padding=(1, 1, 1, 1)),
    conv_workload(8, 8, 8, 8, 8, (3, 3), padding=(1, 1, 1, 1)),
    conv_workload(4, 16, 16, 16, 16, (3, 3), groups=4, padding=(1, 1, 1, 1)),
    conv_workload(1, 3, 5, 2, 4, (3, 2), stride=(2, 3), padding=(1, 2, 1, 1)),
    conv_workload(1, 2, 40, 16, 8, (3, 1), padding=(1, 0, 1, 0)),
    # Images narrower than the stride.
    conv_workload(1, 4, 1, 1, 8, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
    conv_workload(1, 3, 9, 3, 4, (7, 7), stride=(5, 5), padding=(2, 2, 2, 2)),
    conv_workload(1, 4, 2, 2, 8, (5, 5), stride=(3, 3), padding=(2, 2, 2, 2), groups=4),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_every_scheme_matches_naive(workload):
    assert template.applies(workload, HOST)
    schemes = template.space(workload, HOST)
    assert 0 < len(schemes) <= 12
    for scheme in schemes:
        check_template(workload, scheme)


@pytest.mark.parametrize(
    ("size", "reg_n", "rows"), [((12, 16), 16, 6), ((9, 7), 16, 7), ((1, 61), 16, 1)]
)
def test_pixels_of_few_channels_are_several_tasks(size, reg_n, rows):
    """Rows have whole tiles or are padded; one has a prime number of pixels."""
    workload = conv_workload(1, 3, *size, 2, (1, 1), epilogue=(EpilogueOp("gelu"),))
    for threads, tasks in ((1, 1), (3, rows)):
        scheme = NchwScheme(2, reg_n)
        func = template.lower(workload, scheme, HOST, threads)
        assert tasks == 1 or f"T.parallel({tasks})" in func.script()
        check_template(workload, scheme, threads)


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
def test_epilogues_of_pixels(epilogue):
    workload = conv_workload(2, 5, 7, 9, 11, (1, 1), epilogue=epilogue)
    check_template(workload, template.space(workload, HOST)[0])


def test_tiles_do_not_straddle_groups():
    workload = conv_workload(1, 12, 6, 6, 18, (3, 3), groups=6)
    assert {scheme.reg_oc for scheme in template.space(workload, HOST)} <= {1, 3}


def test_images_of_a_batch_do_not_push_each_other_out_of_the_caches():
    target = parse_target("llvm -mcpu=znver3")
    one = conv_workload(1, 64, 14, 14, 96, (1, 1))
    scheme = NchwScheme(4, 24)
    seconds = [template.estimate(replace(one, batch=n), scheme, target) for n in (1, 64)]
    assert 60 * seconds[0] < seconds[1] <= 64 * seconds[0]
