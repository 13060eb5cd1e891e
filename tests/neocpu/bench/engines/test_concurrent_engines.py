"""Engines that make several calls at once make as many as asked for, with right results."""

import threading
from functools import partial

import needs
import numpy as np
import pytest

from neocpu.bench.engines.contender_process import LEAST_LAPS, Server
from neocpu.bench.engines.contenders import Contender, ContenderProcess, converted
from neocpu.bench.engines.engine_session import Session
from neocpu.bench.engines.engines import CONCURRENT, called_by


@pytest.mark.parametrize("engine", CONCURRENT)
def test_every_engine_computes_the_model(
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
