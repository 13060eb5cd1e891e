"""What kernels are predicted to take, of what a plan knows about their calls."""

import pytest

from neocpu.building.kernel_report import KnownCalls, kernel_reports
from neocpu.building.program import Program
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.runtime.header_parts import Repeat
from neocpu.schedules.estimates.kernel_work import CLASSES, LoopWork
from neocpu.schedules.vocabulary.target import parse_target

CALLS = 3


@pytest.fixture
def network():
    return NetworkCosts.of(parse_target("llvm -mcpu=znver5"), 2, 1e6)


def seconds(network, time):
    return KnownCalls("dense", (time,)).report("dense_0", CALLS, network, enters=False).seconds


def test_what_computes_little_takes_as_long_as_its_maps_are_moved(network):
    found = seconds(network, NetworkTime(1e-9, 0.0, "dense", streamed=1e6))
    assert found == pytest.approx(CALLS * network.streaming(1e6), rel=0.01)


def test_what_computes_much_hides_most_of_that(network):
    alone = seconds(network, NetworkTime(1.0, 0.0, "dense"))
    assert alone == CALLS * network.pace("dense")
    assert alone < seconds(network, NetworkTime(1.0, 0.0, "dense", streamed=1e6)) < 1.01 * alone


def test_what_calls_take_that_data_may_make_needless(network):
    nest = LoopWork(1.0, 0.0, (1e6,) * len(CLASSES), 0.0, 0.0, 0.0)
    calls = tuple((name, ()) for name in "abbbc")
    # The second and third call may be left out, the fourth is made five times in any case.
    repeats = (Repeat(1, 3, 1, unless=0), Repeat(3, 4, 5))
    program = Program((), calls, (), repeats)
    work = dict.fromkeys("abc", (nest,))
    reports = {each.name: each for each in kernel_reports(program, work, {}, network, 0)}
    assert reports["b"].calls == 7
    assert reports["b"].skippable == pytest.approx(reports["b"].seconds * 2 / 7)
    assert sum(each.skippable for each in reports.values()) == reports["b"].skippable
