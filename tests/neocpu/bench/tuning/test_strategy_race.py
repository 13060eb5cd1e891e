"""The race of search strategies: by replay, its tables, its document and its chart."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace

import onnx
import pytest
from page_sections import parts_in
from replay import TARGET, THREADS, WORKLOADS, recorded, records

import neocpu.search.measuring.local_measurer
from neocpu.bench.results import chart
from neocpu.bench.results.document import Run
from neocpu.bench.results.machine import describe
from neocpu.bench.tuning.strategy_curves import race_chart, strategy_curves
from neocpu.bench.tuning.strategy_race import MOMENTS, WARM_MOMENTS, RaceOptions, race
from neocpu.bench.tuning.strategy_tables import render, tables
from neocpu.bench.tuning.tuning_chart import draw_race
from neocpu.cli.main import main
from neocpu.foundation.progress import silent
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.schedules import registry
from neocpu.search.measuring.measure import Measurement, ReplayMeasurer
from neocpu.search.tuning_curve import CurvePoint

NETWORK = [WORKLOADS[0], WORKLOADS[0], WORKLOADS[1]]


@pytest.fixture(scope="module")
def report():
    replay = recorded(WORKLOADS[:2])
    return race(
        "net",
        NETWORK,
        TARGET,
        THREADS,
        RaceOptions(seeds=2, history=tuple(records(WORKLOADS[1:3]))),
        lambda: nullcontext(ReplayMeasurer(replay)),
        silent,
    )


def test_every_strategy_runs_once_per_seed_and_the_grid_once(report):
    runs = [(run.strategy, run.seed, run.warm) for run in report.runs]
    assert runs == [
        ("grid", 0, False),
        *[(name, seed, False) for name in ("random", "xgb") for seed in (0, 1)],
        *[("xgb", seed, True) for seed in (0, 1)],
    ]


def test_the_grid_measures_all_and_is_the_reference(report):
    grid = report.runs[0]
    assert grid.trials == report.candidates == len(recorded(WORKLOADS[:2]))
    assert report.workloads == 2
    best = [min(m.seconds[0] for r, m in recorded([w]).items()) for w in WORKLOADS[:2]]
    assert report.best == pytest.approx(2 * best[0] + best[1])
    assert list(grid.excess.values()) == [0.0]


def test_runs_are_judged_at_their_moments_and_never_beat_an_exact_grid(report):
    for run in report.runs[1:]:
        assert tuple(run.excess) == (WARM_MOMENTS if run.warm else MOMENTS)
        assert min(run.excess.values()) >= -1e-12
        assert run.curve[0].cost >= run.curve[-1].cost
    # Instant measurements: a random run has measured all there is long before its end.
    assert report.runs[1].excess[MOMENTS[-1]] == 0.0


def test_json_round_trips(report):
    assert json.loads(json.dumps(report.to_json()))["candidates"] == report.candidates


def test_json_of_a_grid_whose_winner_failed_when_judged(report):
    run = replace(report.runs[0], excess={10.0: math.nan})
    data = replace(report, best=math.inf, runs=(run,)).to_json()
    assert json.loads(json.dumps(data, allow_nan=False))["best_us"] is None


def test_tables_and_document_name_every_run(report, tmp_path):
    cold, warm = tables(report)
    assert [row[:2] for row in cold.rows] == [
        (name, seed) for name in ("random", "xgb") for seed in "01"
    ]
    assert len(warm.rows) == 2
    assert cold.rows[0][-1] == "+0.0%"
    run = Run("neocpu bench tuning net", describe(), (), (THREADS,), 0)
    text = render("Tuning", [report], run, {"Tuning of net": "tuning-net.svg"})
    assert "![Tuning of net](tuning-net.svg)" in text
    assert "neocpu bench tuning net" in text
    path = tmp_path / "curves.svg"
    draw_race(path, report, "note")
    drawn = path.read_text()
    assert "xgb, knowing other networks" in drawn
    assert "grid" in drawn


def known(values):
    """Those of a curve before its runs have ended."""
    return [value for value in values if value is not None]


def test_a_strategy_is_one_curve_with_its_spread(report):
    curves = {curve.label: curve for curve in strategy_curves(report)}
    assert list(curves) == ["grid", "random", "xgb", "xgb, knowing other networks"]
    assert curves["grid"].middle == curves["grid"].low == curves["grid"].high
    assert known(curves["grid"].middle)[-1] == pytest.approx(0.0)
    random = [run for run in report.runs if run.strategy == "random"]
    ends = [run.curve[-1].cost / report.best - 1 for run in random]
    last = [known(getattr(curves["random"], name))[-1] for name in ("low", "middle", "high")]
    assert last == pytest.approx([min(ends), sum(ends) / 2, max(ends)])
    assert len({curve.seconds for curve in curves.values()}) == 1
    chart = race_chart(report)
    assert [line.label for line in chart.lines] == list(curves)
    assert chart.lines[1].high == curves["random"].high


def test_what_a_run_finds_last_is_told_between_a_curves_places(report):
    """Two runs of one strategy end at 1.0 and 1.001 s: nearer than places are to one another."""
    grid, first, second = report.runs[:3]
    runs = [replace(grid, curve=(CurvePoint(0.0, 0, 9.0), CurvePoint(100.0, 9, 1.0)))]
    for run, end in ((first, 1.0), (second, 1.001)):
        curve = (CurvePoint(0.0, 0, 9.0), CurvePoint(0.01, 1, 3.0), CurvePoint(end, 2, 1.0))
        runs.append(replace(run, curve=curve))
    middle = strategy_curves(replace(report, best=1.0, runs=tuple(runs)))[1].middle
    assert known(middle)[-3:] == [2.0, 1.0, 0.0]


class Estimates:
    """A measurer that takes no time: every scheme is as fast as estimated."""

    batch = 64

    def __init__(self, target, threads):
        self.target, self.threads = target, threads

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def measure(self, requests):
        return self.compare(requests, 2)

    def compare(self, requests, rounds):
        for request in dict.fromkeys(requests):
            one = registry.estimate(request.workload, request.scheme, self.target, self.threads)
            yield Measurement(request, (one,) * rounds)

    def check(self, requests):
        return (Measurement(request, ()) for request in dict.fromkeys(requests))


class TestCommand:
    @pytest.fixture(autouse=True)
    def instant(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(neocpu.search.measuring.local_measurer, "LocalMeasurer", Estimates)

    @pytest.fixture
    def tiny(self, tmp_path):
        """Path of a network of one convolution, twice."""
        return self.save(tmp_path / "tiny.onnx", convolutions=2)

    def save(self, path, convolutions):
        net = NetworkBuilder(path.stem, (1, 8, 6, 6), seed=0)
        x = net.relu(net.input, "relu")
        for number in range(convolutions):
            x = net.relu(net.conv(x, f"conv{number}", 8, 1), f"relu{number}")
        onnx.save(net.finish(net.classifier(x, "fc", 10)), path)
        return path

    def bench(self, *arguments):
        return main(["bench", "tuning", "--seeds", "1", *map(str, arguments)])

    def test_writes_what_it_prints(self, tiny, tmp_path, capsys):
        pytest.importorskip("matplotlib")
        known = tmp_path / "known.jsonl"
        known.write_text("".join(record.to_line() for record in records(WORKLOADS[:1])))
        assert self.bench(tiny, "--db", known, "-o", "tuning.md", "--html", "page.html") == 0
        assert len(parts_in(tmp_path / "page.html", "chart")) == 1
        captured = capsys.readouterr()
        assert "tiny from an empty database" in captured.out
        assert "tiny from other networks' records" in captured.out
        assert "written: tuning-tiny.svg" in captured.err
        text = (tmp_path / "tuning.md").read_text()
        assert "# Tuning of " in text
        assert "(tuning-tiny.svg)" in text
        assert (tmp_path / "tuning-tiny.svg").exists()

    def test_json_without_matplotlib(self, tiny, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(chart, "available", lambda: False)
        assert self.bench(tiny, "--json", "-o", "tuning.md") == 0
        captured = capsys.readouterr()
        (result,) = json.loads(captured.out)["results"]
        assert (result["model"], result["workloads"]) == ("tiny", 1)
        assert [run["strategy"] for run in result["runs"]] == ["grid", "random", "xgb"]
        assert captured.err.index("matplotlib is not installed") < captured.err.index("grid, seed")
        assert "![" not in (tmp_path / "tuning.md").read_text()

    def test_a_failure_leaves_the_others_results(self, tiny, tmp_path, capsys):
        bare = self.save(tmp_path / "bare.onnx", convolutions=0)
        assert self.bench("missing.onnx", bare, tiny) == 3
        captured = capsys.readouterr()
        assert "tiny from an empty database" in captured.out
        assert "bare has no convolutions to tune" in captured.err
        assert captured.err.splitlines()[-1] == (
            f"neocpu: error: missing.onnx, {bare} failed; the other results stand"
        )

    def test_an_interruption_shows_what_is_there(self, tiny, monkeypatch, capsys, report):
        def race_models(*_):
            yield report
            raise KeyboardInterrupt

        monkeypatch.setattr("neocpu.bench.tuning.strategy_race.race_models", race_models)
        assert self.bench(tiny, "b.onnx", "-o", "tuning.md") == 130
        captured = capsys.readouterr()
        assert "net from an empty database" in captured.out
        assert captured.err.splitlines()[-1] == (
            "neocpu: error: interrupted; 1 of 2 models measured"
        )

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (["x.onnx", "--kernels", "--chart", "c.svg"], 2, "no option --kernels"),
            (["x.onnx", "--threads", "1,2"], 2, "'1,2' is not a valid integer"),
            (["x.so"], 2, "neocpu bench tuning needs a MODEL"),
            (["x.onnx", "-o", "tuning.txt"], 2, "name a FILE.md"),
            (["x.onnx", "--seeds", "0"], 2, "'--seeds'"),
            (["resnet51"], 2, "no built-in network 'resnet51'"),
            (["x.onnx"], 3, "no such model file"),
            (["resnet18", "--db", "missing.jsonl"], 7, "missing.jsonl"),
        ],
    )
    def test_what_is_wrong_is_said(self, arguments, code, words, capsys, monkeypatch):
        monkeypatch.setattr("neocpu.foundation.host.usable_cpus", lambda: 2)
        assert self.bench(*arguments) == code
        assert words in capsys.readouterr().err.splitlines()[-1]

    def test_help_names_its_options(self, capsys):
        assert main(["bench", "tuning", "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "The runs of each strategy." in text
