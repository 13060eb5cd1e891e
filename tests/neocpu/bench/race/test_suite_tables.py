"""The summary of a race of many models, and tables with a row for each."""

import json
from dataclasses import replace

import pytest
from small_plans import small_plan
from synthetic import PEERS, model, result, roofline, scaling, suite

from neocpu.bench.engines.contenders import Failure
from neocpu.bench.race import suite_tables
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.bench.race.report import Planned, SuiteReport
from neocpu.bench.results.failure import ModelFailure


def test_summary_in_markdown():
    assert suite_tables.summary_table(suite(), PEERS).markdown() == (
        "### Latency in ms\n"
        "\n"
        "| model | neocpu | onnxruntime | openvino | best peer / neocpu "
        "| predicted | compile s | gap |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| won | **10.00** | 20.00 | 25.00 | 2.00 (2.00 to 2.00) | 9.00 | 7.2 | 0.0% |\n"
        "| lost | 10.00 | 8.00 | **5.00** | 0.50 (0.50 to 0.50) | 12.00 | 7.2 | 0.0% |\n"
        "| even | **10.00** | 10.00 | 30.00 | 1.00 (1.00 to 1.00) | 9.50 | 7.2 | 0.0% |\n"
        "| broken | failed | - | - | - | - | - | - |\n"
        "\n"
        "- Geometric mean of (best peer / neocpu) over 3 models: 1.000.\n"
        "- Worst row: lost, 0.50 (0.50 to 0.50) against openvino.\n"
        "- neocpu is the fastest on 1 of 3 models; on 1 it is too close to tell.\n"
        "- Peak resident memory over the median peer's: geometric mean 1.00, at most 1.00 (won).\n"
        "- Predicted latency is off by 10.0% (median over the models).\n"
        "- broken failed: no kernel for Frobnicate\n"
    )


def test_bad_results_stay_in_the_table():
    one = model("net", 10)
    wrong = result("openvino", 1, error=0.5)
    report = LatencyReport(
        threads=2,
        results=(*one.latency.results, wrong),
        failures=(Failure("onnxruntime", "no"),),
        reference="neocpu",
    )
    table = suite_tables.summary_table(SuiteReport((replace(one, latency=report),)), PEERS)
    assert table.rows[0][1:4] == ("10.00", "failed", "1.00 (wrong)")
    assert table.bold == frozenset()
    assert "net: onnxruntime failed: no" in table.notes
    assert any(note.startswith("net: openvino disagrees with neocpu") for note in table.notes)


def test_a_model_that_failed_late_has_one_row():
    report = SuiteReport((model("net", 10, 20),), (ModelFailure("net", ValueError("late")),))
    table = suite_tables.summary_table(report, PEERS[:1])
    assert len(table.rows) == 1
    assert "net failed: ValueError: late" in table.notes


def test_memory_beside_the_median_peers():
    one = model("net", 10, 20, 20)
    peaks = (60, 40, 80)
    results = [
        replace(result, peak_rss=peak * 10**6)
        for result, peak in zip(one.latency.results, peaks, strict=True)
    ]
    one = replace(one, latency=replace(one.latency, results=tuple(results)))
    unknown = replace(results[0], peak_rss=0)
    other = replace(one, name="other", latency=replace(one.latency, results=(unknown,)))
    table = suite_tables.memory_table((one, other), PEERS)
    assert table.rows == (("net", "60", "40", "80", "1.00"), ("other", "-", "-", "-", "-"))
    report = SuiteReport((replace(one, latency=replace(one.latency, results=tuple(results[:2]))),))
    assert report.summary()["most_memory"] == {"model": "net", "ratio": 1.5}
    assert suite_tables.memory_table((other,), PEERS) is None


def test_percentiles_of_every_engine():
    table = suite_tables.detail_table((model("net", 10, 20),))
    assert table.rows == (
        ("net", "neocpu 1.0", "10.00", "10.00", "10.00", "0.0%", "0.50", "50", "1.0e-07"),
        ("net", "onnxruntime 1.0", "20.00", "20.00", "20.00", "0.0%", "0.50", "50", "reference"),
    )


def test_compilation_beside_its_bound():
    (row,) = suite_tables.compile_table((model("net", 10),)).rows
    # 800 MB of 6 x 100 MB + 1 GB.
    assert row == ("net", "100.0", "104.0", "7.2", "800", "50%")


def test_prediction():
    (row,) = suite_tables.prediction_table((model("net", 10, predicted=9),)).rows
    assert row == ("net", "0.00%", "0.25", "9.00", "10.00", "-10.0%")


def test_roofline():
    table = suite_tables.roofline_table((model("net", 10, roofline=roofline("net")),))
    assert table.rows == (("net", "10.00", "1.00", "100", "50%", "25%", "compute", "5.00", "50%"),)
    assert "200 GFLOP/s" in table.notes[0]
    assert "20.0 GB/s" in table.notes[0]


def test_scaling_of_each_engine():
    table = suite_tables.scaling_table(model("net", 10, scaling=scaling()))
    assert [row[:3] for row in table.rows] == [
        ("1", "20.00 (x 1.00)", "20.00 (x 1.00)"),
        ("2", "10.00 (x 2.00)", "20.00 (x 1.00)"),
    ]


@pytest.mark.parametrize(
    "make", [suite_tables.compile_table, suite_tables.prediction_table, suite_tables.roofline_table]
)
def test_no_table_without_numbers(make):
    bare = replace(model("net", 10), planned=None, compilation=None)
    assert make((bare,)) is None


def test_a_single_model_is_shown_in_full():
    one = model("net", 10, 20, predicted=9, roofline=roofline("net"))
    titles = [table.title for table in suite_tables.model_tables(one)]
    assert titles == ["Latency of net, threads: 2", "Roofline"]
    notes = suite_tables.model_tables(one)[0].notes
    assert "Compiled in 7.2 s with 800 MB of memory; the model has 100.0 MB." in notes
    assert "Predicted: 9.00 ms (-10.0%); search gap 0.0%." in notes


def test_the_table_says_how_much_of_a_mixed_model_is_in_integers():
    one = model("net", 10, 20, predicted=9)
    words = {None: None, 0: "computes what neocpu-fp32 does", 1: "1 layer in", 7: "7 layers in"}
    for layers, said in words.items():
        planned = replace(one.planned, integer_layers=layers)
        notes = suite_tables.model_tables(replace(one, planned=planned))[0].notes
        assert any("in integers" in note for note in notes) == (said is not None)
        assert said is None or any(said in note for note in notes)


def test_peers_faster_forms_count_and_are_named():
    one = model("net", 10, 30)
    forms = result("onnxruntime-s8s8", 20), result("openvino-nncf", 25)
    latency = replace(one.latency, results=(*one.latency.results, *forms), defaults=True)
    report = SuiteReport((replace(one, latency=latency),))
    table = suite_tables.summary_table(report, PEERS[:1])
    assert table.header[:5] == ("model", "neocpu", PEERS[0], "onnxruntime-s8s8", "openvino-nncf")
    assert table.rows[0][1:6] == ("10.00", "30.00", "20.00", "25.00", "2.00 (2.00 to 2.00)")
    assert any("openvino-nncf is the model as NNCF" in note for note in table.notes)
    assert any("onnxruntime-s8s8 the same as int8" in note for note in table.notes)
    assert any("every engine with its own defaults" in note for note in table.notes)


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
