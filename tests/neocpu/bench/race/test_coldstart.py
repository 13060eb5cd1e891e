"""Process start to first output."""

import json

import pytest

from neocpu.bench.engines.contenders import Contender
from neocpu.bench.race.coldstart import ColdStartReport, ColdStartResult, Start, measure_cold_start
from neocpu.foundation.peers import PEERS, installed


def test_every_engine_starts(linear, linear_onnx, linear_inputs):
    contenders = [Contender("neocpu", "neocpu", linear.path)]
    contenders += [Contender(peer, peer, linear_onnx) for peer in PEERS if installed(peer)]
    report = measure_cold_start(contenders, linear_inputs, 1, rounds=2)
    assert report.failures == ()
    assert [result.label for result in report.results] == [c.label for c in contenders]
    for result in report.results:
        assert len(result.seconds) == 2
        for start in result.starts:
            steps = (start.imports, start.load, start.first_call, start.second_call)
            assert start.interpreter > 0
            assert min(steps) >= 0
        # A Python process with numpy holds at least this much, and with a toy model no more.
        assert 10e6 < result.peak_bytes < 2e9
        assert 0 <= result.idle_seconds < 2
    json.dumps(report.to_json())


def test_a_failing_engine_is_dropped_and_the_others_continue(linear, linear_inputs, tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"nothing")
    contenders = [Contender("broken", "neocpu", broken), Contender("neocpu", "neocpu", linear.path)]
    report = measure_cold_start(contenders, linear_inputs, 1, rounds=1)
    assert [result.label for result in report.results] == ["neocpu"]
    (failure,) = report.failures
    assert failure.label == "broken"
    assert "broken.so" in failure.reason


def test_ratio_of_medians():
    one = ColdStartResult("a", tuple(Start(s, 0, 0, 0, 9) for s in (0.2, 0.3, 0.4)), 100, 0.0)
    two = ColdStartResult("b", tuple(Start(0, s, 0, 0, 9) for s in (0.4, 0.6, 0.8)), 100, 0.0)
    report = ColdStartReport(1, (one, two), ())
    assert report.ratio(one, two).value == 0.5
    assert one.median == 0.3


def test_the_first_output_is_the_sum_of_the_steps_before_it():
    starts = (Start(0.125, 0.25, 0.5, 1.0, 64.0), Start(0.125, 0.25, 0.0, 1.0, 64.0))
    result = ColdStartResult("a", starts, 100, 0.0)
    assert result.seconds == (1.875, 1.375)
    assert result.step("load") == pytest.approx(0.25)
    assert result.to_json()["steps"]["second_call"] == 64.0
