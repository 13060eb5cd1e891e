"""Measuring models one after another: failures and interruptions cost nothing else."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import latency, roofline

from neocpu.bench.engines.contenders import Failure
from neocpu.bench.race import suite
from neocpu.bench.race.latency_report import ScalingReport
from neocpu.bench.race.report import ModelReport
from neocpu.bench.race.suite import Request, measure_models
from neocpu.bench.results.failure import ModelFailure
from neocpu.foundation.errors import UnsupportedError

REQUEST = Request(peers=("onnxruntime",), threads=(2,), rounds=2)


@pytest.fixture
def fake(monkeypatch):
    """Replace compiling and measuring, and keep the requests."""
    asked = SimpleNamespace(folders=[], broken={}, report=latency(10, 20), cold_start=None)

    def find_model(model, folder, **_):
        assert not any(Path(one).exists() for one in asked.folders), "files of an earlier model"
        asked.folders.append(folder)
        if model in asked.broken:
            raise asked.broken[model]
        header = SimpleNamespace(inputs=(), target="llvm", known_plan=None, row_groups=())
        return SimpleNamespace(
            name=model,
            header=header,
            artifact=folder / "module.so",
            compilation=None,
            in_float=None,
            is_quantised=False,
            in_bfloat16=False,
            contenders=lambda peers: ("neocpu", *peers),
            require_model=lambda: folder / "model.onnx",
        )

    def measure_scaling(make_contenders, inputs, threads, *_, **__):
        return ScalingReport(dict.fromkeys(threads, asked.report))

    def measure_cold_start(*_, **__):
        raise asked.cold_start

    monkeypatch.setattr(suite, "find_model", find_model)
    monkeypatch.setattr(suite, "measure_scaling", measure_scaling)
    monkeypatch.setattr(suite, "measure_cold_start", measure_cold_start)
    return asked


def test_a_model_that_fails_is_named_and_the_others_are_measured(fake):
    error = fake.broken["b"] = UnsupportedError("no")
    one, two, three = measure_models(["a", "b", "c"], REQUEST)
    assert (one.name, three.name) == ("a", "c")
    assert two == ModelFailure("b", error)
    assert not any(folder.exists() for folder in fake.folders)


def test_results_measured_before_a_failure_are_kept(fake):
    fake.cold_start = ZeroDivisionError("bug")
    report, failure = measure_models(["a"], replace(REQUEST, cold_start=True))
    assert report.latency is fake.report
    assert failure.reason == "ZeroDivisionError: bug"


def test_results_measured_before_an_interruption_are_kept(fake):
    fake.cold_start = KeyboardInterrupt()
    outcomes = measure_models(["a", "b"], replace(REQUEST, cold_start=True))
    assert next(outcomes).latency is fake.report
    with pytest.raises(KeyboardInterrupt):
        next(outcomes)


def test_an_artifact_that_does_not_run_fails_after_its_peers_were_measured(fake):
    results = fake.report.results[1:]
    fake.report = replace(fake.report, results=results, failures=(Failure("neocpu", "crash"),))
    report, failure = measure_models(["a"], REQUEST)
    assert report.own is None
    assert [r.label for r in report.latency.results] == ["onnxruntime"]
    assert failure.reason == "module.so does not run: crash"


def test_scaling_is_reported_for_several_thread_counts_only(fake):
    (one,) = measure_models(["a"], REQUEST)
    assert one.scaling is None
    (many,) = measure_models(["a"], replace(REQUEST, threads=(1, 2)))
    assert many.scaling.threads == (1, 2)
    assert many.latency is many.scaling.reports[2]


def test_limits_are_measured_once(fake, monkeypatch):
    calls = []
    limits = roofline("x").limits
    monkeypatch.setattr(suite, "measure_limits", lambda *args: calls.append(args) or limits)
    monkeypatch.setattr(suite, "load_model", lambda path: path)
    monkeypatch.setattr(
        suite, "work_of", lambda model: SimpleNamespace(flops=1_000_000_000, bytes=50_000_000)
    )
    reports = list(measure_models(["a", "b"], replace(REQUEST, roofline=True)))
    assert [one.roofline for one in reports] == [roofline("a"), roofline("b")]
    assert len(calls) == 1


def test_progress_names_the_model(fake, monkeypatch):
    def measure_scaling(make_contenders, inputs, threads, options, on_progress, **_):
        on_progress(suite.Progress("measure"))
        return ScalingReport(dict.fromkeys(threads, fake.report))

    monkeypatch.setattr(suite, "measure_scaling", measure_scaling)
    seen = []
    reports = list(measure_models(["a", "b"], REQUEST, lambda p: seen.append(p.phase)))
    assert all(isinstance(report, ModelReport) for report in reports)
    assert seen == ["a (1/2): measure", "b (2/2): measure"]
