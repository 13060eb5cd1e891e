"""``neocpu bench`` over several models, with fake measurements."""

import json
from pathlib import Path

import pytest
from page_sections import parts_in
from synthetic import PEERS, model, scaling, suite

from neocpu.bench.race import suite as measuring
from neocpu.bench.results import chart
from neocpu.bench.results.failure import ModelFailure
from neocpu.cli.main import main
from neocpu.foundation import peers
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend import models


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peers, "installed", lambda peer: True)
    monkeypatch.setattr("neocpu.foundation.host.usable_cpus", lambda: 2)


@pytest.fixture
def outcomes(monkeypatch):
    """Replace measuring by a list of results, and keep the requests; exceptions are raised."""
    found = [*suite().models, *suite().failures]
    found_requests = []

    def measure_models(names, request, on_progress):
        found_requests.append((names, request))
        for one in found:
            if isinstance(one, BaseException):
                raise one
            yield one

    monkeypatch.setattr(measuring, "measure_models", measure_models)
    found_requests.append(found)
    return found_requests


def _bench(*arguments):
    return main(["bench", *map(str, arguments)])


VS = ("--vs", ",".join(PEERS))


def test_a_suite(outcomes, capsys):
    assert _bench("--suite", "paper", *VS) == UnsupportedError.exit_code
    captured = capsys.readouterr()
    (names, request) = outcomes[1]
    assert names == models.suite("paper")
    assert (request.peers, request.threads) == (PEERS, (2,))
    assert "Geometric mean of (best peer / neocpu) over 3 models: 1.000." in captured.out
    assert "Worst row: lost, 0.50" in captured.out
    rows = [line for line in captured.err.splitlines() if line.startswith("neocpu: won: ")]
    assert rows == [
        "neocpu: won: neocpu 10.00 ms, onnxruntime 20.00 ms, openvino 25.00 ms, "
        "best peer / neocpu 2.00"
    ]
    assert captured.err.splitlines()[-1] == (
        "neocpu: error: broken failed; the other results stand"
    )


def test_models_beside_a_suite_are_measured_once(outcomes, capsys):
    _bench("--suite", "paper", "resnet18", "mobilenet_v2", "x.onnx", "x.onnx")
    assert outcomes[1][0] == (*models.suite("paper"), "mobilenet_v2", "x.onnx")


def test_json(outcomes, capsys):
    _bench("--suite", "paper", *VS, "--json")
    data = json.loads(capsys.readouterr().out)
    assert data["command"] == f"neocpu bench race --suite paper --vs {','.join(PEERS)} --json"
    assert data["summary"]["wins"] == 1
    assert [one["model"] for one in data["results"]] == ["won", "lost", "even"]
    assert data["failures"] == [{"model": "broken", "reason": "no kernel for Frobnicate"}]
    assert data["machine"]["cpus"] >= 1


def test_the_document_and_its_chart(outcomes, capsys):
    pytest.importorskip("matplotlib")
    Path("docs").mkdir()
    _bench("--suite", "paper", *VS, "-o", "docs/benchmarks.md")
    text = Path("docs/benchmarks.md").read_text()
    assert text.startswith("# Benchmark of the paper suite\n")
    assert f"neocpu bench race --suite paper --vs {','.join(PEERS)} -o docs/benchmarks.md" in text
    assert "(benchmarks.svg)" in text
    assert "| broken | failed |" in text
    assert sorted(path.name for path in Path("docs").iterdir()) == [
        "benchmarks.md",
        "benchmarks.svg",
    ]
    assert "written: docs/benchmarks.md" in capsys.readouterr().err
    assert Path("docs/benchmarks.md").stat().st_mode & 0o111 == 0


def test_a_chart_of_scaling(outcomes, capsys):
    pytest.importorskip("matplotlib")
    outcomes[0][:] = [model("net", 10, 20, 20, scaling=scaling())]
    assert _bench("net.onnx", *VS, "--threads", "2,1", "--chart", "c.png") == 0
    assert outcomes[1][1].threads == (1, 2)
    assert Path("c.png").exists()
    assert Path("c-scaling.png").exists()
    assert "Scaling of net" in capsys.readouterr().out


def test_without_matplotlib_the_document_has_no_charts(outcomes, capsys, monkeypatch):
    monkeypatch.setattr(chart, "available", lambda: False)
    _bench("--suite", "paper", *VS, "-o", "b.md")
    assert "matplotlib is not installed, no charts: pip install 'neocpu[bench]'" in (
        capsys.readouterr().err
    )
    assert "![" not in Path("b.md").read_text()


def test_an_interruption_shows_the_results_so_far(outcomes, capsys):
    Path("b.md").write_text("before")
    outcomes[0][:] = [model("net", 10, 20), KeyboardInterrupt()]
    assert _bench("--suite", "paper", *VS, "-o", "b.md", "--html", "b.html") == 130
    captured = capsys.readouterr()
    assert "20.00" in captured.out
    assert captured.err.splitlines()[-1] == ("neocpu: error: interrupted; 1 of 15 models measured")
    assert Path("b.md").read_text() == "before"
    assert "<title>Benchmark of the paper suite, interrupted" in Path("b.html").read_text()


def test_an_interruption_after_failures_alone(outcomes, capsys):
    outcomes[0][:] = [suite().failures[0], KeyboardInterrupt()]
    assert _bench("--suite", "paper", *VS, "--html", "b.html") == 130
    assert not Path("b.html").exists()
    assert capsys.readouterr().err.splitlines()[-1] == (
        "neocpu: error: interrupted; 0 of 15 models measured"
    )


def test_a_single_model_that_fails_late_shows_the_rest_and_its_own_error(outcomes, capsys):
    error = UnsupportedError("no kernel for Frobnicate")
    outcomes[0][:] = [model("net", 10, 20), ModelFailure("net", error)]
    assert _bench("net.onnx", *VS) == UnsupportedError.exit_code
    captured = capsys.readouterr()
    assert "Latency of net, threads: 2" in captured.out
    assert captured.err.splitlines()[-1] == "neocpu: error: no kernel for Frobnicate"


def test_markdown_has_the_details(outcomes, capsys):
    _bench("--suite", "paper", *VS, "--markdown")
    out = capsys.readouterr().out
    assert "### Latency in ms\n" in out
    assert "| won | **10.00** |" in out
    assert "### Percentiles, load time, memory and accuracy\n" in out
    assert "### Compilation\n" in out


def test_every_extra_is_passed_on(outcomes):
    _bench("a.onnx", "--kernels", "--cold-start", "--roofline", "--rounds", "3")
    request = outcomes[1][1]
    assert request.kernels
    assert request.cold_start
    assert request.roofline
    assert request.rounds == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--suite", "papr"), "no suite 'papr'"),
        (("--suite", "papr"), "did you mean 'paper'?"),
        (("--suite", "paper", "net.so"), "--suite compiles its networks itself"),
        (("--suite", "paper", "--model", "x.onnx"), "--model goes with one OUT.so"),
        (("--suite", "paper", "resnet19"), "no built-in network 'resnet19'"),
        (("a.onnx", "resnet19"), "no built-in network 'resnet19'"),
        (("a.onnx", "--vs", "opnvino"), "did you mean 'openvino'?"),
        (("a.onnx", "--threads", "1,3"), "--threads 3 is more than this process may use: 2 CPUs"),
        (("a.onnx", "--threads", "0"), "'0' is not a number of threads"),
        (("a.onnx", "--threads", "1,,2"), "'1,,2' is not a number of threads"),
        (("a.onnx", *VS, "--chart", "c.jpg"), "suffix must be one of .svg, .png, .pdf"),
        (("a.onnx", *VS, "--chart", "no/c.svg"), "no/c.svg"),
        (("a.onnx", "--chart", "c.svg"), "--chart compares"),
        (("a.onnx", "--seeds", "3"), "no option --seeds"),
        (("a.onnx", "--milp-seconds", "5"), "no option --milp-seconds"),
        (("a.onnx", "-o", "results.txt"), "the document is Markdown"),
        (("a.onnx", "-o", "no/b.md"), "no/b.md"),
        (("a.onnx", "--default", "--threads", "2"), "--default is measured alone"),
        (("a.onnx", "--default", "--precision", "int8"), "--default is measured alone"),
        (("a.onnx", "--default", "--kernels"), "--default is measured alone"),
    ],
)
def test_mistakes_are_reported_before_anything_is_measured(arguments, message, outcomes, capsys):
    assert _bench(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("neocpu: error: ")
    assert message in line
    assert len(outcomes) == 1


@pytest.mark.parametrize(("rounds", "said"), [("2", True), ("6", False)])
def test_few_rounds_are_noted(outcomes, capsys, rounds, said):
    _bench("--suite", "paper", *VS, "--rounds", rounds)
    assert (f"--rounds {rounds}: with fewer than 6" in capsys.readouterr().err) == said


def test_json_names_engines_that_are_not_installed(outcomes, capsys, monkeypatch):
    monkeypatch.setattr(peers, "installed", lambda peer: peer != "openvino")
    _bench("--suite", "paper", "--vs", "onnxruntime,openvino", "--json")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["not_installed"] == ["openvino"]
    assert "openvino is not installed, skipped: pip install 'neocpu[bench]'" in captured.err
    assert outcomes[1][1].peers == ("onnxruntime",)


def test_a_page_has_every_round_and_figure(outcomes, capsys, tmp_path):
    outcomes[0][-1] = model("scaled", 10, 20, 20, scaling=scaling())
    assert _bench("--suite", "paper", *VS, "--json", "--html", "race.html") == 0
    found = json.loads(capsys.readouterr().out)["results"]
    page = tmp_path / "race.html"
    bars, charts = parts_in(page, "bars")[0]["bars"], parts_in(page, "chart")
    assert bars == [[one["model"], one["ratio"]["value"]] for one in found if one["ratio"]]
    rounds = [each for each in charts if each["across"] == "round"]
    assert [each["title"].partition(",")[0] for each in rounds] == [one["model"] for one in found]
    for drawn, one in zip(rounds, found, strict=True):
        for line, each in zip(drawn["lines"], one["latency"]["results"], strict=True):
            assert line["label"] == each["label"]
            assert line["values"] == [pytest.approx(each["p50"] * 1e6)] * 4
            assert line["low"] == line["high"] == line["values"]
    (scaled,) = (each for each in charts if each["across"] == "threads")
    assert scaled["lines"][0]["values"] == pytest.approx([50, 100])
    assert parts_in(page, "facts")[0]["pairs"][0][1].startswith("neocpu bench race --suite paper")
