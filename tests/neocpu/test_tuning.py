"""What tuning says of the time it will take."""

import pytest

from neocpu.schedules.workload import Conv2dWorkload
from neocpu.search.budget import Budget
from neocpu.search.tuner import TuneProgress
from neocpu.tuning import _progress

WORKLOAD = Conv2dWorkload(1, 8, 8, 8, 8, (1, 1))


@pytest.mark.parametrize(
    ("trials", "total", "seconds", "budget", "words"),
    [
        (10, 40, 10.0, None, "30 s left"),
        (10, 40, 1.0, None, "3 s left"),
        (10, 610, 20.0, None, "20 min left"),
        (10, 36010, 10.0, None, "10.0 h left"),
        (10, 610, 20.0, 30.0, "10 s left"),
        (10, 20, 50.0, 30.0, "0 s left"),
    ],
)
def test_time_left(trials, total, seconds, budget, words):
    state = TuneProgress("measure", trials, total, 0, seconds, WORKLOAD, None, 42e-6)
    progress = _progress(state, Budget(seconds=budget))
    assert progress.detail.startswith(f"at most {words}; ")
    assert progress.detail.endswith("best 42 us")
    assert (progress.done, progress.total) == (trials, total)


def test_the_end_says_what_it_is():
    state = TuneProgress("compare", 10, 40, 2, 5.0, WORKLOAD, None, 42e-6)
    detail = _progress(state, Budget(seconds=30.0)).detail
    assert detail.startswith("compare winners; ")
    assert detail.endswith(", 2 failed")
