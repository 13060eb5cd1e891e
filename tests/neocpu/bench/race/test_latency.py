"""Interleaved measurement, with contenders whose speed is known, and latency over threads."""

import json
import math
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neocpu.bench.engines.contenders import (
    Contender,
    ContenderError,
    ContenderProcess,
    Failure,
    Usage,
)
from neocpu.bench.race import latency as scaling
from neocpu.bench.race.latency import (
    LatencyOptions,
    ScalingReport,
    measure_latency,
    measure_scaling,
)
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult
from neocpu.foundation.machine.machine_info import CpuTime, own_cpu_seconds
from neocpu.foundation.peers import installed

QUICK = LatencyOptions(rounds=5, round_seconds=0.02, warmup_seconds=0.0)


class FakeProcess:
    """A contender that says how long it ran instead of running."""

    def __init__(self, log, label, seconds, output, fails_at):
        self.version, self.load_seconds, self.output_names = "1", 0.1, ("boxes",)
        self.closed, self.computes_in = False, "f32" if label == "wide" else ""
        self._log, self._label, self._seconds, self._output = log, label, seconds, output
        self._calls, self._fails_at = 0, fails_at

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def outputs(self):
        if isinstance(self._output, np.ndarray):
            return (self._output,)
        return (np.full(4, self._output),)

    def usage(self):
        return Usage(cpu_seconds=0.0, peak_rss=50_000_000)

    def run(self, times, untimed=0):
        self._calls += 1
        if self._calls == self._fails_at:
            raise ContenderError("out of breath")
        self._log.append((self._label, times))
        seconds = self._seconds(self._calls) if callable(self._seconds) else self._seconds
        return (seconds,) * times


def _idle():
    """Counters of a machine on which nothing else happens."""
    return CpuTime(0.0, 0.0, 0.0)


def _measure(contenders, options=QUICK, reference=None, cpu_time=_idle):
    """Measure ``{label: (seconds, output, call that fails)}``; return report, log, processes."""
    log, processes = [], []

    def start(contender, threads, inputs):
        assert inputs.exists()
        processes.append(FakeProcess(log, contender.label, *contenders[contender.label]))
        return processes[-1]

    entries = [Contender(label, "fake", Path("model")) for label in contenders]
    report = measure_latency(
        entries, {"x": np.zeros(1)}, 2, options, reference=reference, start=start, cpu_time=cpu_time
    )
    return report, log, processes


def test_medians_and_ratio():
    report, _, processes = _measure({"a": (0.002, 1.0, 0), "b": (0.004, 1.0, 0)})
    a, b = report.results
    assert (a.median, b.median) == (0.002, 0.004)
    ratio = report.ratio(a, b)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    assert report.warnings == ()
    assert all(process.closed for process in processes)


def test_engines_without_bfloat16_are_named():
    report, _, _ = _measure({"a": (0.002, 1.0, 0), "wide": (0.004, 1.0, 0)})
    assert report.warnings == ("no bfloat16 on this CPU, float32 instead: wide",)
    assert [one["computes_in"] for one in report.to_json()["results"]] == ["", "f32"]


def test_rounds_are_interleaved_in_changing_order():
    report, log, _ = _measure({name: (0.002, 1.0, 0) for name in "abc"})
    measured = [label for label, times in log if times > 2]
    rounds = [measured[i : i + 3] for i in range(0, len(measured), 3)]
    assert len(rounds) == QUICK.rounds
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    assert all(len(result.rounds) == QUICK.rounds for result in report.results)


def test_the_slowest_decides_how_often_all_run():
    _, log, _ = _measure({"slow": (0.005, 1.0, 0), "fast": (0.0001, 1.0, 0)})
    counts = Counter(times for _, times in log if times > 2)
    assert set(counts) == {round(QUICK.round_seconds / 0.005)}


@pytest.mark.parametrize("call", [1, 3])
def test_a_failing_engine_is_dropped_and_the_others_continue(call):
    report, _, _ = _measure({"a": (0.002, 1.0, call), "b": (0.004, 1.0, 0)})
    assert [result.label for result in report.results] == ["b"]
    assert report.reference == "b"
    assert report.warnings == ("a failed: out of breath",)


def test_a_process_that_dies_on_the_way_is_out_and_its_time_is_no_other_programs():
    command = (sys.executable, str(Path(__file__).parents[1] / "fake_contender.py"))

    def start(contender, threads, inputs):
        return ContenderProcess(contender, threads, inputs, command=command, timeout=20)

    contenders = [Contender("a", "fake", Path("die")), Contender("b", "fake", Path("well"))]
    before = own_cpu_seconds()
    report = measure_latency(contenders, {"x": np.zeros(1)}, 1, QUICK, start=start)
    assert [result.label for result in report.results] == ["b"]
    (failure,) = report.failures
    assert failure.reason == "its process ended (killed by SIGABRT)"
    assert own_cpu_seconds() - before > 0.3


def test_an_engine_that_does_not_start_is_dropped():
    def start(contender, threads, inputs):
        raise ContenderError("no engine")

    report = measure_latency(
        [Contender("a", "fake", Path("model"))], {"x": np.zeros(1)}, 1, QUICK, start=start
    )
    assert report.results == ()
    assert report.warnings == ("a failed: no engine",)


def test_a_fast_wrong_contender_is_called_out():
    report, _, _ = _measure({"a": (0.001, 1.1, 0), "b": (0.004, 1.0, 0)}, reference="b")
    wrong, right = report.results
    assert wrong.error == pytest.approx(0.1)
    assert not wrong.agrees
    assert right.error == 0
    assert report.warnings == ("a disagrees with b: relative error 0.1, tolerance 0.001",)


def test_another_number_of_rows_is_named():
    rows = {"a": (0.001, np.ones((153, 4)), 0), "b": (0.002, np.ones((152, 4)), 0)}
    report, _, _ = _measure(rows, reference="b")
    assert report.results[0].error == math.inf
    assert report.warnings == ("a disagrees with b: boxes (153, 4) vs (152, 4)",)


@pytest.mark.parametrize(
    ("outputs", "reference", "overruled", "wrong"),
    [
        ((1.0, 2.0, 1.0), "c", "b", ["b"]),
        ((1.0, 2.0, 3.0), "b", None, ["a", "c"]),
        ((1.0, 1.0, 2.0), "b", None, ["a"]),
    ],
)
def test_a_reference_that_all_others_contradict_is_the_wrong_one(
    outputs, reference, overruled, wrong
):
    contenders = {label: (0.001, output, 0) for label, output in zip("cba", outputs, strict=True)}
    report, _, _ = _measure(contenders, reference="b")
    assert (report.reference, report.overruled) == (reference, overruled)
    assert sorted(r.label for r in report.results if not r.agrees) == wrong
    if overruled:
        assert report.warnings == (
            "b disagrees with all others, which agree with each other: "
            "relative error 1, tolerance 0.001",
        )


def test_two_contenders_cannot_outvote_each_other():
    report, _, _ = _measure({"a": (0.001, 1.0, 0), "b": (0.001, 2.0, 0)}, reference="b")
    assert (report.reference, report.overruled) == ("b", None)


def test_percentiles_of_all_runs():
    report, _, _ = _measure(
        {"a": (lambda call: call * 1e-3, 1.0, 0)},
        LatencyOptions(rounds=10, round_seconds=0, warmup_seconds=0),
    )
    (result,) = report.results
    runs = [seconds for one in result.rounds for seconds in one]
    assert [result.p50, result.p90, result.p99] == list(np.percentile(runs, [50, 90, 99]))
    assert result.median == result.p50
    assert result.peak_rss == 50_000_000


def test_speedup_over_the_best_peer_that_is_right():
    contenders = {
        "neocpu": (0.002, 1.0, 0),
        "wrong": (0.001, 5.0, 0),
        "fast": (0.003, 1.0, 0),
        "slow": (0.004, 1.0, 0),
    }
    report, _, _ = _measure(contenders, reference="slow")
    assert report.best_peer().label == "fast"
    assert report.best_peer("fast").label == "neocpu"
    assert report.inconclusive == ()


def test_without_peers_there_is_no_best_peer():
    report = LatencyReport(
        threads=1, results=(), failures=(Failure("neocpu", "no"),), reference=None
    )
    assert report.best_peer() is None
    assert report.inconclusive == ()


def test_contenders_too_close_to_rank_are_reported():
    jitter = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02]

    def seconds(shift):
        return lambda call: 0.002 * jitter[(call + shift) % len(jitter)]

    report, _, _ = _measure({"neocpu": (seconds(0), 1.0, 0), "peer": (seconds(3), 1.0, 0)})
    assert report.inconclusive == ("neocpu and peer are too close to tell apart.",)


def test_a_busy_machine_is_called_out():
    # Ten seconds on which other programs used 1.5 CPUs and the hypervisor took a twentieth.
    cpus = os.cpu_count()
    counters = iter([CpuTime(0, 0, 0), CpuTime(15, 9.5 * cpus - 15, 0.5 * cpus)])
    report, _, _ = _measure({"a": (0.002, 1.0, 0)}, cpu_time=lambda: next(counters))
    (warning,) = report.warnings
    assert warning == (
        "busy machine: other programs used 1.5 CPUs, the hypervisor took 5% during the measurement"
    )
    assert report.to_json()["other_load"]["cpus"] == pytest.approx(1.5, abs=0.05)


def test_a_noisy_machine_is_called_out():
    noisy = {"a": (lambda call: 0.002 * (1 + call % 2), 1.0, 0), "b": (0.002, 1.0, 0)}
    report, _, _ = _measure(noisy, LatencyOptions(rounds=6, round_seconds=0.02, warmup_seconds=0.0))
    (warning,) = report.warnings
    assert "noisy machine: rounds of a differ" in warning


def test_json_holds_everything():
    report, _, _ = _measure({"a": (0.002, math.nan, 0), "b": (0.004, 1.0, 0)}, reference="b")
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    a, b = document["results"]
    assert a["median"] == 0.002
    assert a["ratios"]["b"]["value"] == 0.5
    assert a["relative_error"] is None
    assert not a["agrees"]
    assert len(b["rounds"]) == QUICK.rounds
    assert document["warnings"]


def test_neocpu_beside_its_peers(linear, linear_onnx, wrong_onnx, linear_inputs):
    contenders = [
        Contender("neocpu", "neocpu", linear.path),
        Contender("onnxruntime", "onnxruntime", linear_onnx),
        Contender("wrong", "onnxruntime", wrong_onnx),
    ]
    if installed("openvino"):
        contenders.append(Contender("openvino", "openvino", linear_onnx))
    if installed("ncnn"):
        contenders.append(Contender("ncnn", "ncnn", linear_onnx))
    report = measure_latency(
        contenders,
        linear_inputs,
        2,
        LatencyOptions(rounds=2, round_seconds=0.01, warmup_seconds=0.0),
        reference="onnxruntime",
    )
    assert report.failures == ()
    agreeing = {result.label for result in report.results if result.agrees}
    assert agreeing == {c.label for c in contenders} - {"wrong"}
    assert all(result.median > 0 for result in report.results)


def test_engines_keep_their_defaults_on_request():
    seen = []

    def start(contender, threads, inputs):
        seen.append(threads)
        return FakeProcess([], contender.label, 0.01, 1.0, 0)

    entries = [Contender("neocpu", "fake", Path("model"))]
    for defaults in (False, True):
        options = replace(QUICK, defaults=defaults)
        report = measure_latency(entries, {}, 2, options, start=start, cpu_time=_idle)
        assert report.defaults == report.to_json()["defaults"] == defaults
    assert seen == [2, None]


def _steady(label, milliseconds, rounds=4):
    return LatencyResult(
        label=label,
        version="1",
        rounds=((milliseconds / 1e3,) * 3,) * rounds,
        load_seconds=0.1,
        error=0.0,
    )


def _of_threads(threads, **milliseconds):
    results = tuple(_steady(label, ms, 3 + threads) for label, ms in milliseconds.items())
    return LatencyReport(threads=threads, results=results, failures=(), reference=results[0].label)


REPORT = ScalingReport(
    {
        1: _of_threads(1, neocpu=40),
        2: _of_threads(2, neocpu=20, late=30),
        4: _of_threads(4, neocpu=16, late=10),
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


def test_json_of_scaling():
    document = json.loads(json.dumps(REPORT.to_json()))
    assert [report["threads"] for report in document["reports"]] == [1, 2, 4]
    assert document["speedups"]["neocpu"]["4"]["value"] == pytest.approx(2.5)


def test_each_number_of_threads_is_measured_once_with_its_own_contenders(monkeypatch):
    asked, said = [], []

    def measure(contenders, inputs, threads, options, *, reference, workspace, on_progress):
        asked.append((contenders, threads, reference, workspace))
        return _of_threads(threads, neocpu=10)

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
    monkeypatch.setattr(scaling, "measure_latency", lambda *_, **__: _of_threads(2, neocpu=10))
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
