"""Latency over threads: what is measured, what is predicted, and how it is shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from page_sections import parts_in
from synthetic import MACHINE as HERE

import neocpu
from neocpu.bench.limits.roofline import Limits
from neocpu.bench.results import chart
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.results.presentation import Run
from neocpu.bench.scaling import model_scaling, presentation
from neocpu.bench.scaling.loop_times import MeasuredRun, kernel_loops, measure_run
from neocpu.bench.scaling.model_scaling import ScalingRequest, predict_models
from neocpu.cli.main import main
from neocpu.foundation.errors import ArtifactError, ModelError, UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.machine.machines import MACHINES
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.schedules.estimates.parallel_run import CallTime, LoopTime, RunTime
from neocpu.schedules.vocabulary.target_parsing import host_target

MACHINE = replace(MACHINES["znver4"], fork=0.0, fork_core=1e-6)
LIMITS = {
    1: Limits(threads=1, flops=MACHINE.flops, dram=30e9),
    2: Limits(threads=2, flops=2 * MACHINE.flops, dram=45e9),
}
RUN = Run(command="", machine=HERE, peers=(), threads=(2, 4), rounds=0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Artifact of two convolutions, a pooling and a dense layer."""
    net = NetworkBuilder("tiny", (1, 3, 32, 32), seed=0)
    x = net.relu(net.batch_norm(net.conv(net.input, "c1", 16, 3, padding=1), "b1"), "r1")
    y = net.relu(net.batch_norm(net.conv(x, "c2", 16, 3, padding=1), "b2"), "r2")
    path = tmp_path_factory.mktemp("scaling") / "tiny.so"
    with neocpu.compile(net.finish(net.classifier(y, "fc", 10)), threads=2, verify=False) as made:
        made.export(path)
    return path


def test_loops_are_timed_in_the_running_network(tiny):
    loops = kernel_loops(tiny)
    assert any(any(each) for each in loops.values())
    threads = min(2, usable_cpus())
    found = measure_run(tiny, threads, rounds=3)
    assert found.seconds > 0
    assert {call.kernel for call in found.run.calls} == set(loops)
    for call in found.run.calls:
        found_loops = tuple(loop.iterations for loop in call.loops)
        # LLVM gets no loop of a single iteration.
        assert found_loops == (() if set(loops[call.kernel]) == {1} else loops[call.kernel])
        assert all(loop.entered == 1 for loop in call.loops)
        # Times are of the same runs: a call's loops take a part of the call's time.
        assert sum(loop.seconds for loop in call.loops) <= call.seconds + 1e-9
    assert sum(call.weights for call in found.run.calls) >= 4 * (16 * 27 + 16 * 144 + 160)


def test_an_artifact_that_does_not_run_is_named(tmp_path):
    path = tmp_path / "no.so"
    path.write_bytes(b"no artifact")
    with pytest.raises(ArtifactError, match=r"cannot time no\.so: "):
        measure_run(path, 1)


@pytest.fixture
def compiled(monkeypatch):
    """Fake compiling and measuring: a call of 32 tasks, and one without tasks."""
    made = []

    def compile_in_child(source, artifact, *, threads, target, **_):
        made.append((threads, target))

    def measure(artifact, threads):
        seconds = 1.0e-3 if made[-1][0] == 1 else 1.2e-3
        calls = (
            CallTime(name="conv_0", kernel="conv", seconds=seconds, loops=(LoopTime(32, seconds),)),
            CallTime(name="top_0", kernel="top", seconds=0.1e-3),
        )
        return MeasuredRun(0.6e-3, RunTime(calls))

    monkeypatch.setattr(model_scaling, "compile_in_child", compile_in_child)
    monkeypatch.setattr(model_scaling, "measure_run", measure)
    monkeypatch.setattr(model_scaling, "measure_limits", lambda threads, _: LIMITS[threads])
    monkeypatch.setattr(model_scaling, "usable_cores", lambda: 2)
    monkeypatch.setattr(model_scaling, "read_header", lambda _: type("Header", (), {"name": "net"}))
    return made


def _predicted(counts=(2, 4), machine=MACHINE, is_host=True):
    request = ScalingRequest(counts=counts, machine=machine, is_host=is_host)
    (found,) = predict_models(["net.onnx"], request)
    assert not isinstance(found, ModelFailure), found
    return found


def test_every_thread_count_is_compiled_and_measured_if_there_are_cpus(compiled):
    found = _predicted()
    assert compiled == [(1, None), (2, None), (4, None)]
    assert [step.measured for step in found.steps] == [0.6e-3, None]
    assert found.alone == pytest.approx(1.1e-3)
    here = found.request.machine
    assert (here.memory_core, here.memory_l3, here.memory_all) == (30e9, 45e9, MACHINE.memory_all)
    two, four = found.steps
    assert two.predicted.seconds == pytest.approx(0.6e-3 + 0.1e-3 + 2e-6)
    assert two.error == pytest.approx(0.702 / 0.6 - 1)
    assert found.efficiency(four) == pytest.approx(1.1e-3 / 4 / (0.3e-3 + 0.1e-3 + 4e-6))
    lost = {"other code": found.other_code(four), **four.predicted.lost}
    assert four.predicted.seconds == pytest.approx(found.alone / 4 + sum(lost.values()))


def test_cores_slower_than_the_l3_tell_nothing_about_it(compiled, monkeypatch):
    limits = {1: LIMITS[1], 2: replace(LIMITS[2], dram=59e9)}
    monkeypatch.setattr(model_scaling, "measure_limits", lambda threads, _: limits[threads])
    for name, known in (("znver4", 59e9), ("icelake-server", 165e9)):
        here = _predicted(machine=MACHINES[name]).request.machine
        assert (here.memory_core, here.memory_l3) == (30e9, known)
    pair = replace(MACHINES["icelake-server"], l3_cores=2)
    assert _predicted(machine=pair).request.machine.memory_l3 == 59e9


def test_for_another_cpu_models_are_compiled_but_not_measured(compiled, monkeypatch):
    limits = replace(LIMITS[1], flops=2 * MACHINE.flops)
    monkeypatch.setattr(model_scaling, "measure_limits", lambda *_: limits)
    found = _predicted(is_host=False)
    assert found.request.machine == MACHINE
    assert compiled == [(1, "znver4"), (2, "znver4"), (4, "znver4")]
    assert [step.measured for step in found.steps] == [None, None]
    assert found.alone == pytest.approx(2.2e-3)


def test_tables_distinguish_measured_from_predicted_and_name_the_limit(compiled):
    found = _predicted()
    scaling, limits = presentation.present([found], RUN).tables
    assert [row[:3] for row in scaling.rows] == [("2", "0.60", "0.70"), ("4", "", "0.40")]
    assert "predictions are off by +17.0% with 2 threads" in scaling.notes[0]
    assert [row[:4] for row in limits.rows] == [
        ("2", "top_0", "one thread", "1"),
        ("2", "conv_0", "fork-join", "32"),
        ("4", "top_0", "one thread", "1"),
        ("4", "conv_0", "fork-join", "32"),
    ]
    text = json.dumps(found.to_json())
    assert json.loads(text)["steps"][1]["operators"][0]["iterations"] == [32]


def test_several_models_have_a_summary(compiled):
    found = _predicted()
    other = replace(found, name="other")
    summary, first, *_ = presentation.present([found, other], RUN).tables
    assert (summary.header, first.title) == (
        ("model", "2 threads", "4 threads"),
        "Scaling of net on znver4",
    )
    assert summary.rows == (("net", "78% (+17.0%)", "68%"), ("other", "78% (+17.0%)", "68%"))
    assert summary.notes == (
        "With 2 threads, predictions are off by 17.0% in the median: in brackets, from what was "
        "measured.",
    )


def test_the_machine_has_to_be_known_and_large_enough(monkeypatch):
    def request(machine, counts=None):
        return ScalingRequest.of(machine, counts, (), NO_SHAPES)

    assert request("icelake-server").counts == (1, 2, 4, 8, 16, 32, 64)
    with pytest.raises(UsageError, match="threads=128 is more than the machine has: 64 cores"):
        request("znver4", (1, 128))
    host = replace(host_target(), mcpu="haswell")
    monkeypatch.setattr(model_scaling, "host_target", lambda: host)
    assert not request("znver4").is_host
    with pytest.raises(UsageError, match="CPU, haswell, is not a known one: name a machine"):
        request(None)


def test_the_command_writes_a_document_with_a_chart(compiled, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neocpu.foundation.machine.machine_info.describe", lambda: HERE)
    assert main(["bench", "scaling", "net.onnx", "--threads", "2", "--machine", "none"]) == 2
    assert "no machine 'none'" in capsys.readouterr().err
    arguments = ["net.onnx", "--threads", "2,4", "--machine", "icelake-server", "-o", "s.md"]
    arguments += ["--html", "s.html"]
    assert main(["bench", "scaling", *arguments]) == 0
    out = capsys.readouterr().out
    assert "Scaling of net on icelake-server" in out
    assert "What limits net most" in out
    text = Path("s.md").read_text()
    assert "neocpu bench scaling net.onnx" in text
    if chart.available():
        assert "![Speed over the number of threads](s.svg)" in text
        assert "net on a icelake-server" in Path("s.svg").read_text()
    speeds, losses = parts_in(Path("s.html"), "chart")
    assert [line["label"] for line in speeds["lines"]] == ["every thread in full", "predicted"]
    assert speeds["along"] == losses["along"] == [2, 4]
    assert [row[0] for row in parts_in(Path("s.html"), "table")[0]["rows"]] == ["2", "4"]


def test_a_model_that_fails_is_reported(compiled, monkeypatch):
    def fail(*_, **__):
        raise ModelError("no model")

    monkeypatch.setattr(model_scaling, "compile_in_child", fail)
    (found,) = predict_models(
        ["net.onnx"], ScalingRequest(counts=(2,), machine=MACHINE, is_host=True)
    )
    assert isinstance(found, ModelFailure)


def test_a_named_machine_has_its_known_memory_bandwidth(monkeypatch):
    def fail(*_, **__):
        raise ModelError("no model")

    measured = []
    monkeypatch.setattr(model_scaling, "compile_in_child", fail)
    monkeypatch.setattr(model_scaling, "_as_it_reads", lambda one, _: measured.append(one) or one)
    for is_named in (True, False):
        request = ScalingRequest(counts=(2,), machine=MACHINE, is_host=True, is_named=is_named)
        assert len(list(predict_models(["net.onnx"], request))) == 1
        assert bool(measured) != is_named
