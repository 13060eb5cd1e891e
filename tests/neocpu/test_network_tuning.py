"""What tuning is asked to do, and what it says of the time it will take."""

import dataclasses
import math

import pytest
from command_line import conv_model

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.network_tuning import _progress, tuning_tasks
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.budget import Budget
from neocpu.search.tuner import TuneProgress
from neocpu.search.tuning_state import TuningTask

WORKLOAD = Conv2dWorkload(1, 8, 8, 8, 8, (1, 1))
OTHER = dataclasses.replace(WORKLOAD, height=16)


def test_what_networks_share_is_one_task_that_knows_how_often_each_runs_it():
    assert tuning_tasks([[WORKLOAD, OTHER, WORKLOAD], [OTHER]]) == [
        TuningTask(WORKLOAD, (2, 0)),
        TuningTask(OTHER, (1, 1)),
    ]


@pytest.mark.parametrize("limit", [{"budget": -1.0}, {"budget": math.nan}, {"trials": -1}], ids=str)
def test_impossible_limits(limit):
    with pytest.raises(UsageError, match="0 or more"):
        neocpu.tune([conv_model()], **limit)


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


def test_where_nothing_has_worked_there_is_no_best():
    state = TuneProgress("measure", 1, 9, 1, 1.0, WORKLOAD, None, math.inf)
    assert _progress(state, Budget()).detail.endswith("none works yet, 1 failed")


def test_the_end_says_what_it_is():
    state = TuneProgress("compare", 10, 40, 2, 5.0, WORKLOAD, None, 42e-6)
    detail = _progress(state, Budget(seconds=30.0)).detail
    assert detail.startswith("compare winners; ")
    assert detail.endswith(", 2 failed")
