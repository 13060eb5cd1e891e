"""The tuner by replay: no clocks, no kernels."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import fake_builder as fake
import pytest
from fake_builder import TARGET, WORKLOAD, open_store
from processes import alive
from waiting import wait_until

from neocpu.foundation.errors import DatabaseError
from neocpu.schedules.vocabulary.scheme import NchwScheme
from neocpu.search.budget import RESERVE, Budget
from neocpu.search.measuring.local_measurer import LocalMeasurer
from neocpu.search.measuring.measure import Measurement, ReplayMeasurer, Request
from neocpu.search.strategies.simple import (
    FIRST_ROUND,
    AnalyticStrategy,
    GridStrategy,
    RandomStrategy,
)
from neocpu.search.tuner import tune
from neocpu.search.tuning_state import SearchSpace, TuningTask
from neocpu.tuning_db import record_file
from neocpu.tuning_db.record import TargetKey

OTHER = dataclasses.replace(WORKLOAD, height=16)
WORKLOADS = (WORKLOAD, OTHER)
TASKS = tuple(map(TuningTask, WORKLOADS))
SCHEMES = tuple(NchwScheme(fake.GOOD, 100 + i) for i in range(12))
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def true_seconds(workload, scheme) -> float:
    """Return seconds by which reg_n 107 is best, while the estimate prefers 100."""
    return (abs(scheme.reg_n - 107) + 1) * workload.height * 1e-6


RECORDED = {
    Request(w, s): Measurement(Request(w, s), (true_seconds(w, s),))
    for w in WORKLOADS
    for s in SCHEMES
}
SPACE = SearchSpace(
    # Not in the order of the estimates: sorting is the tuner's job.
    schemes=lambda workload: SCHEMES[::-1],
    estimate=lambda workload, scheme: scheme.reg_n * workload.height * 1e-6,
    template_version=lambda name: 1,
)


class Spy:
    """A measurer that notes its requests, and may be interrupted after some."""

    def __init__(self, recorded=RECORDED, interrupt_after: int | None = None) -> None:
        self.replay = ReplayMeasurer(recorded)
        self.seen: list[Request] = []
        self.interrupt_after = interrupt_after
        self.batch = 3

    def measure(self, requests):
        for measurement in self.replay.measure(requests):
            if len(self.seen) == self.interrupt_after:
                raise KeyboardInterrupt
            self.seen.append(measurement.request)
            yield measurement

    def compare(self, requests, rounds):
        return self.replay.compare(requests, rounds)

    def check(self, requests):
        return self.replay.check(requests)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database file that does not exist yet."""
    return tmp_path / "records.jsonl"


def run(store, measurer, tasks=TASKS, **options):
    usual = {"strategy": GridStrategy(), "budget": Budget(), "now": lambda: NOW, "space": SPACE}
    return tune(
        tasks, target=TARGET, threads=2, store=store, measurer=measurer, **(usual | options)
    )


def test_the_grid_measures_everything_once_and_finds_the_best(database: Path):
    spy = Spy()
    report = run(open_store(database), spy)
    assert sorted(map(str, spy.seen)) == sorted(map(str, RECORDED))
    assert (report.measured, report.reused, report.failed, report.left) == (24, 0, 0, 0)
    assert [t.task.workload for t in report.tasks] == list(WORKLOADS)
    for task in report.tasks:
        assert task.best.scheme == NchwScheme(fake.GOOD, 107)
    record = open_store(database).best(WORKLOAD, TARGET, 2)
    assert record == report.tasks[0].best
    assert record.target == TargetKey.of(TARGET, 2)
    assert record.env.template_version == 1
    assert record.env.tvm
    assert record.time == "2026-11-20T12:00:00+00:00"


def test_a_second_run_measures_nothing(database: Path):
    first = run(open_store(database), Spy())
    size = database.stat().st_size
    spy = Spy()
    again = run(open_store(database), spy)
    assert spy.seen == []
    assert (again.measured, again.reused) == (0, 24)
    assert [t.best for t in again.tasks] == [t.best for t in first.tasks]
    assert database.stat().st_size == size


def test_failures_are_kept_with_their_reason_and_not_tried_again(database: Path):
    bad = Request(WORKLOAD, SCHEMES[7])
    lie = Request(OTHER, SCHEMES[3])
    recorded = RECORDED | {
        bad: Measurement(bad, (), "crashed: signal 11"),
        lie: Measurement(lie, (float("nan"),)),
    }
    report = run(open_store(database), Spy(recorded))
    assert report.failed == 2
    assert report.tasks[0].best.scheme != bad.scheme
    known = open_store(database)
    assert known.results(WORKLOAD, TARGET, 2)[bad.scheme].result.error == "crashed: signal 11"
    assert "nan" in known.results(OTHER, TARGET, 2)[lie.scheme].result.error
    spy = Spy()
    run(known, spy)
    assert spy.seen == []


def test_all_workloads_get_their_best_estimates_first(database: Path):
    spy = Spy()
    run(open_store(database), spy, budget=Budget(trials=2 * FIRST_ROUND))
    first = [Request(w, s) for w in (OTHER, WORKLOAD) for s in SCHEMES[:FIRST_ROUND]]
    assert spy.seen == first  # OTHER is the larger one


def test_a_workload_that_runs_more_often_comes_first(database: Path):
    spy = Spy()
    tasks = (TuningTask(OTHER), TuningTask(WORKLOAD, (2, 1)))
    report = run(open_store(database), spy, tasks, budget=Budget(trials=1))
    assert spy.seen == [Request(WORKLOAD, SCHEMES[0])]
    assert [(t.task, t.task.count) for t in report.tasks] == [(tasks[0], 1), (tasks[1], 3)]


@pytest.mark.parametrize("trials", [0, 1, 7, 23, 24, 100])
def test_budget_of_trials(database: Path, trials: int):
    spy = Spy()
    report = run(open_store(database), spy, budget=Budget(trials=trials))
    assert len(spy.seen) == report.measured == min(trials, 24)
    assert report.left == 24 - report.measured
    # A second run does the rest, and repeats nothing.
    rest = Spy()
    run(open_store(database), rest)
    assert len(rest.seen) == 24 - report.measured
    assert not set(rest.seen) & set(spy.seen)


class Slow(Spy):
    """A measurer that takes a second for each measurement."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.now = 100.0

    def measure(self, requests):
        for measurement in super().measure(requests):
            self.now += 1.0
            yield measurement

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("seconds", [1.0, 2.0, 5.5, 10.0, 17.0])
def test_budget_of_seconds(database: Path, seconds: float):
    spy = Slow()
    report = run(open_store(database), spy, budget=Budget(seconds=seconds), clock=spy.clock)
    assert 1 <= len(spy.seen) == report.measured <= seconds + 1
    assert report.measured >= (1 - RESERVE) * seconds - 1
    assert report.seconds == report.measured


def test_a_budget_too_small_for_one_trial_loses_nothing(database: Path):
    spy = Slow()
    report = run(open_store(database), spy, budget=Budget(seconds=0.1), clock=spy.clock)
    assert (report.measured, report.left, report.seconds) == (1, 23, 1.0)
    assert len(open_store(database)) == 1
    assert run(open_store(database), Spy(), budget=Budget(seconds=0.0)).measured == 0


def test_a_clock_running_backwards_does_not_matter(database: Path):
    days = iter(range(28, 0, -1))
    report = run(
        open_store(database), Spy(), tasks=TASKS[:1], now=lambda: NOW.replace(day=next(days))
    )
    assert report.measured == 12
    assert open_store(database).best(WORKLOAD, TARGET, 2) == report.tasks[0].best
    assert run(open_store(database), Spy(), tasks=TASKS[:1]).measured == 0


def test_workloads_that_cannot_be_measured_are_estimated(database: Path):
    report = run(open_store(database), Spy(), strategy=AnalyticStrategy())
    assert (report.measured, report.left) == (0, 24)
    for task in report.tasks:
        assert task.best is None
        assert task.estimate == (SCHEMES[0], SPACE.estimate(task.task.workload, SCHEMES[0]))
    assert not database.exists()


def test_an_interruption_keeps_the_measurements(database: Path):
    spy = Spy(interrupt_after=6)
    reports = []
    with pytest.raises(KeyboardInterrupt):
        run(open_store(database), spy, on_interrupt=reports.append)
    (report,) = reports
    assert report.measured == 6
    assert [trial.scheme for trial in report.trials] == [r.scheme for r in spy.seen]
    kept = open_store(database)
    assert {(r.workload, r.scheme) for r in kept} == {(r.workload, r.scheme) for r in spy.seen}
    rest = Spy()
    assert run(kept, rest).reused == 6
    assert len(rest.seen) == 18


def test_progress_counts_up_to_the_total(database: Path):
    seen = []
    run(open_store(database), Spy(), budget=Budget(trials=10), on_progress=seen.append)
    assert [p.trials for p in seen if p.doing == "measure"] == list(range(1, 11))
    assert [p.doing for p in seen[-2:]] == ["check"] * 2
    assert {p.total for p in seen} == {10}
    bests = [p.best for p in seen if p.workload == OTHER]
    assert bests == sorted(bests, reverse=True)


def test_long_steps_are_announced_before_they_begin(database: Path):
    seen: list[str] = []
    run(
        open_store(database),
        Spy(),
        budget=Budget(trials=4),
        on_stage=lambda s: seen.append(f"{s.doing} {s.count} after {s.trials} of {s.total}"),
        on_progress=lambda p: seen.append(p.doing),
    )
    assert seen == [
        "estimate 2 after 0 of 0",
        "choose 4 after 0 of 4",
        "build 3 after 0 of 4",
        *["measure"] * 3,
        "choose 1 after 3 of 4",
        "build 1 after 3 of 4",
        "measure",
        *["check"] * 1,
    ]


def test_layers_are_listed_by_cost_highest_first(database: Path):
    seen = []
    report = run(open_store(database), Spy(), budget=Budget(trials=10), on_progress=seen.append)
    first, last = seen[0].layers, seen[-1].layers
    assert [layer.workload for layer in first] == [WORKLOAD, OTHER]  # while it is estimated
    assert [layer.workload for layer in last] == [OTHER, WORKLOAD]
    assert [(layer.tried, layer.left) for layer in first] == [(0, 12), (1, 11)]
    assert first[0].now is None
    assert first[0].before == pytest.approx(100 * WORKLOAD.height * 1e-6)
    assert first[1].before == first[1].now == true_seconds(OTHER, SCHEMES[0])
    assert sum(layer.tried for layer in last) == 10
    for layer in last:
        (task,) = (task for task in report.tasks if task.task.workload == layer.workload)
        assert layer.now == task.best.result.best < layer.before == task.before


def test_earlier_choices_are_estimated_in_proportion(database: Path):
    class Last:
        gain_left = 0.25

        def propose(self, states, count):
            return [Request(s.workload, s.candidates[-1]) for s in states if not s.records]

    seen = []
    report = run(open_store(database), Spy(), strategy=Last(), on_progress=seen.append)
    for task in report.tasks:
        ratio = true_seconds(task.task.workload, SCHEMES[-1]) / (111 * task.task.workload.height)
        assert task.before == pytest.approx(100 * task.task.workload.height * ratio)
    assert report.gain_left == seen[-1].gain_left == 0.25


def test_an_earlier_choice_may_come_from_a_relative(database: Path):
    space = dataclasses.replace(SPACE, borrowed=lambda workload: SCHEMES[6])
    report = run(open_store(database), Spy(), space=space)
    for task in report.tasks:
        assert task.before == true_seconds(task.task.workload, SCHEMES[6])
    # What was measured here counts for more.
    again = run(open_store(database), Spy(), space=space)
    assert [task.before for task in again.tasks] == [task.best.result.best for task in report.tasks]


def test_an_unwritable_database_refuses_before_measuring(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(path: Path) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(record_file, "_open_for_append", refuse)
    spy = Spy()
    with pytest.raises(DatabaseError, match="Read-only"):
        run(open_store(database), spy)
    assert spy.seen == []


def test_random_is_seeded_and_complete(database: Path, tmp_path: Path):
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        spy = Spy()
        run(open_store(tmp_path / name), spy, strategy=RandomStrategy(seed))
        assert len(set(spy.seen)) == 24
        orders.append(spy.seen)
    assert orders[0] == orders[1] != orders[2]


def test_a_strategy_that_wants_no_more_ends_the_search(database: Path):
    class Content:
        gain_left = None

        def propose(self, states, count):
            return [Request(s.workload, s.candidates[0]) for s in states if not s.records]

    report = run(open_store(database), Spy(), strategy=Content())
    assert (report.measured, report.left) == (2, 22)


def test_with_real_children(database: Path):
    behaviours = (fake.GOOD, fake.CRASHES, fake.RAISES, fake.BUILD_RAISES)
    space = dataclasses.replace(
        SPACE, schemes=lambda workload: [NchwScheme(b, 100) for b in behaviours]
    )
    with LocalMeasurer(TARGET, 2, children=2, builder="fake_builder:FakeBuilder") as measurer:
        report = run(open_store(database), measurer, TASKS[:1], space=space)
    assert (report.measured, report.failed) == (4, 3)
    assert report.tasks[0].best.scheme.reg_oc == fake.GOOD


def test_ctrl_c_keeps_the_measurements_and_ends_the_children(database: Path, tmp_path: Path):
    script = f"""
import dataclasses, fake_builder as fake, test_tuner as t
from pathlib import Path
from neocpu.schedules.vocabulary.scheme import NchwScheme
schemes = [NchwScheme(b, n) for b, n in ((fake.GOOD, 1), (fake.RAISES, 2), (fake.HANGS, 3))]
space = dataclasses.replace(t.SPACE, schemes=lambda workload: schemes)
with t.LocalMeasurer(fake.TARGET, 2, 60.0, 1, "fake_builder:FakeBuilder") as measurer:
    t.run(t.open_store(Path({str(database)!r})), measurer, t.TASKS[:1], space=space)
"""
    pids = tmp_path / "pids"
    pids.mkdir()
    with fake.start(script, pids) as parent:
        wait_until((pids / fake.HANGING).exists)
        parent.send_signal(signal.SIGINT)
        assert parent.wait(timeout=20) == -signal.SIGINT
    (pids / fake.HANGING).unlink()
    wait_until(lambda: not alive(pids))
    kept = {record.scheme.reg_oc: record.result.error for record in open_store(database)}
    assert kept == {fake.GOOD: None, fake.RAISES: "ValueError: and the cause"}
