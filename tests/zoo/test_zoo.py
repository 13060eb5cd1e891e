"""Networks of other packages compile, and agree with ONNX Runtime."""

import os

import numpy as np
import onnx
import pytest

from neocpu.frontend.models.network_builder import NetworkBuilder
from tests.zoo.__main__ import outcomes, table
from tests.zoo.architectures import ARCHITECTURES, EXPORTERS
from tests.zoo.check import Outcome, difference
from tests.zoo.race import Race, document, summary
from tests.zoo.rules import Gain, graphs_without, is_plain
from tests.zoo.rules import summary as summary_of_rules

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
    if found.outcome == "alone":
        pytest.skip(f"ONNX Runtime cannot run it: {found.message}")
    assert found.outcome in ("agrees", "refused"), found.message


def test_each_architecture_is_there_once():
    names = [each.name for each in ARCHITECTURES]
    assert len(names) == len(set(names))
    assert len(names) >= 150


def test_the_table_counts_exported_models():
    results = [
        Outcome("a", "dynamo", "agrees", seconds=2.0, verify_seconds=3.0),
        Outcome("b", "dynamo", "refused", "unsupported operator: Loop"),
        Outcome("c", "dynamo", "not exported", "no"),
    ]
    text = table(results)
    assert "dynamo: 2 models, 50.0% agree" in text
    assert "b (dynamo) refused: unsupported operator: Loop" in text
    assert "longer than the rest: 1" in text


@pytest.mark.parametrize(
    ("got", "wanted", "expected"),
    [
        ([1.0, 4.0], [1.4, 4.0], 0.1),
        ([0.0, 0.0], [0.0, 0.0, 0.0], np.inf),
        ([np.nan, 1], [1.0, 1], np.inf),
        ([np.nan, 1], [np.nan, 1], 0.0),
    ],
)
def test_differences_are_of_the_largest_value(got, wanted, expected):
    assert difference(np.array(got), np.array(wanted)) == pytest.approx(expected)


def race(name, ours, peers, ratio, predicted, skippable=0.0):
    ends = {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1}
    times = {"milliseconds": ours, "predicted": predicted, "skippable": skippable}
    return Race(name=name, peers=peers, **ends, **times)


def test_races_come_to_a_mean_and_a_document():
    races = [
        race("a", 2.0, {"onnxruntime 1": 5.0, "openvino 2": 4.0}, 2.0, 1.0),
        race("b", 4.0, {"onnxruntime 1": 2.0}, 0.5, 5.0),
        Race(name="c", message="PyTorch cannot"),
        race("d", 2.0, {"onnxruntime 1": 2.0}, 1.0, 9.0, skippable=8.0),
        race("e", 4.0, {"onnxruntime 1": 4.0}, 1.0, 3.0, skippable=1.0),
    ]
    first, second = summary(races)
    assert "4 models: geometric mean 1.00" in first
    assert "least 0.50 (b), 1 below 1.00, 1 below 0.90" in first
    assert "median error 25%, worst 50%; of 2, whose data decide" in second
    text = document(races, 6)
    assert "| a | 2.00 | 5.00 | 4.00 | 2.00 (1.90 to 2.10) | 1.00 |" in text
    assert "| b | 4.00 | 2.00 |  | 0.50 (0.40 to 0.60) | 5.00 |" in text
    assert "| d | 2.00 | 2.00 |  | 1.00 (0.90 to 1.10) | ≤ 9.00 |" in text
    assert "- c: PyTorch cannot" in text


def test_gains_of_rules_are_summed_up_in_a_line_each():
    found = [Gain("a", "x", 2, 1.5), Gain("b", "x", 1, 1.0), Gain("b", "y", 1, 0.9)]
    lines = summary_of_rules(found)
    assert "x: 2 networks, geometric mean 1.225, least 1.000, most 1.50 (a)" in lines
    assert "slower: b with y: 0.900" in lines
    assert lines[-1] == "3 pairs, 1 below 0.99"


def _small(seed):
    net = NetworkBuilder("tiny", (1, 3, 8, 8), seed=seed)
    return net.finish(net.relu(net.batch_norm(net.conv(net.input, "c", 4, 3), "b"), "r"))


def test_graphs_are_distinguished_by_their_computation(tmp_path):
    path = tmp_path / "tiny.onnx"
    onnx.save(_small(seed=0), path)
    applied, graphs = graphs_without(path)
    assert set(graphs) == {"", *applied}
    assert "fold-constants" not in applied  # nothing compiles without it
    assert {"fold-batch-norm", "fold-scale"} <= set(applied)
    assert len({graphs[rule] for rule in ("", "fold-batch-norm", "fold-scale")}) == 3
    # Graphs that differ only in weights are equal.
    onnx.save(_small(seed=1), path)
    assert graphs_without(path) == (applied, graphs)


@pytest.mark.parametrize(
    ("ratios", "plain"),
    [
        ([1.5, 1.52, 1.48], True),
        ([0.8, 0.81, 0.8], True),
        ([1.5, 1.5], False),
        ([1.01, 1, 1.005], False),
    ],
)
def test_a_difference_is_plain_or_takes_more_rounds(ratios, plain):
    assert is_plain(ratios) == plain
