"""Strategies by replay of simulated measurements: no clocks, no kernels."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay import OTHER_CPU, SPACE, TARGET, THREADS, WORKLOADS, Spy, open_store, recorded, records

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import TransformScheme
from neocpu.search.budget import Budget
from neocpu.search.cost_model import LearnedCostModel
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.strategies import WorkloadState
from neocpu.search.strategies.simple import AnalyticStrategy, GridStrategy, RandomStrategy
from neocpu.search.strategies.xgb import SINGLE_EVERY, XgbStrategy, expected_improvement
from neocpu.search.tuner import tune
from neocpu.search.tuning_state import TuningTask
from neocpu.tuning_db.record import Record, Result

TUNED, ELSEWHERE = WORKLOADS[:3], WORKLOADS[3:]
COUNTS = (3, 1, 5)
RECORDED = recorded()


def xgb(history=(), seed: int = 0) -> XgbStrategy:
    return XgbStrategy(LearnedCostModel(TARGET, THREADS, registry.estimate, history, seed))


def run(strategy, database: Path, trials=None, space=SPACE, measurements=RECORDED, tasks=None):
    spy = Spy(measurements)
    report = tune(
        tasks or [TuningTask(w, (c,)) for w, c in zip(TUNED, COUNTS, strict=True)],
        target=TARGET,
        threads=THREADS,
        store=open_store(database),
        measurer=spy,
        strategy=strategy,
        space=space,
        budget=Budget(trials=trials),
    )
    return report, spy


def cost(report) -> float:
    """Return the seconds of all convolutions with the best schemes found."""
    return sum(task.task.count * task.best.result.best for task in report.tasks)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory):
    report, _ = run(GridStrategy(), tmp_path_factory.mktemp("grid") / "db")
    assert report.left == 0
    return report


def states() -> list[WorkloadState]:
    """Nothing measured yet."""
    found = []
    for workload, count in zip(TUNED, COUNTS, strict=True):
        estimates = {s: SPACE.estimate(workload, s) for s in SPACE.schemes(workload)}
        ordered = dict(sorted(estimates.items(), key=lambda pair: pair[1]))
        found.append(WorkloadState(workload, (count,), tuple(ordered), {}, ordered))
    return found


def test_every_strategy_proposes_distinct_candidates():
    legal = {Request(s.workload, scheme) for s in states() for scheme in s.candidates}
    for strategy in (GridStrategy(), RandomStrategy(1), xgb()):
        picked = strategy.propose(states(), 10)
        assert len(picked) == len(set(picked)) == 10
        assert set(picked) <= legal
    assert not AnalyticStrategy().propose(states(), 10)


def test_random_draws_from_all_workloads_alike():
    every = sum(len(s.candidates) for s in states())
    drawn = RandomStrategy(3).propose(states(), every // 2)
    for state in states():
        share = sum(r.workload == state.workload for r in drawn) / len(state.candidates)
        assert share == pytest.approx(0.5, abs=0.25)
    assert drawn == RandomStrategy(3).propose(states(), every // 2)
    assert drawn != RandomStrategy(4).propose(states(), every // 2)


def test_xgb_comes_near_the_grid_with_a_fraction_of_its_trials(tmp_path: Path, grid):
    trials = grid.measured // 4
    found = {
        name: cost(run(strategy, tmp_path / name, trials)[0]) / cost(grid) - 1
        for name, strategy in (("xgb", xgb()), ("random", RandomStrategy(0)))
    }
    assert 0 <= found["xgb"] < 0.01
    assert found["xgb"] < found["random"]


def test_xgb_ends_by_itself_near_the_grid(tmp_path: Path, grid):
    report, spy = run(xgb(), tmp_path / "db")
    assert len(spy.measured) == len(set(spy.measured)) == report.measured < 0.7 * grid.measured
    assert report.left == grid.measured - report.measured
    assert cost(report) / cost(grid) - 1 < 0.005
    # A second run ends after at most one batch.
    assert run(xgb(), tmp_path / "db")[0].measured <= Spy.batch


@pytest.mark.parametrize("target", [TARGET, OTHER_CPU])
def test_records_of_other_workloads_and_cpus_make_a_warm_start(tmp_path: Path, grid, target):
    history = records(ELSEWHERE if target == TARGET else WORKLOADS, target)
    trials = 2 * len(TUNED)
    cold, warm = (
        cost(run(xgb(known), tmp_path / name, trials)[0]) / cost(grid) - 1
        for name, known in (("cold", ()), ("warm", history))
    )
    assert warm < cold


def test_equal_seeds_and_measurements_give_equal_searches(tmp_path: Path):
    history = records(ELSEWHERE)
    runs = [
        run(xgb(history, seed), tmp_path / name, 40)[1].measured
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_records_of_numerics_that_no_cpu_has_here_teach_nothing(tmp_path: Path):
    history = list(records(ELSEWHERE))
    odd = replace(history[0].workload, numerics=Numerics.uniform("float64"))
    strange = replace(history[0], workload=odd)
    runs = [
        run(xgb(known, 1), tmp_path / name, 20)[1].measured
        for name, known in (("with", [*history, strange]), ("without", history))
    ]
    assert runs[0] == runs[1]


def test_the_budget_goes_where_the_network_spends_its_time(tmp_path: Path):
    tasks = [TuningTask(TUNED[0], (1000,)), TuningTask(TUNED[1]), TuningTask(TUNED[2])]
    _, spy = run(xgb(), tmp_path / "db", 16, tasks=tasks)
    assert sum(r.workload == TUNED[0] for r in spy.measured) > 12


def test_failures_are_no_end_and_teach_nothing_wrong(tmp_path: Path, grid):
    broken = {
        r: Measurement(r, (), "crashed") if r.workload == TUNED[0] else m
        for r, m in RECORDED.items()
    }
    report, _ = run(xgb(), tmp_path / "db", measurements=broken)
    assert report.tasks[0].best is None
    assert report.tasks[0].left == 0
    for task, exhaustive in zip(report.tasks[1:], grid.tasks[1:], strict=True):
        assert task.best.result.best / exhaustive.best.result.best - 1 < 0.01


def test_a_workload_that_never_works_is_no_end_either():
    """The workload has no best scheme, so gains of the others are measured by estimates."""
    dead, *others = states()
    failed = {s: failure(dead.workload, s) for s in dead.candidates}
    dead = dataclasses.replace(dead, candidates=(), records=failed)
    assert len(xgb().propose([dead, *others], 8)) == 8


def failure(workload, scheme) -> Record:
    (record, *_) = records([workload])
    return dataclasses.replace(record, scheme=scheme, result=Result((), "crashed"))


def test_each_of_several_networks_comes_near_its_own_grid(tmp_path: Path, grid):
    """A network with a thousandth of the other's time still counts."""
    tasks = [TuningTask(TUNED[0], (1000, 0)), TuningTask(TUNED[1], (0, 1))]
    report, _ = run(xgb(), tmp_path / "db", tasks=tasks)
    for task, exhaustive in zip(report.tasks, grid.tasks, strict=False):
        assert task.left > 0
        assert task.best.result.best / exhaustive.best.result.best - 1 < 0.005
    # Early on too, both get their share.
    _, spy = run(xgb(), tmp_path / "early", 32, tasks=tasks)
    assert min(sum(r.workload == w for r in spy.measured) for w in TUNED[:2]) >= 8


def with_transforms(count: int):
    """Return a space with transforms and convolutions, their measurements and tasks."""
    transforms = [
        TransformWorkload(batch=1, channels=64, height=56, width=7 + i, in_block=8, out_block=16)
        for i in range(count)
    ]
    requests = [Request(w, TransformScheme()) for w in transforms]
    space = dataclasses.replace(
        SPACE,
        schemes=lambda w: SPACE.schemes(w) if w in TUNED else [TransformScheme()],
        estimate=lambda w, s: SPACE.estimate(w, s) if w in TUNED else w.width * 1e-6,
    )
    measurements = RECORDED | {r: Measurement(r, (1e-3, 1e-3)) for r in requests}
    return requests, space, measurements, [*map(TuningTask, transforms), *map(TuningTask, TUNED)]


def test_workloads_with_one_scheme_get_a_small_share(tmp_path: Path):
    requests, space, measurements, tasks = with_transforms(9)
    _, spy = run(xgb(), tmp_path / "db", 2 * SINGLE_EVERY, space, measurements, tasks)
    found = [r for r in spy.measured if r in requests]
    assert found == requests[:-3:-1]  # the most expensive ones
    assert len(spy.measured) == 2 * SINGLE_EVERY


def test_workloads_with_one_scheme_are_all_measured_in_the_end(tmp_path: Path):
    requests, space, measurements, tasks = with_transforms(20)
    report, spy = run(xgb(), tmp_path / "db", None, space, measurements, tasks)
    assert set(requests) < set(spy.measured)
    assert spy.measured[-1] in requests
    assert report.tasks[-1].left > 0


def test_expected_improvement_is_the_mean_gain():
    normal = np.random.default_rng(0).standard_normal(200_000)
    for predicted, error, best in ((0.0, 0.2, 0.1), (0.5, 0.3, 0.0), (-1.0, 0.1, 0.0)):
        gained = np.maximum(math.exp(best) - np.exp(predicted + error * normal), 0.0).mean()
        assert expected_improvement(predicted, error, best) == pytest.approx(gained, rel=0.02)
    assert expected_improvement(50.0, 0.1, 0.0) == 0.0


def test_a_model_without_records_is_the_estimate():
    for state in states():
        model = LearnedCostModel(TARGET, THREADS, registry.estimate, (), 0)
        model.learn([state])
        expected = [math.log(state.estimates[s]) for s in state.candidates]
        np.testing.assert_allclose(model.predict([state])[0], expected, rtol=1e-5)


def test_xgboost_is_loaded_only_if_it_is_used():
    script = "import sys, neocpu.compilation.network_tuning; assert 'xgboost' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
