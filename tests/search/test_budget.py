"""Batches that keep a budget, without a clock."""

from __future__ import annotations

import math

from neocpu.search.budget import FIRST_GUESS, FIRST_TRIALS, RESERVE, Budget, Pace


class Clock:
    def __init__(self) -> None:
        self.now = -7.0  # the start of a monotonic clock is arbitrary

    def __call__(self) -> float:
        return self.now


def spend(pace: Pace, clock: Clock, trials: int, seconds: float) -> None:
    """Make a batch of ``trials`` that takes ``seconds`` each."""
    pace.begin()
    for _ in range(trials):
        clock.now += seconds
        pace.count()


def test_batches_have_the_requested_size_without_limits():
    pace = Pace(Budget(), clock := Clock())
    for _ in range(3):
        assert pace.next_batch(20) == 20
        spend(pace, clock, 20, 1e6)
    assert pace.left == math.inf


def test_the_last_batch_ends_at_the_trial_limit():
    pace = Pace(Budget(trials=25), clock := Clock())
    sizes = []
    while size := pace.next_batch(10):
        sizes.append(size)
        spend(pace, clock, size, 1.0)
    assert sizes == [10, 10, 5]


def test_batches_shrink_towards_the_end():
    pace = Pace(Budget(seconds=10.0), clock := Clock())
    sizes = []
    while size := pace.next_batch(20):
        sizes.append(size)
        spend(pace, clock, size, 0.2)
    assert sizes[0] == FIRST_TRIALS  # the times of the first batch predict the others
    assert sizes[1] == 20
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert (1 - RESERVE) * 10.0 - 0.2 <= pace.elapsed <= (1 - RESERVE) * 10.0 + 1e-9


def test_the_first_batch_is_small_if_there_is_little_time():
    pace = Pace(Budget(seconds=4 * FIRST_GUESS / (1 - RESERVE)), Clock())
    assert pace.next_batch(20) == 4
    pace = Pace(Budget(seconds=2 * FIRST_GUESS / (1 - RESERVE)), Clock())
    assert pace.next_batch(20) == 2
    assert Pace(Budget(seconds=FIRST_GUESS / 100), Clock()).next_batch(20) == 1


def test_nothing_begins_when_the_time_is_over():
    assert Pace(Budget(seconds=0.0), Clock()).next_batch(20) == 0
    pace = Pace(Budget(seconds=1.0), clock := Clock())
    assert pace.next_batch(20) > 0
    spend(pace, clock, 1, 1.0)
    assert pace.next_batch(20) == 0


def test_thinking_between_batches_does_not_count_as_measuring():
    pace = Pace(Budget(seconds=100.0), clock := Clock())
    pace.next_batch(10)
    spend(pace, clock, 10, 1.0)
    clock.now += 65.0 - RESERVE * 100.0
    assert pace.next_batch(100) == 25
