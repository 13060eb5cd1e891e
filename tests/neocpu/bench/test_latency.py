"""Interleaved measurement, with contenders whose speed is known."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from neocpu.bench.contenders import Contender, ContenderError
from neocpu.bench.engines import installed
from neocpu.bench.latency import LatencyOptions, measure_latency, relative_error

QUICK = LatencyOptions(rounds=5, round_seconds=0.02, warmup_seconds=0.0)


class FakeProcess:
    """A contender that says how long it ran instead of running."""

    def __init__(self, log, label, seconds, output, fails_at):
        self.version, self.load_seconds = "1", 0.1
        self.closed = False
        self._log, self._label, self._seconds, self._output = log, label, seconds, output
        self._calls, self._fails_at = 0, fails_at

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def outputs(self):
        return (np.full(4, self._output),)

    def run(self, times, untimed=0):
        self._calls += 1
        if self._calls == self._fails_at:
            raise ContenderError("out of breath")
        self._log.append((self._label, times))
        seconds = self._seconds(self._calls) if callable(self._seconds) else self._seconds
        return (seconds,) * times


def _measure(contenders, options=QUICK, reference=None):
    """Measure ``{label: (seconds, output, call that fails)}``; return report, log, processes."""
    log, processes = [], []

    def start(contender, threads, inputs):
        assert inputs.exists()
        processes.append(FakeProcess(log, contender.label, *contenders[contender.label]))
        return processes[-1]

    entries = [Contender(label, "fake", Path("model")) for label in contenders]
    report = measure_latency(
        entries, {"x": np.zeros(1)}, 2, options, reference=reference, start=start
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
def test_one_that_fails_is_out_and_the_others_go_on(call):
    report, _, _ = _measure({"a": (0.002, 1.0, call), "b": (0.004, 1.0, 0)})
    assert [result.label for result in report.results] == ["b"]
    assert report.reference == "b"
    assert report.warnings == ("a failed: out of breath",)


def test_one_that_does_not_start_is_out():
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
    assert report.warnings == ("a disagrees with b: relative error 0.1",)


def test_a_noisy_machine_is_called_out():
    noisy = {"a": (lambda call: 0.002 * (1 + call % 2), 1.0, 0), "b": (0.002, 1.0, 0)}
    report, _, _ = _measure(noisy, LatencyOptions(6, 0.02, 0.0))
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


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ([[3.0, 4.0]], [[3.0, 4.0]], 0.0),
        ([[3.0, 4.5]], [[3.0, 4.0]], 0.1),
        ([[0.0, 0.5]], [[0.0, 0.0]], 0.5),
        ([[3.0]], [[3.0, 4.0]], math.inf),
        ([[math.nan, 4.0]], [[3.0, 4.0]], math.inf),
        ([[math.nan, 4.0]], [[math.nan, 4.0]], 0.0),
        ([[1.0], [2.0]], [[1.0]], math.inf),
        ([[1, 2]], [[1, 2]], 0.0),
        ([], [], 0.0),
    ],
)
def test_relative_error_is_norm_wise(output, reference, expected):
    arrays = ([np.array(a) for a in side] for side in (output, reference))
    assert relative_error(*arrays) == pytest.approx(expected)


def test_neocpu_beside_its_peers(linear, linear_onnx, wrong_onnx, linear_inputs):
    contenders = [
        Contender("neocpu", "neocpu", linear.path),
        Contender("onnxruntime", "onnxruntime", linear_onnx),
        Contender("wrong", "onnxruntime", wrong_onnx),
    ]
    if installed("openvino"):
        contenders.append(Contender("openvino", "openvino", linear_onnx))
    report = measure_latency(
        contenders, linear_inputs, 2, LatencyOptions(2, 0.01, 0.0), reference="onnxruntime"
    )
    assert report.failures == ()
    agreeing = {result.label for result in report.results if result.agrees}
    assert agreeing == {c.label for c in contenders} - {"wrong"}
    assert all(result.median > 0 for result in report.results)
