"""The plans of a set are timed when it is compiled."""

import pytest

from neocpu.compilation import shape_sets
from neocpu.compilation.shape_sets import MOST_TURNS, SECONDS, TURNS, Batches, quickest_seconds
from neocpu.foundation.tensor_spec import TensorSpec


def batches(plans, width=3):
    return Batches([TensorSpec("x", "float32", (1, width))], plans)


class Machine:
    """A clock that calls advance by their plan's seconds times the machine's slowness."""

    def __init__(self, monkeypatch, took, slowness=lambda now: 1.0):
        self.now, self.took, self.slowness, self.sizes = 0.0, took, slowness, []
        monkeypatch.setattr(shape_sets.time, "perf_counter", lambda: self.now)

    def run(self, inputs):
        size = len(inputs["x"])
        self.sizes.append(size)
        self.now += self.took[size] * self.slowness(self.now)
        return {}


def test_plans_do_as_many_rows_in_a_turn(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.0, 2: 0.0, 5: 0.0})
    quickest_seconds(machine.run, [batches({5: 0, 2: 1, 1: 2})])
    assert machine.sizes == [1, 2, 5] + [1, 1, 1, 1, 1, 2, 2, 5] * MOST_TURNS


def test_a_slow_machine_is_given_few_turns(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.4 * SECONDS, 4: SECONDS})
    quickest_seconds(machine.run, [batches({1: 0, 4: 1})])
    assert machine.sizes == [1, 4] + [1, 1, 1, 1, 4] * TURNS


def test_a_plan_without_rivals_is_timed_too(monkeypatch):
    machine, told = Machine(monkeypatch, {2: 0.25}), []
    found = quickest_seconds(machine.run, [batches({2: 0}), batches({2: 1}, 5)], told.append)
    assert found == {0: 0.25, 1: 0.25}
    assert machine.sizes == [2, 2] * (1 + TURNS)
    assert told == []


def test_plans_are_compared_by_their_times_while_the_machine_is_fast(monkeypatch):
    slow = Machine(monkeypatch, {1: 0.03, 4: 0.10}, lambda now: 1.0 if 5.0 < now < 7.0 else 1.3)
    found = quickest_seconds(slow.run, [batches({1: 1, 4: 0})])
    assert found == pytest.approx({1: 0.03, 0: 0.10})


def test_batches_of_other_images_take_turns_in_the_same_seconds(monkeypatch):
    machine = Machine(monkeypatch, {1: SECONDS, 3: SECONDS, 2: SECONDS})
    found = quickest_seconds(machine.run, [batches({1: 0, 3: 2}), batches({2: 1}, 5)])
    assert machine.sizes == [1, 3, 2] + [1, 1, 1, 3, 2] * TURNS
    assert found == pytest.approx({0: SECONDS, 1: SECONDS, 2: SECONDS})


def test_turns_end_with_their_time_budget_and_report_progress(monkeypatch):
    machine, told = Machine(monkeypatch, {1: SECONDS / 8, 2: SECONDS / 8}), []
    quickest_seconds(machine.run, [batches({1: 0, 2: 1})], told.append)
    assert machine.sizes == [1, 2] + [1, 1, 2] * len(told)
    assert [each.done for each in told] == [0, 4, 9]
    assert {(each.phase, each.total) for each in told} == {("time batches", 12)}
