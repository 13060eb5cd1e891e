"""``neocpu bench callers``: many threads calling one module."""

import json
import os
import threading
import time

import needs
import numpy as np
import pytest

import neocpu
from neocpu.bench.callers.callers_tables import callers_table
from neocpu.bench.callers.many_callers import Extremes, call_from_threads
from neocpu.cli.main import main
from neocpu.foundation.errors import AccuracyError, UsageError


class FakeModule:
    """A module of Python: ``call`` makes the output of every call."""

    def __init__(self, toy, call):
        self.inputs, self.metadata, self.threads = toy.header.inputs, toy.header, 1
        self._call = call

    def __call__(self, arrays):
        return self._call(*arrays)


def at_work() -> set[threading.Thread]:
    """All threads but those that wait for a module to come."""
    return {thread for thread in threading.enumerate() if thread.name != "neocpu-idle"}


def test_a_sound_module(linear):
    before = at_work()
    with neocpu.load(linear.path, threads=2) as module:
        report = call_from_threads(module, callers=5, seconds=0.6)
    assert at_work() <= before
    assert report.sound
    assert (report.callers, report.threads, report.name) == (5, 2, "linear")
    assert len(report.alone) == len(report.together) > 0
    assert report.calls > 0
    assert report.memory.least > 1e6
    # Callers, this thread, the worker and one more of the pool.
    assert report.process_threads.least >= 8
    assert json.loads(json.dumps(report.to_json()))["throughput_ratio"]["value"] > 0


def test_all_callers_call_at_once(linear):
    inside, most, seen = set(), 0, set()

    def call(x):
        nonlocal most
        name = threading.current_thread().name
        inside.add(name)
        seen.add(name)
        time.sleep(0.01)
        most = max(most, len(inside))
        inside.discard(name)
        return x

    report = call_from_threads(FakeModule(linear, call), callers=5, seconds=0.5)
    assert report.sound
    assert most == 5
    assert seen >= {f"caller-{n}" for n in range(5)}


def test_outputs_of_another_caller_are_noticed(linear):
    # Whoever calls second gets what the first one gave: what a shared buffer would do.
    last = [np.zeros(1)]

    def call(x):
        if threading.current_thread().name.startswith("caller-1"):
            return last[0]
        last[0] = x.copy()
        return x.copy()

    report = call_from_threads(FakeModule(linear, call), callers=2, seconds=0.05)
    assert not report.sound
    assert 0 < report.different < report.calls


def test_one_bit_is_noticed(linear):
    calls = []

    def call(x):
        calls.append(1)
        y = x.copy()
        if len(calls) > 100:
            y.view(np.uint32)[0, 0] ^= 1
        return y

    report = call_from_threads(FakeModule(linear, call), callers=2, seconds=0.2)
    assert report.different > 0


def test_errors_are_results(linear):
    def call(x):
        if threading.current_thread().name == "caller-1":
            raise UsageError("closed")
        return x

    report = call_from_threads(FakeModule(linear, call), callers=3, seconds=0.05)
    assert report.errors == ("UsageError: closed",)
    assert not report.sound
    (note,) = callers_table([report]).notes
    assert note == "linear: calls failed: UsageError: closed"


@needs.cpus(2)
def test_a_changed_affinity_is_noticed(linear):
    def call(x):
        if threading.current_thread().name == "caller-0":
            os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        return x

    report = call_from_threads(FakeModule(linear, call), callers=2, seconds=0.05)
    assert report.moved > 0
    assert not report.sound


def test_callers_end_with_an_interrupted_run(linear):
    reports = []

    def interrupt(progress):
        reports.append(progress)
        if len(reports) == 3:
            raise KeyboardInterrupt

    before = at_work()
    with pytest.raises(KeyboardInterrupt):
        call_from_threads(FakeModule(linear, np.copy), 3, 0.1, interrupt)
    assert at_work() <= before


def test_extremes():
    assert Extremes(3, 8).spread == 5


def test_the_command(linear, two_way, tmp_path, capsys):
    page = tmp_path / "callers.md"
    arguments = ("--callers", "3", "--duration", "0.3", "--threads", "1", "-o", page)
    assert main(["bench", "callers", *map(str, (linear.path, two_way.path, *arguments))]) == 0
    output = capsys.readouterr().out
    assert "Many callers of one module" in output
    assert "two_way" in output
    assert "| linear | 1 | 3 |" in page.read_text()


def test_a_wrong_output_fails_the_command(linear, monkeypatch, capsys):
    noise = np.random.default_rng(0)

    class Noisy(FakeModule):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    module = Noisy(linear, lambda x: x + noise.random())
    monkeypatch.setattr("neocpu.bench.callers.many_callers.load", lambda path, threads: module)
    code = main(["bench", "callers", str(linear.path), "--callers", "2", "--duration", "0.1"])
    assert code == AccuracyError.exit_code
    assert "gave other outputs: linear" in capsys.readouterr().err
