"""The tasks of tuning a network, and the time that tuning is predicted to take."""

import dataclasses
import math

import pytest
from command_line import conv_model
from conv_workloads import conv_workload

import neocpu
from neocpu.compilation.network_tuning import search_space, tuning_tasks
from neocpu.foundation.errors import UsageError
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.search.tuning_state import TuningTask

WORKLOAD = conv_workload(1, 8, 8, 8, 8, (1, 1))
OTHER = dataclasses.replace(WORKLOAD, height=16)


def test_a_workload_shared_by_networks_is_one_task_with_all_counts():
    assert tuning_tasks([[WORKLOAD, OTHER, WORKLOAD], [OTHER]]) == [
        TuningTask(WORKLOAD, (2, 0)),
        TuningTask(OTHER, (1, 1)),
    ]


@pytest.mark.parametrize("limit", [{"budget": -1.0}, {"budget": math.nan}, {"trials": -1}], ids=str)
def test_impossible_limits(limit):
    with pytest.raises(UsageError, match="0 or more"):
        neocpu.tune([conv_model()], **limit)


@pytest.mark.parametrize("threads", [2, 16])
def test_tuning_measures_the_schemes_that_plans_choose_among(threads):
    target = parse_target("llvm -mcpu=znver4")
    workload = conv_workload(1, 64, 14, 14, 128, (1, 1))
    few = registry.schemes(workload, target)
    planned = registry.schemes(workload, target, threads)
    assert (len(planned) > len(few)) == (threads == 16)
    assert {*search_space(target, threads).schemes(workload)} == {*planned}
