"""``neocpu bench throughput``: its modes, and its report."""

import json
from dataclasses import replace

import needs
import pytest
from page_sections import parts_in
from synthetic import MACHINE, result

from neocpu.bench.engines.measured_model import Compilation, MeasuredModel
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.bench.results import chart
from neocpu.bench.results.presentation import Run, document
from neocpu.bench.throughput import concurrent_calls
from neocpu.bench.throughput.concurrent_calls import ThroughputRequest
from neocpu.bench.throughput.modes import ProcessMemory, default_counts, modes_of
from neocpu.bench.throughput.presentation import present, summary_table
from neocpu.bench.throughput.throughput_report import ModeResult, Summary, ThroughputReport
from neocpu.cli.main import main
from neocpu.foundation.errors import AccuracyError, UsageError

PEERS = ("onnxruntime", "openvino")
RUN = Run(
    command="neocpu bench throughput net", machine=MACHINE, peers=PEERS, threads=(2,), rounds=6
)


def test_every_engine_runs_in_its_own_modes():
    labels = [
        mode.label for engine in ("neocpu", *PEERS, "ncnn") for mode in modes_of(engine, (1, 2))
    ]
    assert labels == [
        "neocpu, 1 stream",
        "neocpu, 2 streams",
        "onnxruntime, 1 session",
        "onnxruntime, 2 sessions",
        "onnxruntime, 2 callers",
        "openvino, its own choice",
        "openvino, 1 stream",
        "openvino, 2 streams",
        "ncnn, 1 net",
        "ncnn, 2 nets",
    ]


@pytest.mark.parametrize(
    ("threads", "counts"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))]
)
def test_there_are_at_most_as_many_streams_as_threads(threads, counts):
    assert default_counts(threads) == counts


def report(name, milliseconds, errors=(), images=1):
    """Report of modes by label; times in milliseconds for each call."""
    known = {m.label: m for engine in ("neocpu", *PEERS) for m in modes_of(engine, (1, 2))}
    speeds = {
        label: result(label, ms, dict(errors).get(label, 0.0)) for label, ms in milliseconds.items()
    }
    race = LatencyReport(threads=2, results=tuple(speeds.values()), failures=(), reference=None)
    modes = [
        ModeResult(known[label], speed, _memory(known[label]), images)
        for label, speed in speeds.items()
    ]
    return ThroughputReport(name, race, tuple(modes))


def _memory(mode):
    streams = mode.streams or 2
    return ProcessMemory(streams, 100_000_000 + 10_000_000 * streams, 90_000_000)


TIMES = {
    "neocpu, 1 stream": 10.0,
    "neocpu, 2 streams": 8.0,
    "onnxruntime, 1 session": 15.0,
    "onnxruntime, 2 sessions": 14.0,
    "onnxruntime, 2 callers": 12.0,
    "openvino, its own choice": 10.0,
    "openvino, 2 streams": 20.0,
}


def test_the_fastest_mode_of_each_engine_counts():
    one = report("net", TIMES, images=4)
    assert one.best("onnxruntime").mode.name == "2 callers"
    assert one.best_peer.mode.label == "openvino, its own choice"
    assert one.best("neocpu").per_second == pytest.approx(500)
    assert one.ratio.value == pytest.approx(10 / 8)
    assert one.gain.value == pytest.approx(10 / 8)
    assert one.memory_ratio == pytest.approx(120 / 110)
    assert str(one) == (
        "net: neocpu, 2 streams 500.0 images/s, openvino, its own choice 400.0 images/s"
    )
    document = json.loads(json.dumps(one.to_json()))
    assert document["best_peer"] == "openvino, its own choice"
    assert document["modes"][0]["images_per_second"] == pytest.approx(400)


def test_wrong_results_are_not_compared():
    one = report("net", TIMES, {"openvino, its own choice": 1.0, "neocpu, 2 streams": 1.0})
    assert one.best_peer.mode.label == "onnxruntime, 2 callers"
    assert one.ratio.value == pytest.approx(12 / 10)
    assert one.wrong == ("neocpu, 2 streams",)


def test_alone_there_is_nothing_to_compare():
    one = report("net", {"neocpu, 1 stream": 10.0})
    assert one.ratio is one.gain is one.memory_ratio is one.best_peer is None
    assert summary_table([one], ()).rows == (("net", "100.0 (1 stream)", "-", "-", "-"),)


def test_the_mean_and_the_worst_of_several():
    slower = {**TIMES, "openvino, its own choice": 6.4}
    table = summary_table([report("good", TIMES), report("bad", slower)], PEERS)
    mean = table.rows[-1]
    assert mean == ("geometric mean", "", "", "", "1.00", "1.25", "1.09")
    assert "Least over the best peer: bad, 0.80." in table.notes
    found = Summary.of([report("good", TIMES), report("bad", slower)]).to_json()
    assert found["ratio"] == pytest.approx(1.0)
    assert found["least"] == {"model": "bad", "ratio": pytest.approx(0.8)}
    assert found["most_memory"]["ratio"] == pytest.approx(120 / 110)
    assert Summary.of([]).to_json()["ratio"] is None
    assert table.rows[0][1:4] == ("125.0 (2 streams)", "83.3 (2 callers)", "100.0 (its own choice)")


@needs.package("matplotlib", "neocpu[bench]")
@pytest.mark.parametrize("count", [1, 3])
def test_the_chart_has_every_mode(tmp_path, count):
    (figure,) = present([report(f"net{number}", TIMES) for number in range(count)], RUN).figures
    text = chart.draw(figure, tmp_path / "chart.svg").read_text()
    for words in ("net0", "onnxruntime, callers", "openvino, its own choice", "memory, MB"):
        assert words in text


def test_the_document_says_how():
    shown = present([report("net", TIMES)], RUN)
    text = document("Throughput of net", RUN, shown, {"Speed": "chart.svg"})
    assert "on 2 threads in all" in text
    assert "![Speed](chart.svg)" in text
    assert "| net | onnxruntime 1.0 | 2 callers | 2 | 83.3 | 0.0% | 120 | 90 | 0.0e+00 |" in text


def test_streams_of_one_thread_are_compiled_for_throughput(linear, tmp_path, monkeypatch):
    made = []

    def compile_in_child(model, path, *, threads, goal, **_):
        made.append((path, goal, threads))

    monkeypatch.setattr(concurrent_calls, "compile_in_child", compile_in_child)
    source, own = tmp_path / "net.onnx", tmp_path / "net.so"
    tested = MeasuredModel(
        header=linear.header, artifact=own, model=source, compilation=Compilation(1.0, 1, 1, 1)
    )
    request = ThroughputRequest(peers=(), threads=5, streams=(1, 2, 3, 5), rounds=2)
    found = concurrent_calls.artifacts_of(tested, request, tmp_path)
    plans = {path: (goal, threads) for path, goal, threads in made}
    assert len(made) == len(plans) == 3
    assert [plans.get(path, path) for path in found.values()] == [
        own,
        ("latency", 2),
        ("throughput", 3),
        ("throughput", 5),
    ]
    compiled_before = replace(tested, compilation=None)
    assert {*concurrent_calls.artifacts_of(compiled_before, request, tmp_path).values()} == {own}
    assert len(made) == 3


@pytest.fixture
def briefly(monkeypatch):
    """Rounds of a toy that end soon."""
    monkeypatch.setattr(concurrent_calls, "ROUND_SECONDS", 0.02)


def bench(*arguments):
    return main(["bench", "throughput", "--rounds", "2", *map(str, arguments)])


@needs.cpus(2)
@pytest.mark.usefixtures("briefly")
@needs.engine("onnxruntime")
def test_an_artifact_beside_a_peer(linear, linear_onnx, tmp_path, capsys):
    page = tmp_path / "throughput.md"
    arguments = (linear.path, "--model", linear_onnx, "--vs", "onnxruntime", "--threads", 2)
    html = tmp_path / "throughput.html"
    assert bench(*arguments, "--streams", 2, "-o", page, "--html", html, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    (one,) = printed["results"]
    assert printed["summary"]["ratio"] == pytest.approx(one["ratio"]["value"])
    labels = [mode["label"] for mode in one["modes"]]
    assert labels == ["neocpu, 2 streams", "onnxruntime, 2 sessions", "onnxruntime, 2 callers"]
    assert all(mode["agrees"] and mode["rss"] >= mode["pss"] > 1e6 for mode in one["modes"])
    assert [mode["streams"] for mode in one["modes"]] == [2, 2, 2]
    assert one["ratio"]["value"] > 0
    assert one["streams_over_one"] is None
    assert "### Every mode" in page.read_text()
    speeds, memory = parts_in(html, "chart")
    modes = one["modes"]
    assert [line["values"] for line in speeds["lines"]] == [[m["images_per_second"]] for m in modes]
    assert [line["values"] for line in memory["lines"]] == [[m["rss"]] for m in modes]
    assert [len(table["rows"]) for table in parts_in(html, "table")] == [1, 3]


@pytest.mark.usefixtures("briefly")
@needs.engine("onnxruntime")
def test_a_wrong_result_is_called_out(linear, wrong_onnx, capsys):
    arguments = (linear.path, "--model", wrong_onnx, "--vs", "onnxruntime", "--threads", 1)
    assert bench(*arguments) == AccuracyError.exit_code
    assert "wrong outputs: linear as neocpu, 1 stream" in capsys.readouterr().err


def test_a_stream_has_a_thread(linear, capsys):
    assert bench(linear.path, "--threads", 1, "--streams", "1,2") == UsageError.exit_code
    assert "--streams 2: each stream needs a thread" in capsys.readouterr().err
