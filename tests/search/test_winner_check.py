"""Winners are compared again if in doubt, checked, and replaced if they are wrong."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import fake_builder as fake
import pytest
import test_tuner
from fake_builder import TARGET, WORKLOAD, open_store
from replay import Spy

from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.scheme import NchwScheme, Scheme, TransformScheme
from neocpu.search.budget import Budget
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.tuner import TuneReport
from neocpu.search.tuning_state import SearchSpace, TuningTask
from neocpu.search.winner_check import LEAST_NOISE, TURNS, doubt, noise
from neocpu.tuning_db.record import Result, Workload

OTHER = dataclasses.replace(WORKLOAD, height=16)


class Replay(Spy):
    """A replay whose comparisons give other seconds than its measurements."""

    def __init__(self, recorded, wrong=None, again=None) -> None:
        super().__init__(recorded, wrong)
        self.again = again or {}

    def compare(self, requests, rounds):
        for measurement in super().compare(requests, rounds):
            yield self.again.get(measurement.request, measurement)


def request(index: int, workload=WORKLOAD) -> Request:
    return Request(workload, NchwScheme(fake.GOOD, index + 1))


def measured(*results: tuple[float, ...], workload=WORKLOAD) -> dict[Request, Measurement]:
    requests = [request(i, workload) for i in range(len(results))]
    return {r: Measurement(r, s) for r, s in zip(requests, results, strict=True)}


def run(database: Path, replay: Replay, **options) -> TuneReport:
    schemes: dict[Workload, list[Scheme]] = {}
    for each in replay._recorded:
        schemes.setdefault(each.workload, []).append(each.scheme)
    space = SearchSpace(
        schemes=schemes.__getitem__,
        estimate=lambda workload, scheme: 1e-3,
        template_version=lambda name: 1,
    )
    tasks = list(map(TuningTask, schemes))
    return test_tuner.run(open_store(database), replay, tasks, space=space, **options)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "records.jsonl"


def test_noise_is_the_spread_of_the_repeats():
    assert noise(Result((2.0,))) == 0.0
    assert noise(Result((2.0, 2.2, 2.1))) == pytest.approx(0.05)
    assert doubt(Result((2.0, 2.0))) == LEAST_NOISE
    assert doubt(Result((2.0, 2.2, 2.1) * 6)) == pytest.approx(0.05 / 3)


def test_a_clear_winner_is_checked_and_not_compared(database: Path):
    replay = Replay(measured((1e-3,) * 4, (2e-3,) * 4))
    (task,) = run(database, replay).tasks
    assert replay.compared == []
    assert replay.checked == [request(0)]
    assert task.checked
    assert task.noise == 0.0


def test_candidates_closer_than_the_noise_are_compared_in_turns(database: Path):
    recorded = measured((1.00e-3, 1.05e-3), (1.01e-3, 1.05e-3), (1.5e-3,) * 2)
    again = {request(1): Measurement(request(1), (0.9e-3,) * 4)}
    replay = Replay(recorded, again=again)
    (task,) = run(database, replay).tasks
    assert replay.compared == [request(0), request(1)]
    assert task.best.scheme == request(1).scheme
    # All seconds so far are kept, on one record.
    assert task.best.result.seconds == (1.01e-3, 1.05e-3, *(0.9e-3,) * 4)
    kept = open_store(database).results(WORKLOAD, TARGET, 2)
    assert kept[request(1).scheme] == task.best
    assert len(kept) == task.measured == 3
    assert replay.checked == [request(1)]


def test_equals_are_not_compared_for_ever(database: Path):
    replay = Replay(measured((1e-3,) * 2, (1e-3,) * 2))
    run(database, replay)
    assert len(replay.compared) == 2 * TURNS


@pytest.mark.parametrize("seconds", [(1e-3, 1.5e-3), (0.5e-3, 0.5e-3)])
def test_a_suspicious_winner_is_compared_with_the_runner_up(database: Path, seconds):
    others = [(1.7e-3 + i * 1e-4,) * 2 for i in range(4)]
    replay = Replay(measured(seconds, *others))
    run(database, replay)
    assert set(replay.compared) == {request(0), request(1)}


def test_a_repeat_that_cannot_be_true_is_dropped(database: Path):
    others = [(1.0e-3 + i * 1e-4,) * 2 for i in range(4)]
    again = {request(0): Measurement(request(0), (1.3e-3,) * 4)}
    replay = Replay(measured((0.1e-3, 1.31e-3), *others), again=again)
    (task,) = run(database, replay).tasks
    assert task.best.scheme == request(1).scheme
    kept = open_store(database).results(WORKLOAD, TARGET, 2)
    assert kept[request(0).scheme].result.seconds == (1.31e-3, *(1.3e-3,) * 4)


def test_a_wrong_winner_is_recorded_and_the_next_best_checked(database: Path):
    recorded = measured((1e-3,) * 2, (2e-3,) * 2, (3e-3,) * 2)
    reason = "wrong answer: largest error 0.3 of the output's scale"
    replay = Replay(recorded, wrong={request(0): reason, request(1): reason})
    (task,) = run(database, replay).tasks
    assert replay.checked == [request(0), request(1), request(2)]
    assert task.best.scheme == request(2).scheme
    assert (task.checked, task.failed, task.measured) == (True, 2, 3)
    kept = open_store(database)
    assert kept.results(WORKLOAD, TARGET, 2)[request(0).scheme].result.error == reason
    # It stays out, and a winner of an earlier run is not checked again.
    again = Replay(recorded)
    assert run(database, again).tasks[0].best.scheme == request(2).scheme
    assert again.measured == again.checked == []


def test_a_burst_of_noise_while_comparing_changes_nothing(database: Path):
    """A scheme that was fast three times stays the winner, however slow the turns are."""
    recorded = measured((1.00e-3,) * 3, (1.001e-3,) * 3, (1.5e-3,) * 3)
    again = {request(i): Measurement(request(i), (2e-3,) * 4) for i in range(2)}
    (task,) = run(database, Replay(recorded, again=again)).tasks
    assert task.best.scheme == request(0).scheme
    assert task.best.result.best == 1e-3


def test_the_only_scheme_of_a_workload_is_timed_again_with_the_others(database: Path):
    recorded = measured((1.0e-3,) * 3) | measured((3e-3,) * 3, workload=OTHER)
    again = {request(0): Measurement(request(0), (0.9e-3,) * 4)}
    replay = Replay(recorded, again=again)
    report = run(database, replay)
    assert replay.compared == [request(0, OTHER), request(0)] * TURNS
    assert [task.best.result.best for task in report.tasks] == [0.9e-3, 3e-3]


def test_workloads_without_a_reference_are_not_checked(database: Path):
    transform = TransformWorkload(batch=1, channels=8, height=8, width=8, in_block=1, out_block=8)
    only = Request(transform, TransformScheme())
    replay = Replay(measured((1e-3,) * 3) | {only: Measurement(only, (1e-5,) * 3)})
    report = run(database, replay)
    assert replay.checked == [request(0)]
    assert [task.checked for task in report.tasks] == [True, False]


def test_a_winner_that_an_interrupted_run_left_is_checked(database: Path):
    recorded = measured((1e-3,) * 2, (2e-3,) * 2, (3e-3,) * 2)
    run(database, Replay(recorded), budget=Budget(trials=2))
    reason = "wrong answer: not finite"
    replay = Replay(recorded, wrong={request(0): reason})
    (task,) = run(database, replay).tasks
    assert replay.measured == [request(2)]
    assert replay.checked == [request(0), request(1)]
    assert task.best.scheme == request(1).scheme


def test_a_winner_is_compared_with_an_earlier_runs_winner(database: Path):
    recorded = measured((1.5e-3,) * 2, (1.4e-3,) * 2, (1e-3,) * 2)
    run(database, Replay(recorded), budget=Budget(trials=2))
    again = {request(1): Measurement(request(1), (0.9e-3,) * 4)}
    replay = Replay(recorded, again=again)  # that day everything took longer
    (task,) = run(database, replay).tasks
    assert replay.measured == [request(2)]
    assert replay.compared == [request(2), request(1)]
    assert task.best.scheme == request(1).scheme
    # Where nothing new wins there is nothing to compare.
    last = Replay(recorded)
    run(database, last)
    assert last.compared == []


def test_a_candidate_that_crashes_in_a_comparison_is_dropped(database: Path):
    crash = Measurement(request(0), (), "crashed: signal 11")
    replay = Replay(measured((1e-3,) * 2, (1.001e-3,) * 2), again={request(0): crash})
    (task,) = run(database, replay).tasks
    assert task.best.scheme == request(1).scheme
    assert task.failed == 1


def test_the_costly_workloads_come_first_and_the_budget_holds(database: Path):
    recorded = measured((1e-3,) * 2) | measured((2e-3,) * 2, workload=OTHER)
    replay = Replay(recorded)
    run(database, replay)
    assert replay.checked == [request(0, OTHER), request(0)]
    late = iter([0.0] * 4 + [math.inf] * 99)
    stopped = Replay(recorded)
    run(database.with_name("b"), stopped, budget=Budget(seconds=9.0), clock=lambda: next(late))
    assert stopped.measured
    assert stopped.compared == stopped.checked == []
