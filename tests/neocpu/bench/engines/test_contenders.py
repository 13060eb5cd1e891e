"""The protocol between a benchmark and its contenders' processes, from both ends."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import needs
import numpy as np
import psutil
import pytest
from processes import runs
from waiting import wait_until

from neocpu.bench.engines import contenders
from neocpu.bench.engines.agreement import relative_error
from neocpu.bench.engines.contender_process import LEAST_LAPS, Server, serve
from neocpu.bench.engines.contenders import (
    Contender,
    ContenderError,
    ContenderProcess,
    Usage,
    converted,
)
from neocpu.bench.engines.engine_session import Session, load_inputs, save_inputs
from neocpu.bench.engines.engines import CONCURRENT, ENGINES, called_by

FAKE = (sys.executable, str(Path(__file__).parents[1] / "fake_contender.py"))


def _start(behaviour, timeout=20.0):
    contender = Contender("fake", "none", Path(behaviour))
    return ContenderProcess(contender, 2, Path("inputs.npz"), command=FAKE, timeout=timeout)


def test_a_contender_loads_and_runs():
    with _start("well") as process:
        assert process.version == "1.0"
        assert process.load_seconds == 0.5
        assert process.output_names == ("y",)
        assert process.run(3, untimed=1) == (0.25, 0.25, 0.25)


def test_a_contender_is_stopped_unless_it_is_asked():
    with _start("spin") as process:
        observed = psutil.Process(process.pid)
        for _ in range(2):
            assert observed.status() == psutil.STATUS_STOPPED
            used = sum(observed.cpu_times()[:2])
            time.sleep(0.1)
            assert sum(observed.cpu_times()[:2]) == used
            process.run(1)


def test_closing_ends_a_stopped_process():
    process = _start("spin")
    process.close()
    process.close()
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("crash", r"its process ended \(killed by SIGABRT\): no such luck"),
        ("error", "ValueError: bad model"),
        ("gibberish", "unintelligible reply b'Hello!"),
        ("nonsense", r"unintelligible reply b'\[\"ok\"\]"),
        ("hang", r"no answer within 0\.5 s"),
    ],
)
def test_a_failure_is_one_line(behaviour, message):
    children = set(psutil.Process().children())
    with pytest.raises(ContenderError, match=message) as caught:
        _start(behaviour, timeout=0.5 if behaviour == "hang" else 20.0)
    assert "\n" not in str(caught.value)
    assert set(psutil.Process().children()) == children


@pytest.mark.parametrize("threads", [2, None])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_computes_the_model(
    engine, threads, linear, linear_onnx, linear_inputs, inputs_file, tmp_path
):
    """Engines run with a number of threads, in float32 or bfloat16, and by their defaults."""
    needs.skip(needs.engine(engine.removesuffix("-bf16")))
    path = linear.path if engine == "neocpu" else linear_onnx
    ready = converted(Contender(engine, engine, path), tmp_path)
    with ContenderProcess(ready, threads, inputs_file) as process:
        seconds = process.run(3, untimed=1)
        (output,) = process.outputs()
        usage = process.usage()
        assert process.output_names == (linear.header.outputs[0].name,)
        computes_in = process.computes_in
    assert (computes_in in ("bf16", "f32")) == engine.endswith("-bf16")
    (expected,) = linear.reference(*linear_inputs.values())
    if computes_in == "bf16":  # cancellation has lost these bits
        assert relative_error([output], [expected]) < 0.01
    else:
        rounding = {"rtol": 1e-4, "atol": 1e-5} if threads else {"rtol": 0.02, "atol": 0.02}
        np.testing.assert_allclose(output, expected, **rounding)
    assert len(seconds) == 3
    assert min(seconds) > 0
    # A Python process with numpy holds at least this much, and with a toy model no more.
    assert 10e6 < usage.peak_rss < 2e9
    assert 0 < usage.cpu_seconds < 100


def test_a_process_that_ended_still_tells_its_time():
    with _start("spin") as process:
        process.run(1)
        before = process.usage().cpu_seconds
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert process.usage().cpu_seconds >= before > 0
        with pytest.raises(ContenderError, match="killed by SIGKILL"):
            process.run(1)
        assert process.usage() == Usage(0.0, 0)


def test_models_are_converted_once(tmp_path, monkeypatch):
    calls = []

    def convert(model, folder):
        calls.append(model.name)
        if model.name == "bad.onnx":
            raise RuntimeError("cannot\nconvert this")
        (folder / "converted").touch()

    monkeypatch.setattr(contenders, "CONVERTERS", {"other": convert})
    for name in ("good.onnx", "bad.onnx"):
        (tmp_path / name).touch()
    good, bad = (Contender("x", "other", tmp_path / f"{name}.onnx") for name in ("good", "bad"))
    first, second = (converted(good, tmp_path / "work") for _ in range(2))
    assert first == second
    assert (first.path / "converted").exists()
    assert first.label == "x"
    for _ in range(2):
        with pytest.raises(ContenderError, match=r"^cannot convert this$"):
            converted(bad, tmp_path / "work")
    assert calls == ["good.onnx", "bad.onnx"]
    neocpu = Contender("neocpu", "neocpu", Path("module.so"))
    assert converted(neocpu, tmp_path / "work") is neocpu


def test_a_missing_model_is_the_contenders_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(contenders, "CONVERTERS", {"other": None})
    with pytest.raises(ContenderError, match=r"missing\.onnx"):
        converted(Contender("x", "other", tmp_path / "missing.onnx"), tmp_path)


def test_an_engine_may_print_what_it_likes(inputs_file, tmp_path):
    chatty = tmp_path / "chatty.py"
    chatty.write_text(
        "import os\n"
        "from neocpu.bench.engines import contender_process as child\n"
        "from neocpu.bench.engines.engine_session import Session\n"
        "def load(path, threads, inputs):\n"
        "    print('loading')\n"
        "    os.write(1, b'native banner\\n')\n"
        "    return Session(version='2', run=lambda: [inputs['x']])\n"
        "child.ENGINES = {'chatty': load}\n"
        "child.main()\n"
    )
    contender = Contender("chatty", "chatty", Path("model"))
    command = (sys.executable, str(chatty))
    with ContenderProcess(contender, 1, inputs_file, command=command) as process:
        assert process.version == "2"
        assert process.outputs()[0].shape == (4, 64)


def test_an_engine_failure_names_its_cause(tmp_path, inputs_file):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"nothing")
    with pytest.raises(ContenderError, match=r"ArtifactError: .*broken\.so"):
        ContenderProcess(Contender("neocpu", "neocpu", broken), 1, inputs_file)


def test_a_contender_dies_with_its_parent(linear, inputs_file):
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from neocpu.bench.engines.contenders import Contender, ContenderProcess\n"
        "contender = Contender('neocpu', 'neocpu', Path(sys.argv[1]))\n"
        "process = ContenderProcess(contender, 1, Path(sys.argv[2]))\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", script, str(linear.path), str(inputs_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: not runs(int(done.stdout)), what="the contender's end after its parent's")


def test_the_child_answers_errors_and_goes_on():
    requests = [{"do": "load", "engine": "none", "path": "", "threads": 1, "inputs": "missing.npz"}]
    replies = io.StringIO()
    serve(io.StringIO("\n".join(map(json.dumps, requests * 2))), replies)
    first, second = map(json.loads, replies.getvalue().splitlines())
    assert first == second
    assert first["error"].startswith("FileNotFoundError: ")


def test_inputs_may_have_any_names(tmp_path):
    inputs = {"file": np.arange(3), "a/b:0": np.ones((2, 2), np.float32), "names": np.array(1)}
    save_inputs(tmp_path / "inputs.npz", inputs)
    loaded = load_inputs(tmp_path / "inputs.npz")
    assert list(loaded) == list(inputs)
    for name, array in inputs.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype


@pytest.mark.parametrize("engine", CONCURRENT)
def test_every_engine_computes_the_model_several_times_at_once(
    engine, linear, linear_onnx, linear_inputs, inputs_file, tmp_path
):
    needs.skip(needs.engine(engine.removesuffix("-sessions")))
    path = linear.path if engine == "neocpu" else linear_onnx
    ready = converted(Contender(engine, engine, path, streams=2), tmp_path)
    with ContenderProcess(ready, 2, inputs_file) as process:
        (seconds,) = process.run(3, untimed=1)
        (output,) = process.outputs()
        assert process.streams == 2
    (expected,) = linear.reference(*linear_inputs.values())
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    assert 0 < seconds < 1


@needs.engine("openvino")
def test_openvino_chooses_its_streams(linear_onnx, inputs_file):
    contender = Contender("openvino", "openvino", linear_onnx, streams=0)
    with ContenderProcess(contender, 2, inputs_file) as process:
        assert process.streams >= 1
        assert len(process.run(1)) == 1


def test_as_many_calls_run_at_once_as_there_are_streams():
    together = threading.Barrier(3)
    calls = []

    def run():
        together.wait(10)  # a barrier that no call passes alone
        calls.append(threading.current_thread())

    session = called_by(Session(version="1.0", run=run), [run] * 3)
    assert session.run_many(1) == 3
    assert session.run_many(7) == 9
    assert len(calls) == 12
    assert session.streams == len({*calls}) == 3


def test_each_stream_makes_a_call_however_short():
    for _ in range(20):
        calls = []
        runs = [partial(calls.append, stream) for stream in range(8)]
        session = called_by(Session(version="1.0", run=list), runs)
        assert session.run_many(0) == len(calls) == 0
        assert session.run_many(1) == 8
        assert sorted(calls) == [*range(8)]


def test_a_blocked_stream_makes_fewer_calls():
    calls, rest = [], threading.Event()

    def slow():
        calls.append("slow")
        rest.wait(10)

    def fast():
        calls.append("fast")
        if calls.count("fast") == 5:
            rest.set()

    assert called_by(Session(version="1.0", run=fast), [slow, fast]).run_many(6) == 6
    assert sorted(calls) == ["fast"] * 5 + ["slow"]


def test_errors_of_calls_are_raised():
    def fail():
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        called_by(Session(version="1.0", run=fail), [fail, fail]).run_many(2)


def test_a_few_calls_are_timed_as_many(monkeypatch, inputs_file):
    made = []

    def run_many(times):
        made.append(times)
        return times

    session = Session(version="1.0", run=list, streams=2, run_many=run_many)
    loaders = {"fake": lambda path, threads, inputs, streams: session}
    monkeypatch.setattr("neocpu.bench.engines.contender_process.CONCURRENT", loaders)
    server = Server()
    request = {"do": "load", "engine": "fake", "path": "", "threads": 2, "streams": 2}
    assert server.answer({**request, "inputs": str(inputs_file)})["streams"] == 2
    (each,) = server.answer({"do": "run", "times": 3, "untimed": 1})["seconds"]
    server.answer({"do": "run", "times": 500, "untimed": 1})
    assert made == [1, 2 * LEAST_LAPS, 1, 500]
    assert each >= 0
