"""Deadlines that are put off, on a loop with a clock that the test moves."""

import pytest

from neocpu.serving.http_protocol import Deadline


class Timer:
    def __init__(self, when, call):
        self.end, self.call, self.cancelled = when, call, False

    def when(self):
        return self.end

    def cancel(self):
        self.cancelled = True


class Loop:
    """A clock and its timers."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, call):
        self.timers.append(Timer(when, call))
        return self.timers[-1]

    def go(self, until):
        """Move the clock, and call due timers."""
        while due := [one for one in self.timers if one.end <= until and not one.cancelled]:
            first = min(due, key=Timer.when)
            self.now = max(self.now, first.end)
            self.timers.remove(first)
            first.call()
        self.now = until


@pytest.fixture
def scene():
    loop, late = Loop(), []
    return loop, Deadline(loop, lambda: late.append(loop.now)), late


def test_a_time_ends_once(scene):
    loop, deadline, late = scene
    deadline.set(20)
    assert deadline.is_set
    loop.go(100)
    assert late == [20]
    assert not deadline.is_set


def test_a_time_that_is_put_off_takes_no_other_timer(scene):
    loop, deadline, late = scene
    for now in range(15):
        loop.go(now)
        deadline.set(20)
    assert len(loop.timers) == 1
    loop.go(33.5)
    assert late == []
    loop.go(100)
    assert late == [34]


def test_a_time_that_ends_before_the_one_set_first(scene):
    loop, deadline, late = scene
    deadline.set(60)
    deadline.set(None)
    loop.go(10)
    deadline.set(20)
    loop.go(100)
    assert late == [30]
    assert not [one for one in loop.timers if not one.cancelled]


def test_no_time_is_never_over(scene):
    loop, deadline, late = scene
    deadline.set(20)
    deadline.set(None)
    assert not deadline.is_set
    loop.go(100)
    assert late == []
    deadline.set(5)
    loop.go(200)
    assert late == [105]


def test_what_is_late_may_have_more_time(scene):
    loop, _, late = scene
    deadline = Deadline(loop, lambda: (late.append(loop.now), deadline.set(10)))
    deadline.set(20)
    loop.go(45)
    assert late == [20, 30, 40]
    deadline.close()
    loop.go(100)
    assert late == [20, 30, 40]
