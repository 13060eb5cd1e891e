"""The predicted times of kernels, from what a plan knows about their calls."""

from dataclasses import replace

import pytest

from neocpu.building.kernel_report import KnownCalls, kernel_reports, report_shortcomings
from neocpu.building.program import Program
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.runtime.header_parts import Repeat
from neocpu.schedules.estimates.kernel_work import CLASSES, LoopWork, work_seconds
from neocpu.schedules.estimates.shortcomings import AS_IT_STANDS, BY_DATA, Shortcoming
from neocpu.schedules.vocabulary.target_parsing import parse_target

CALLS = 3


@pytest.fixture
def network():
    return NetworkCosts.of(parse_target("llvm -mcpu=znver5"), 2, 1e6)


def seconds(network, time):
    return KnownCalls("dense", (time,)).report("dense_0", CALLS, network, enters=False).seconds


def test_kernels_with_little_arithmetic_take_the_time_of_moving_their_maps(network):
    found = seconds(network, NetworkTime(1e-9, 0.0, "dense", streamed=1e6))
    assert found == pytest.approx(CALLS * network.streaming(1e6), rel=0.01)


def test_kernels_with_much_arithmetic_hide_most_memory_traffic(network):
    alone = seconds(network, NetworkTime(1.0, 0.0, "dense"))
    assert alone == CALLS * network.pace("dense")
    assert alone < seconds(network, NetworkTime(1.0, 0.0, "dense", streamed=1e6)) < 1.01 * alone


def test_the_time_of_calls_that_data_may_skip_is_reported(network):
    nest = LoopWork(
        tasks=1.0, forks=0.0, cycles=(1e6,) * len(CLASSES), size=0.0, from_l2=0.0, again=0.0
    )
    calls = tuple((name, ()) for name in "abbbc")
    # The second and third call may be left out, the fourth is made five times in any case.
    repeats = (Repeat(first=1, end=3, limit=1, unless=0), Repeat(first=3, end=4, limit=5))
    program = Program((), calls, (), repeats)
    work = dict.fromkeys("abc", (nest,))
    reports = {each.name: each for each in kernel_reports(program, work, {}, network, 0, {})}
    assert reports["b"].calls == 7
    assert reports["b"].skippable == pytest.approx(reports["b"].seconds * 2 / 7)
    assert sum(each.skippable for each in reports.values()) == reports["b"].skippable


NEST = LoopWork(
    tasks=16.0,
    forks=1.0,
    cycles=(0.0, 4e6, 0.0, 4e6, *(0.0,) * 4),
    size=1e6,
    from_l2=0.0,
    again=0.0,
)
LACK = Shortcoming(kind="gather", detail="neighbours lie apart")


def lacking(network, name, kind, lack=LACK):
    """Return the report of a kernel with a shortcoming that its plan does not know."""
    known = {name: KnownCalls(kind, (NetworkTime(1e-6, 0.0, kind, streamed=1e6),))}
    program = Program((), ((name, ()),) * CALLS, (), ())
    reports = kernel_reports(program, {name: (NEST,)}, known, network, 0, {name: (lack,)})
    return reports[0], reports


def test_a_kernel_with_a_shortcoming_takes_the_time_of_its_loops(network):
    """The plan assumed a kernel without the shortcoming."""
    report, _ = lacking(network, "relu_0", "relu")
    whole = CALLS * work_seconds((NEST,), network.warm, network.threads)
    assert report.seconds == pytest.approx(whole)
    (found,) = report.lacks
    assert (found.shortcoming.kind, found.shortcoming.detail) == ("gather", "neighbours lie apart")
    assert 0.3 * whole < found.seconds < whole


def test_register_tiles_lack_nothing_but_optimisation(network):
    report, _ = lacking(network, "conv2d_0", "conv2d")
    assert not report.lacks
    assert report.seconds < 1e-3
    report, _ = lacking(network, "conv2d_0", "conv2d", replace(LACK, kind=AS_IT_STANDS))
    assert report.lacks


def test_costly_shortcomings_cause_a_warning_unless_unavoidable(network, caplog):
    _, reports = lacking(network, "relu_0", "relu")
    report_shortcomings(reports)
    (warning,) = caplog.messages
    assert warning.startswith("kernel 'relu_0' is slow (gather: neighbours lie apart): that is")
    caplog.clear()
    _, reports = lacking(network, "relu_0", "relu", replace(LACK, detail=BY_DATA))
    report_shortcomings(reports)
    assert not caplog.messages
