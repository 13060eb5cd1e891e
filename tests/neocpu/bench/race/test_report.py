"""The summary of a race of many models."""

import json
from dataclasses import replace

import pytest
from small_plans import small_plan
from synthetic import model, result, roofline, scaling, suite

from neocpu.bench.race.report import Planned, SuiteReport
from neocpu.bench.results.failure import ModelFailure


def test_geometric_mean_worst_row_and_wins():
    report = suite()
    assert report.geometric_mean == pytest.approx((2.0 * 0.5 * 1.0) ** (1 / 3))
    worst, ratio = report.worst
    assert (worst.name, ratio.value, worst.best_peer.label) == ("lost", 0.5, "openvino")
    assert report.wins == 1


def test_a_lead_within_the_noise_is_no_win():
    one = model("net", 10, 11)
    shaky = replace(one.latency.results[0], rounds=((0.008,), (0.010,), (0.010,), (0.014,)))
    peer = replace(one.latency.results[1], rounds=((0.011,),) * 4)
    noisy = replace(one, latency=replace(one.latency, results=(shaky, peer)))
    assert noisy.ratio.low < 1 < noisy.ratio.value
    assert SuiteReport((noisy,)).wins == 0


def test_prediction_error_is_the_median_of_magnitudes():
    report = suite()
    assert [m.prediction_error for m in report.models] == pytest.approx([-0.1, 0.2, -0.05])
    assert report.prediction_error == pytest.approx(0.1)


def test_wrong_outputs_are_no_part_of_the_mean():
    right = model("right", 10, 20)
    fast = result("neocpu", 1, error=0.5)
    results = (fast, *right.latency.results[1:])
    wrong = replace(right, latency=replace(right.latency, results=results))
    assert wrong.ratio is None
    report = SuiteReport((right, wrong))
    assert (len(report.compared), report.geometric_mean) == (1, 2.0)


def test_a_wrong_peer_is_not_the_best():
    one = model("net", 10, 20)
    results = (*one.latency.results, result("openvino", 1, error=0.5))
    assert replace(one, latency=replace(one.latency, results=results)).ratio.value == 2.0


def test_a_report_without_peers_has_nothing_to_compare():
    report = SuiteReport((model("alone", 10),))
    assert report.geometric_mean is report.worst is None
    assert report.wins == 0
    assert report.summary()["worst"] is None


def test_json_holds_everything():
    one = model("net", 10, 20, scaling=scaling(), roofline=roofline("net"))
    report = SuiteReport((one,), suite().failures)
    summary = json.loads(json.dumps(report.summary(), allow_nan=False))
    assert summary["geometric_mean"] == 2.0
    assert summary["worst"] == {"model": "net", "ratio": 2.0}
    entry = json.loads(json.dumps(one.to_json(), allow_nan=False))
    assert entry["best_peer"] == "onnxruntime"
    assert entry["ratio"] == {"value": 2.0, "low": 2.0, "high": 2.0}
    assert entry["planned"]["predicted"] == 0.01
    assert entry["compilation"]["peak_bytes"] == 800_000_000
    assert {"p50", "p90", "p99"} <= set(entry["latency"]["results"][0])
    assert entry["roofline"]["fma_share"] == pytest.approx(0.5)
    assert len(entry["scaling"]["reports"]) == 2
    assert entry["kernels"] is entry["cold_start"] is None


def test_a_bug_is_named_by_its_type():
    assert ModelFailure("net", ZeroDivisionError("by\nzero")).reason == "ZeroDivisionError: by zero"


def test_a_plan_is_reported_in_seconds():
    plan = small_plan(predicted_us=1500.0)
    plan = replace(plan, search=replace(plan.search, gap=0.5, seconds=2.0))
    assert Planned.of(plan) == Planned(0.0015, 0.5, 2.0)
