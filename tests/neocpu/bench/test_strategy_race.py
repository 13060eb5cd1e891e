"""The race of search strategies: by replay, its tables, its document and its chart."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from replay import TARGET, THREADS, WORKLOADS, recorded, records

from neocpu.bench import chart
from neocpu.bench.document import Run
from neocpu.bench.machine import describe
from neocpu.bench.strategy_race import MOMENTS, WARM_MOMENTS, RaceOptions, race
from neocpu.bench.strategy_tables import render, tables
from neocpu.progress import silent
from neocpu.search.measure import ReplayMeasurer

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


def test_tables_and_document_name_every_run(report, tmp_path):
    cold, warm = tables(report)
    assert [row[:2] for row in cold.rows] == [
        (name, seed) for name in ("random", "xgb") for seed in "01"
    ]
    assert len(warm.rows) == 2
    assert cold.rows[0][-1] == "+0.0%"
    run = Run("neocpu bench net --strategies", describe(), (), (THREADS,), 0)
    text = render("Tuning", [report], run, {"Tuning of net": "tuning-net.svg"})
    assert "![Tuning of net](tuning-net.svg)" in text
    assert "neocpu bench net --strategies" in text
    path = tmp_path / "curves.svg"
    chart.draw_race(path, report, "note")
    drawn = path.read_text()
    assert "xgb, knowing other networks" in drawn
    assert "grid" in drawn
