"""Busy processes beside a measurement: as many as were asked for, and none of them is left."""

from contextlib import suppress

import psutil
import pytest
from synthetic import latency
from waiting import wait_until

from neocpu.bench.race.neighbour import NeighbourReport, busy_processes


def children():
    return {child.pid for child in psutil.Process().children()}


@pytest.mark.parametrize("count", [1, 2])
def test_they_are_busy_and_end(count):
    before = children()
    with suppress(KeyError), busy_processes(count):
        (*busy,) = map(psutil.Process, children() - before)
        assert len(busy) == count
        wait_until(lambda: all(process.cpu_times().user >= 0.05 for process in busy))
        raise KeyError
    assert children() == before


def test_what_is_lost():
    report = NeighbourReport(1, latency(10, 20, 12), latency(15, 24, 24))
    assert report.loss("neocpu").value == pytest.approx(1.5)
    assert report.loss("ncnn") is None
    label, least = report.smallest_loss
    assert (label, least.value) == ("onnxruntime", pytest.approx(1.2))
    assert report.to_json()["losses"]["openvino"]["value"] == pytest.approx(2)
    assert NeighbourReport(1, latency(1), latency(1)).smallest_loss is None
