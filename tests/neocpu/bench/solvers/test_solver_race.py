"""``neocpu bench solvers``: every solver on a network's layout graph."""

import json
import math
from dataclasses import replace

import needs
import onnx
import pytest
from synthetic import MACHINE

from neocpu.bench.results.document import Run
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.solvers import milp, solver_tables
from neocpu.bench.solvers.milp import MilpResult
from neocpu.bench.solvers.solver_race import SolverReport, SolverRequest, compare_models
from neocpu.cli.main import main
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.search.solver.plan import Plan

EXACT = Plan(
    choices=(0, 1), cost=2e-3, lower_bound=2e-3, gap=0.0, solver="exact", seconds=0.012, variables=2
)
REPORT = SolverReport(
    "net",
    convolutions=5,
    measured=3,
    edges=7,
    exact=EXACT,
    dp=replace(EXACT, solver="dp"),
    pbqp=replace(EXACT, cost=2.2e-3, gap=0.1, solver="pbqp"),
    peak_bytes=1_500_000,
    milp=MilpResult(2e-3, 2e-3, True, 0.25),
)


@pytest.fixture(autouse=True)
def no_user_database(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def residual(tmp_path_factory):
    """Path of a network with a shortcut."""
    net = NetworkBuilder("residual", (1, 3, 16, 16), seed=0)
    x = net.relu(net.conv(net.input, "conv1", 16, 3, padding=1), "relu1")
    y = net.relu(net.conv(x, "conv2", 16, 3, padding=1), "relu2")
    z = net.conv(y, "conv3", 16, 3, padding=1)
    model = net.finish(net.classifier(net.relu(net.add(z, x, "add"), "relu3"), "fc", 10))
    path = tmp_path_factory.mktemp("residual") / "residual.onnx"
    onnx.save(model, path)
    return path


def test_a_network_is_solved_in_every_way(residual):
    (report,) = compare_models([str(residual)], SolverRequest(1))
    assert report.name == "residual"
    assert (report.convolutions, report.exact.proven, report.confirmed) == (3, True, True)
    assert report.exact.variables > report.convolutions  # the shared feature map is one
    assert [report.dp.solver, report.pbqp.solver] == ["dp", "pbqp"]
    assert report.excess(report.dp.cost) >= 0
    assert 0 < report.peak_bytes < 10_000_000
    assert not report.refuted


LIGHT = (
    *("squeezenet1_0", "shufflenet_v2_x1_0", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large"),
    *("efficientnet_b0", "resnet18", "yolov3_tiny"),
)
# Several readers of nearly everything, wide joins, and the paper's hardest.
HARD = ("densenet201", "inception_v3", "ssd_resnet50")


@pytest.mark.parametrize(
    "name", [*LIGHT, *(pytest.param(name, marks=pytest.mark.slow) for name in HARD)]
)
@needs.one_in(4)
def test_built_in_networks_are_solved_exactly_as_highs_does(name):
    (report,) = compare_models([name], SolverRequest(2))
    # Which of the two proves it depends on the costs of the CPU.
    assert report.exact.solver in ("exact", "branch-and-bound")
    assert report.exact.proven
    assert report.confirmed
    assert report.peak_bytes < 500e6


def test_a_model_that_fails_costs_the_others_nothing(residual):
    first, second = compare_models(["missing.onnx", str(residual)], SolverRequest(1))
    assert (type(first), first.name) == (ModelFailure, "missing.onnx")
    assert second.name == "residual"


def test_without_scipy(residual, monkeypatch):
    monkeypatch.setattr(milp, "available", lambda: False)
    (report,) = compare_models([str(residual)], SolverRequest(1))
    assert (report.milp, report.confirmed, report.refuted) == (None, None, False)
    (row,) = solver_tables.solver_table([report]).rows
    assert row[-2:] == ("-", "-")


@pytest.mark.parametrize(
    ("found", "confirmed", "refuted", "cell"),
    [
        (MilpResult(2e-3, 2e-3, True, 1.0), True, False, "equal"),
        (MilpResult(2e-3 * (1 + 1e-8), 2e-3, True, 1.0), True, False, "equal"),
        (MilpResult(1.9e-3, 1.9e-3, True, 1.0), False, True, "contradicts"),
        (MilpResult(2.1e-3, 2.1e-3, True, 1.0), False, True, "contradicts"),
        (MilpResult(1.9e-3, 1.8e-3, False, 9.0), None, True, "contradicts"),
        (MilpResult(2.5e-3, 1.8e-3, False, 9.0), None, False, "unfinished"),
        (MilpResult(math.inf, -math.inf, False, 9.0), None, False, "unfinished"),
    ],
)
def test_what_highs_says(found, confirmed, refuted, cell):
    report = replace(REPORT, milp=found)
    assert (report.confirmed, report.refuted) == (confirmed, refuted)
    assert solver_tables.solver_table([report]).rows[0][-2] == cell
    json.dumps(report.to_json(), allow_nan=False)


def test_the_table():
    failure = ModelFailure("broken", UnsupportedError("no kernel"))
    table = solver_tables.solver_table([REPORT], [failure])
    assert table.rows == (
        ("net", "2", "7", "2.000", "12.0", "1.5", "0", "0.00%", "10.00%", "equal", "0.2"),
    )
    assert table.notes == (
        "broken failed: no kernel",
        "Costs of 3 of 5 convolutions are from tuning records, the others' estimated.",
        "1 of 1 plan proven optimal, 1 by HiGHS too.",
        "PBQP had to guess on net.",
    )
    all_measured = solver_tables.solver_table([replace(REPORT, measured=5)])
    assert all_measured.notes[0] == "Costs of 5 of 5 convolutions are from tuning records."


def test_the_document():
    run = Run("neocpu bench solvers net.onnx -o search.md", MACHINE, (), (2,), 0)
    text = solver_tables.render("Layout search of net", [REPORT], [], run, 60.0)
    assert text.startswith("# Layout search of net\n")
    assert "a limit of 60 s" in text
    assert "| net | 2 | 7 |" in text


class TestCommand:
    def test_writes_what_it_prints(self, residual, tmp_path, capsys):
        document = tmp_path / "search.md"
        command = ["bench", "solvers", str(residual), "--threads", "1", "-o", str(document)]
        assert main(command) == 0
        captured = capsys.readouterr()
        assert "1 of 1 plan proven optimal, 1 by HiGHS too." in captured.out
        assert f"written: {document}" in captured.err
        assert "equal" in document.read_text()
        assert "neocpu bench " in document.read_text()

    def test_json(self, residual, capsys):
        assert main(["bench", "solvers", str(residual), "--json"]) == 0
        (result,) = json.loads(capsys.readouterr().out)["results"]
        assert result["exact"]["gap"] == 0.0
        assert result["confirmed"] is True

    def test_a_contradiction_is_an_error(self, monkeypatch, capsys):
        wrong = replace(REPORT, milp=MilpResult(1e-3, 1e-3, True, 1.0))
        monkeypatch.setattr(
            "neocpu.bench.solvers.solver_race.compare_models", lambda *_: iter([wrong])
        )
        assert main(["bench", "solvers", "net.onnx"]) == 6
        assert "HiGHS contradicts the exact solver: net" in capsys.readouterr().err

    def test_a_failure_leaves_the_others_results(self, residual, capsys):
        assert main(["bench", "solvers", "missing.onnx", str(residual), "--json"]) == 3
        captured = capsys.readouterr()
        data = json.loads(captured.out)
        assert [one["model"] for one in data["results"]] == ["residual"]
        assert [one["model"] for one in data["failures"]] == ["missing.onnx"]
        assert captured.err.splitlines()[-1] == (
            "neocpu: error: missing.onnx failed; the other results stand"
        )

    def test_an_interruption_shows_what_is_there(self, monkeypatch, capsys, tmp_path):
        def compare_models(*_):
            yield REPORT
            raise KeyboardInterrupt

        monkeypatch.setattr("neocpu.bench.solvers.solver_race.compare_models", compare_models)
        document, page = tmp_path / "search.md", tmp_path / "search.html"
        files = ["-o", str(document), "--html", str(page)]
        assert main(["bench", "solvers", "net.onnx", "b.onnx", *files]) == 130
        captured = capsys.readouterr()
        assert "10.00%" in captured.out
        assert captured.err.splitlines()[-1] == (
            "neocpu: error: interrupted; 1 of 2 models measured"
        )
        assert not document.exists()
        text = page.read_text()
        assert "<title>Layout search of net.onnx, b.onnx, interrupted" in text
        # How it was measured, without the marks that make code of words in a document.
        assert "is solved exactly (compile --solver auto)" in text
        assert "with a limit of 600 s" in text

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["x.onnx", "--vs", "onnxruntime", "--roofline"], "no option --vs"),
            (["x.onnx", "--rounds", "12"], "no option --rounds"),
            (["x.onnx", "--threads", "1,2"], "'1,2' is not a valid integer"),
            (["x.so"], "needs a MODEL"),
            (["x.onnx", "-o", "search.txt"], "name a FILE.md"),
        ],
    )
    def test_what_does_not_go_together(self, arguments, words, capsys, monkeypatch):
        monkeypatch.setattr("neocpu.foundation.host.usable_cpus", lambda: 2)
        assert main(["bench", "solvers", *arguments]) == 2
        assert words in capsys.readouterr().err

    def test_a_model_that_cannot_be_read(self, capsys):
        assert main(["bench", "solvers", "missing.onnx"]) == 3
