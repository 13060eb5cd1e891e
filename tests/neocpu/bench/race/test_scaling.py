"""Latency over threads."""

import json

import pytest

from neocpu.bench.engines.contenders import Contender
from neocpu.bench.race import latency as scaling
from neocpu.bench.race.latency import LatencyOptions, ScalingReport, measure_scaling
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult


def _result(label, milliseconds, rounds=4):
    return LatencyResult(
        label=label,
        version="1",
        rounds=((milliseconds / 1e3,) * 3,) * rounds,
        load_seconds=0.1,
        error=0.0,
    )


def _report(threads, **milliseconds):
    results = tuple(_result(label, ms, 3 + threads) for label, ms in milliseconds.items())
    return LatencyReport(threads=threads, results=results, failures=(), reference=results[0].label)


REPORT = ScalingReport(
    {
        1: _report(1, neocpu=40),
        2: _report(2, neocpu=20, late=30),
        4: _report(4, neocpu=16, late=10),
    }
)


def test_speedups_are_over_the_smallest_number_of_threads():
    speedups = REPORT.speedups("neocpu")
    assert {n: ratio.value for n, ratio in speedups.items()} == pytest.approx({1: 1, 2: 2, 4: 2.5})
    assert speedups[4].low == pytest.approx(2.5)


def test_one_that_failed_at_first_is_relative_to_where_it_ran():
    assert {n: r.value for n, r in REPORT.speedups("late").items()} == pytest.approx({2: 1, 4: 3})
    assert REPORT.speedups("never") == {}
    assert REPORT.labels == ("neocpu", "late")
    assert REPORT.threads == (1, 2, 4)


def test_json_holds_everything():
    document = json.loads(json.dumps(REPORT.to_json()))
    assert [report["threads"] for report in document["reports"]] == [1, 2, 4]
    assert document["speedups"]["neocpu"]["4"]["value"] == pytest.approx(2.5)


def test_each_number_of_threads_is_measured_once_with_its_own_contenders(monkeypatch):
    asked, said = [], []

    def measure(contenders, inputs, threads, options, *, reference, workspace, on_progress):
        asked.append((contenders, threads, reference, workspace))
        return _report(threads, neocpu=10)

    monkeypatch.setattr(scaling, "measure_latency", measure)
    contenders = {n: [Contender("neocpu", "neocpu", f"{n}.so")] for n in (1, 2)}
    report = measure_scaling(
        contenders.__getitem__,
        {},
        [2, 1, 2],
        LatencyOptions(),
        said.append,
        reference="onnxruntime",
    )
    assert report.threads == (1, 2)
    assert [one[:3] for one in asked] == [(contenders[n], n, "onnxruntime") for n in (1, 2)]
    # Models converted for one number of threads are found again for the next.
    assert asked[0][3] == asked[1][3]
    assert [(one.phase, one.done, one.detail) for one in said] == [
        ("scaling", 0, "1 thread"),
        ("scaling", 1, "2 threads"),
    ]


def test_a_single_number_of_threads_is_no_scaling(monkeypatch):
    monkeypatch.setattr(scaling, "measure_latency", lambda *_, **__: _report(2, neocpu=10))
    said = []
    measure_scaling(lambda _: [], {}, [2], LatencyOptions(), said.append)
    assert said == []


def test_real_contenders_at_two_thread_counts(linear, linear_inputs):
    contenders = [Contender("neocpu", "neocpu", linear.path)]
    report = measure_scaling(
        lambda _: contenders,
        linear_inputs,
        [1, 2],
        LatencyOptions(rounds=2, round_seconds=0.01, warmup_seconds=0.0),
    )
    assert [one.threads for one in report.reports.values()] == [1, 2]
    assert report.speedups("neocpu")[2].value > 0
