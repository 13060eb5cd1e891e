"""What kernels are predicted to take, of what a plan knows about their calls."""

import pytest

from neocpu.building.kernel_report import KnownCalls
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
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
