"""The progress of a tuning run, as users see it."""

import dataclasses
import math

import pytest
from conv_workloads import conv_workload

from neocpu.search.budget import Budget
from neocpu.search.tuner import Stage, TuneProgress
from neocpu.search.tuning_progress import SHOWN, stage_progress, tuning_progress
from neocpu.search.tuning_state import LayerProgress

WORKLOAD = conv_workload(1, 8, 8, 8, 8, (1, 1))
OTHER = dataclasses.replace(WORKLOAD, height=16)
MEASURED = TuneProgress(
    doing="measure",
    trials=10,
    total=40,
    failed=0,
    seconds=10.0,
    workload=WORKLOAD,
    chosen=None,
    best=42e-6,
)


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
    state = dataclasses.replace(MEASURED, trials=trials, total=total, seconds=seconds)
    progress = tuning_progress(state, Budget(seconds=budget))
    assert progress.detail.startswith(f"at most {words}; ")
    assert progress.detail.endswith("best 42 us")
    assert (progress.done, progress.total) == (trials, total)


def test_without_a_successful_trial_there_is_no_best():
    state = dataclasses.replace(MEASURED, trials=1, total=9, failed=1, seconds=1.0, best=math.inf)
    assert tuning_progress(state, Budget()).detail.endswith("none works yet, 1 failed")


def test_the_final_comparison_is_shown():
    state = dataclasses.replace(MEASURED, doing="compare", failed=2, seconds=5.0)
    detail = tuning_progress(state, Budget(seconds=30.0)).detail
    assert detail.startswith("compare winners; ")
    assert detail.endswith(", 2 failed")


def test_the_gain_of_more_measurements_is_predicted():
    state = dataclasses.replace(MEASURED, gain_left=0.0314)
    assert "30 s left, about 3.1% to gain; " in tuning_progress(state, Budget()).detail


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Stage("estimate", 64), "estimating the schemes of 64 layers"),
        (Stage("choose", 1683, 0, 1683), "choosing among 1683 schemes"),
        (Stage("build", 1, 4, 1683), "building 1 scheme"),
    ],
    ids=lambda each: getattr(each, "doing", ""),
)
def test_started_steps_are_shown(stage, words):
    progress = stage_progress(stage)
    assert progress.detail == words
    assert (progress.done, progress.total) == (stage.trials, stage.total)


def test_the_costliest_layers_have_lines():
    layers = (
        LayerProgress(workload=WORKLOAD, count=3, before=40e-6, now=25.04e-6, tried=7, left=12),
        LayerProgress(workload=OTHER, count=1, before=60e-6, now=None, tried=0, left=9),
    )
    state = dataclasses.replace(
        MEASURED, trials=7, total=28, seconds=1.0, best=25.04e-6, layers=layers
    )
    assert tuning_progress(state, Budget()).lines == (
        "times  before us  now us  tried  left  layer",
        f"    3       40.0    25.0      7    12  {WORKLOAD}",
        f"    1      ~60.0       -      0     9  {OTHER}",
    )
    many = dataclasses.replace(state, layers=layers[:1] * (SHOWN + 2))
    lines = tuning_progress(many, Budget()).lines
    assert len(lines) == SHOWN + 2
    assert lines[-1] == "and 2 layers that cost less"
