"""How plans of a set are timed when it is compiled."""

import pytest

from neocpu.shape_sets import plan_seconds
from neocpu.shape_sets.plan_seconds import MOST_TURNS, SECONDS, TURNS, quickest_seconds
from neocpu.tensor_spec import TensorSpec

INPUTS = [TensorSpec("x", "float32", (1, 3))]


class Machine:
    """A clock that calls move on, by their plan's seconds and how slow the machine is."""

    def __init__(self, monkeypatch, took, slowness=lambda now: 1.0):
        self.now, self.took, self.slowness, self.sizes = 0.0, took, slowness, []
        monkeypatch.setattr(plan_seconds.time, "perf_counter", lambda: self.now)

    def run(self, inputs):
        size = len(inputs["x"])
        self.sizes.append(size)
        self.now += self.took[size] * self.slowness(self.now)
        return {}


def test_plans_do_as_many_rows_in_a_turn(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.0, 2: 0.0, 5: 0.0})
    quickest_seconds(machine.run, INPUTS, (5, 2, 1))
    assert machine.sizes == [1, 2, 5] + [1, 1, 1, 1, 1, 2, 2, 5] * MOST_TURNS


def test_a_slow_machine_is_given_few_turns(monkeypatch):
    machine = Machine(monkeypatch, {1: 0.4 * SECONDS, 4: SECONDS})
    quickest_seconds(machine.run, INPUTS, (1, 4))
    assert machine.sizes == [1, 4] + [1, 1, 1, 1, 4] * TURNS


def test_turns_end_with_their_seconds(monkeypatch):
    machine = Machine(monkeypatch, {2: SECONDS / 10})
    quickest_seconds(machine.run, INPUTS, [2])
    assert 1 + TURNS < len(machine.sizes) < 1 + MOST_TURNS
    assert machine.now == pytest.approx(SECONDS * 1.1, rel=0.1)


def test_plans_are_compared_by_what_they_take_while_the_machine_is_fast(monkeypatch):
    took = {1: 0.030, 4: 0.100}
    slow = Machine(monkeypatch, took, lambda now: 1.0 if 5.0 < now < 7.0 else 1.3)
    assert quickest_seconds(slow.run, INPUTS, [1, 4]) == pytest.approx(took)
