"""``neocpu bench --accuracy --scales``: what is refused of scaled networks and planted errors."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from neocpu.bench.accuracy import planted_errors
from neocpu.bench.accuracy.network_errors import AccuracyRequest
from neocpu.bench.accuracy.planted_errors import (
    RefusalReport,
    Trial,
    measure_refusals,
    wrong_values,
)
from neocpu.bench.accuracy.refusal_tables import refusal_table
from neocpu.bench.results.failure import ModelFailure
from neocpu.cli.main import main
from neocpu.foundation.errors import AccuracyError, UnsupportedError
from neocpu.frontend.models.network_builder import NetworkBuilder

GOOD = Trial("inputs", 1.0, norm_error=1e-7, planted=25, found=25)
INFINITE = Trial("weights", 1e4, norm_error=0.0)
BLIND = Trial("inputs", 1.0, norm_error=1e-7, planted=25, found=24)
REFUSED = Trial("weights", 1e4, refused="it is wrong")
DESCENDED = Trial("weights", 1e4, norm_error=1e-7, missed=("with Winograd",), planted=5, found=5)


@pytest.fixture
def network(tmp_path):
    net = NetworkBuilder("net", (1, 16, 8, 8), seed=0)
    x = net.relu(net.conv(net.input, "conv1", 16, 3, padding=1), "relu1")
    path = tmp_path / "net.onnx"
    onnx.save(net.finish(net.classifier(x, "fc", 10)), path)
    return str(path)


def test_scaled_networks_are_accepted_and_planted_errors_refused(network):
    report, failure = measure_refusals([network, "nowhere.onnx"], AccuracyRequest(1), (1, 1e4))
    assert [(t.kind, t.scale) for t in report.trials] == [
        ("inputs", 1),
        ("inputs", 1e4),
        ("weights", 1e4),
    ]
    assert report.right
    assert all(trial.planted >= 15 for trial in report.trials)
    assert "no such model file" in failure.reason


def test_what_is_refused_wrongly_is_reported(network, monkeypatch):
    def refuse(model, **_):
        raise AccuracyError("it is wrong")

    compile_model = planted_errors.neocpu.compile
    calls = iter([compile_model, refuse])
    monkeypatch.setattr(planted_errors.neocpu, "compile", lambda *a, **k: next(calls)(*a, **k))
    (report,) = measure_refusals([network], AccuracyRequest(1), (1e4,))
    assert not report.right
    assert report.trials[1].refused == "it is wrong"


def test_all_weights_are_scaled_and_nothing_else(network):
    model = onnx.load(network)
    before, after = (
        {tensor.name: numpy_helper.to_array(tensor) for tensor in each.graph.initializer}
        for each in (model, planted_errors.with_weights_scaled(model, 100.0))
    )
    assert before.keys() == after.keys()
    assert len(before) >= 3
    for name, array in before.items():
        factor = 100 if array.dtype == np.float32 else 1
        np.testing.assert_allclose(after[name], factor * array, rtol=1e-6)


def test_planted_values_are_wrong_enough():
    output = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    output[0, :2] = 1.0  # zero is wrong here, the neighbour is not
    values = wrong_values(output, (0, 0))
    assert len(values) == 4
    assert all(abs(value - 1) >= 0.01 for value in values)
    assert wrong_values(np.array([3, 4]), (1,)) == [5]
    assert wrong_values(np.array([True]), (0,)) == [False]


def test_the_table_shows_what_was_judged_wrongly():
    reports = [
        RefusalReport("good", (GOOD, INFINITE)),
        RefusalReport("bad", (BLIND, REFUSED)),
        RefusalReport("other", (GOOD, DESCENDED)),
    ]
    table = refusal_table(reports, [ModelFailure("ugly", UnsupportedError("no such operator"))])
    assert table.header == ("network", "inputs x 1", "weights x 10000")
    assert table.rows == (
        ("good", "25 of 25", "-"),
        ("bad", "24 of 25", "refused"),
        ("other", "25 of 25", "5 of 5"),
    )
    assert table.bold == {(1, 1), (1, 2)}
    assert table.notes == (
        "ugly failed: no such operator",
        "bad, weights x 10000: it is wrong",
        "other, weights x 10000: compiled again, for it erred too much with Winograd.",
        "1 of 6 right networks were refused, and 79 of 80 planted errors.",
    )


def test_the_command_fails_where_a_wrong_element_is_accepted(monkeypatch, capsys):
    reports = [RefusalReport("good", (GOOD,)), RefusalReport("bad", (BLIND,))]
    monkeypatch.setattr(planted_errors, "measure_refusals", lambda *_: iter(reports))
    command = ["bench", "accuracy", "--scales", "1", "good.onnx", "bad.onnx", "--json"]
    assert main([*command, "--threads", "1"]) == 6
    outcome = capsys.readouterr()
    assert "judged wrongly: bad" in outcome.err
    assert json.loads(outcome.out)["results"][1]["trials"][0]["found"] == 24


@pytest.mark.parametrize("words", [["race", "--scales", "1"], ["accuracy", "--scales", "1,x"]])
def test_scales_are_numbers_and_go_with_accuracy(words, capsys):
    assert main(["bench", *words, "good.onnx"]) == 2
    assert "scales" in capsys.readouterr().err
