"""Networks of other packages: each compiles, and computes what ONNX Runtime does."""

import os

import numpy as np
import pytest

from tests.zoo.__main__ import outcomes, table
from tests.zoo.architectures import ARCHITECTURES, EXPORTERS
from tests.zoo.check import Outcome, difference

PYTHON = os.environ.get("NEOCPU_ZOO_PYTHON", "")


@pytest.mark.zoo
@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="NEOCPU_ZOO_PYTHON names no Python that has PyTorch")
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda each: each.name)
def test_a_network_agrees_or_is_refused_by_name(architecture, exporter):
    (found,) = outcomes(PYTHON, exporter, [architecture], verify=False)
    if found.outcome == "not exported":
        pytest.skip(f"PyTorch cannot export it: {found.message}")
    assert found.outcome in ("agrees", "refused"), found.message


def test_each_architecture_is_there_once():
    names = [each.name for each in ARCHITECTURES]
    assert len(names) == len(set(names))
    assert len(names) >= 150


def test_the_table_counts_what_was_exported():
    results = [
        Outcome("a", "dynamo", "agrees", seconds=2.0, verify_seconds=3.0),
        Outcome("b", "dynamo", "refused", "unsupported operator: Loop"),
        Outcome("c", "dynamo", "not exported", "no"),
    ]
    text = table(results)
    assert "dynamo: 2 models, 50.0% agree" in text
    assert "b (dynamo) refused: unsupported operator: Loop" in text
    assert "longer than the rest: 1" in text


def test_differences_are_of_the_largest_value():
    assert difference(np.array([1.0, 4.0]), np.array([1.4, 4.0])) == pytest.approx(0.1)
    assert difference(np.zeros(2), np.zeros(3)) == np.inf
    assert difference(np.array([np.nan, 1]), np.array([1.0, 1])) == np.inf
    assert difference(np.array([np.nan, 1]), np.array([np.nan, 1])) == 0.0
