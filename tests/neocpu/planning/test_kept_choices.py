"""Choices for a convolution are reused for the same settings only."""

import dataclasses
import json

import pytest
from conv_workloads import conv_workload
from networks import HOST, cost_model, named

from neocpu.foundation.errors import UsageError
from neocpu.planning.choice import Measured
from neocpu.planning.convolution_choices import convolution_choices, with_folds
from neocpu.planning.extract import extract
from neocpu.planning.plan_options import PlanOptions
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import STRICT

LANES = HOST.lanes("float32")
WORKLOAD = conv_workload(1, 4 * LANES, 14, 14, 4 * LANES, (3, 3), padding=(1, 1, 1, 1))
SCHEMES = registry.schemes(WORKLOAD, HOST)
RECORDS = Measured({SCHEMES[1]: 1e-3 / 3, SCHEMES[2]: None})


@pytest.fixture(name="keep")
def _keep():
    """Return a function that keeps results in memory as JSON."""
    kept = {}

    def keep(key, make):
        if key not in kept:
            kept[key] = json.dumps(make())
        return json.loads(kept[key])

    keep.kept = kept
    return keep


@pytest.mark.parametrize("fold", [True, False])
def test_kept_choices_equal_those_of_a_new_search(keep, fold):
    costs = cost_model(2, measured=lambda workload: RECORDS)
    plain = costs.conv_choices(WORKLOAD)
    expected = with_folds(plain, WORKLOAD, costs) if fold else plain
    costs = dataclasses.replace(costs, keep=keep)
    for _ in range(2):
        assert convolution_choices(WORKLOAD, costs, fold=fold) == expected
        assert sum(key.startswith("choices") for key in keep.kept) == 1


def test_choices_of_other_settings_are_not_reused(keep):
    costs = cost_model(2, measured=lambda workload: RECORDS, keep=keep)
    others = (
        {"threads": 1},
        {"byte_price": 1e-9},
        {"sparing": True},
        {"templates": frozenset({"conv2d_direct"})},
        {"admission": STRICT.admissions[0]},
        {"measured": lambda workload: Measured({SCHEMES[1]: 2e-3})},
        {"target": dataclasses.replace(HOST, l2=HOST.l2 * 2)},
    )
    for other in ({}, *others):
        before = len(keep.kept)
        changed = dataclasses.replace(costs, **other)
        fresh = dataclasses.replace(changed, keep=lambda key, make: make())
        found = convolution_choices(WORKLOAD, changed, fold=True)
        assert found == convolution_choices(WORKLOAD, fresh, fold=True)
        assert len(keep.kept) > before


def test_plans_keep_choices_except_for_trial_prices_of_a_limit(keep):
    network, costs = extract(named("residual")), cost_model(keep=keep)
    options = PlanOptions.parse("global", "auto", None)
    options.plan(network, costs, 0)
    options.levels(network, costs)
    kept = set(keep.kept)
    # Choices with folds, and without them for the cost of other levels.
    assert sum(key.startswith("choices") for key in kept) == 2 * len(
        {conv.workload for conv in network.convs}
    )
    with pytest.raises(UsageError, match="too small"):
        dataclasses.replace(options, max_weights=0).plan(network, costs, 0)
    assert set(keep.kept) == kept
