"""``neocpu bench accuracy``: errors against float64, and what becomes of one too large."""

import json

import needs
import onnx
import pytest
from synthetic import MACHINE

from neocpu.bench.accuracy import network_errors as accuracy
from neocpu.bench.accuracy.accuracy_tables import accuracy_table, render
from neocpu.bench.accuracy.network_errors import AccuracyReport, AccuracyRequest, measure_accuracy
from neocpu.bench.results.document import Run
from neocpu.bench.results.failure import ModelFailure
from neocpu.cli.main import main
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.models.network_builder import NetworkBuilder

GOOD = AccuracyReport("good", {"default": 2e-6, "strict": 1e-6}, 3e-7)
BAD = AccuracyReport("bad", {"default": 2e-6, "strict": 1e-5}, None)
FAILURE = ModelFailure("ugly", UnsupportedError("no such operator"))


@pytest.fixture(autouse=True)
def no_user_database(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def network(tmp_path):
    net = NetworkBuilder("net", (1, 16, 12, 12), seed=0)
    x = net.relu(net.conv(net.input, "conv1", 16, 3, padding=1), "relu1")
    path = tmp_path / "net.onnx"
    onnx.save(net.finish(net.classifier(x, "fc", 10)), path)
    return path


@needs.everything()
def test_every_level_is_compiled_run_and_compared(network, monkeypatch):
    monkeypatch.setattr(accuracy, "installed", lambda peer: False)
    report, failure = measure_accuracy([str(network), "nowhere.onnx"], AccuracyRequest(1))
    assert report.name == "net"
    assert list(report.errors) == ["default", "strict"]
    assert all(0 < error < 1e-6 for error in report.errors.values())
    assert (report.peer, report.missed) == (None, ())
    assert "no such model file" in failure.reason


def test_a_level_that_is_missed_is_bold_and_named():
    assert (GOOD.missed, BAD.missed) == ((), ("strict",))
    table = accuracy_table([GOOD, BAD], [FAILURE])
    assert table.header == ("network", "default", "strict", "onnxruntime")
    assert table.rows == (
        ("good", "2.0e-06", "1.0e-06", "3.0e-07"),
        ("bad", "2.0e-06", "1.0e-05", "-"),
    )
    assert table.bold == {(1, 2)}
    assert table.notes == (
        "ugly failed: no such operator",
        "default: at most 2.0e-06 (good); the bound is 0.0001.",
        "strict: at most 1.0e-05 (bad); the bound is 5e-06.",
    )


def test_the_document_says_what_an_error_is():
    run = Run("neocpu bench accuracy net", MACHINE, (), (1,), 0)
    text = render("Accuracy of net", [GOOD], [], run)
    assert text.startswith("# Accuracy of net\n")
    assert "numpy computes in float64" in text
    assert "| good | 2.0e-06 | 1.0e-06 | 3.0e-07 |" in text


def test_the_command_fails_where_a_promise_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(accuracy, "measure_accuracy", lambda *_: iter([GOOD, BAD]))
    assert main(["bench", "accuracy", "good.onnx", "bad.onnx", "--threads", "1", "--json"]) == 6
    outcome = capsys.readouterr()
    assert "less exact than promised: bad (strict)" in outcome.err
    results = json.loads(outcome.out)["results"]
    assert results[1] == {
        "model": "bad",
        "errors": {"default": 2e-6, "strict": 1e-5},
        "onnxruntime": None,
        "missed": ["strict"],
    }


@pytest.mark.parametrize("option", ["--vs=onnxruntime", "--rounds=3", "--ablation"])
def test_what_does_not_go_with_it(option, capsys):
    assert main(["bench", "accuracy", "net.onnx", option]) == 2
    assert f"no option {option.partition('=')[0]}" in capsys.readouterr().err
