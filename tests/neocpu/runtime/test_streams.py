"""Streams of a module: simultaneous calls on one set of weights."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from forgery import forge_header
from scripts import run_script
from waiting import PATIENCE

from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.runtime import streams
from neocpu.runtime.module import load
from neocpu.runtime.queued_calls import QueuedCalls
from neocpu.runtime.streams import StreamPools
from neocpu.runtime.thread_pool import ThreadPool

STREAMS = 3


@pytest.fixture
def streamed(two_way):
    with load(two_way.path, threads=1, streams=STREAMS) as module:
        yield module


def test_many_callers_get_what_each_asked_for(two_way, streamed):
    cases = [two_way.inputs(seed) for seed in range(24)]
    with load(two_way.path, threads=1) as alone:
        expected = [alone(case) for case in cases]
    with ThreadPoolExecutor(8) as callers:
        got = list(callers.map(streamed, cases))
    for mine, theirs in zip(got, expected, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_as_many_calls_run_at_once_as_there_are_streams():
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(STREAMS, timeout=PATIENCE)
    pools = StreamPools(STREAMS, 1)

    def call(_):
        nonlocal running, most
        with pools.taken():
            with lock:
                running += 1
                most = max(most, running)
            together.wait()
            with lock:
                running -= 1

    with ThreadPoolExecutor(8) as callers:
        list(callers.map(call, range(8 * STREAMS)))
    pools.close()
    assert most == STREAMS


def test_submitted_calls_are_those_of_a_lone_module(two_way, streamed):
    cases = [two_way.inputs(seed) for seed in range(12)]
    got = [future.result() for future in [streamed.submit(case) for case in cases]]
    with load(two_way.path, threads=1) as alone:
        for case, mine in zip(cases, got, strict=True):
            for a, b in zip(mine, alone(case), strict=True):
                np.testing.assert_array_equal(a, b)


def test_closing_waits_for_all_calls(two_way):
    module = load(two_way.path, threads=1, streams=STREAMS)
    futures = [module.submit(two_way.inputs()) for _ in range(20)]
    module.close()
    assert all(future.done() for future in futures)
    with pytest.raises(UsageError, match="closed"):
        module(two_way.inputs())
    with pytest.raises(UsageError, match="closed"):
        module.submit(two_way.inputs())
    module.close()


def test_waiting_is_for_every_thread_of_a_queue():
    calls = QueuedCalls("some", 3)
    done, gate = [], threading.Event()
    for number in range(9):
        calls.submit(lambda number=number: (gate.wait(), done.append(number)))
    waiting = [threading.Thread(target=calls.wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    gate.set()
    for thread in waiting:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(done) == list(range(9))
    calls.end()
    calls.wait()


def test_streams_are_described(two_way, streamed):
    assert (streamed.streams, streamed.threads) == (STREAMS, 1)
    assert "3 at once" in repr(streamed)
    with load(two_way.path, streams=2) as module:
        assert module.threads == max(1, usable_cpus() // 2)
    with load(two_way.path) as module:
        assert module.streams == 1


def test_auto_takes_what_makes_the_most_calls(two_way, monkeypatch):
    monkeypatch.setattr(streams, "usable_cpus", lambda: 4)
    tried = {}

    def measured(session):
        tried[len(session.streams)] = True
        return {1: 100.0, 2: 150.0, 4: 151.0}[len(session.streams)]

    monkeypatch.setattr(streams, "_calls_per_second", measured)
    with load(two_way.path, streams="auto", threads=1) as module:
        assert module.streams == 2
    assert list(tried) == [1, 2, 4]


def test_auto_measures(two_way, monkeypatch):
    monkeypatch.setattr(streams, "TRIAL_SECONDS", 0.01)
    with load(two_way.path, streams="auto") as module:
        assert 1 <= module.streams <= usable_cpus()
        module(two_way.inputs())


@pytest.mark.parametrize(("threads", "found"), [(None, (3, 1)), (2, (1, 2))])
def test_auto_does_as_was_planned_for_throughput(two_way, tmp_path, monkeypatch, threads, found):
    fields = {**two_way.header.to_json(), "threads": 1, "streams": 4}
    planned = forge_header(two_way.path, tmp_path / "planned.so", fields)
    monkeypatch.setattr(streams, "usable_cpus", lambda: 3)
    monkeypatch.setattr(streams, "fastest_streams", None)  # nothing is measured
    for source in (planned, planned.read_bytes()):
        with load(source, threads, streams="auto") as module:
            assert (module.streams, module.threads) == found
    with pytest.raises(UsageError, match="threads must be"):
        load(planned, 0, streams="auto")


def test_a_model_in_memory_has_streams(two_way):
    with load(two_way.path.read_bytes(), threads=1, streams=2, hugepages=True) as module:
        module.warmup(1)
        two_way_outputs = module(two_way.inputs())
    for got, wanted in zip(two_way_outputs, two_way.reference(*two_way.inputs()), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_weights_are_mapped_once(two_way, tmp_path):
    copy = tmp_path / "copy.so"
    copy.write_bytes(two_way.path.read_bytes())
    with load(copy, threads=1, streams=4):
        mapped = Path("/proc/self/maps").read_text().count(str(copy))
    assert mapped == 1


@pytest.mark.parametrize("number", [0, -1, 1.5, "many", 10**12])
def test_a_number_of_streams_that_is_none_is_refused(two_way, number):
    with pytest.raises(
        UsageError, match=r"streams must be from 1 to \d+ on this machine or 'auto'"
    ):
        load(two_way.path, streams=number)


@pytest.mark.parametrize("streams", [1, 2, "auto"])
def test_streams_of_no_threads_are_refused(two_way, streams):
    with pytest.raises(UsageError, match="threads must be from 1 to"):
        load(two_way.path, threads=0, streams=streams)


def test_streams_have_threads_of_their_own(two_way):
    with ThreadPool(1) as pool, pytest.raises(UsageError, match="exclude streams="):
        load(two_way.path, pool=pool, streams=2)
    with pytest.raises(UsageError, match="exclude streams="):
        load(two_way.path, pin=True, streams=2)


def test_streams_are_not_traced(streamed):
    with pytest.raises(UsageError, match="load it with streams=1"):
        streamed.start_trace()


def test_a_module_makes_another_on_another_pool(two_way):
    inputs = two_way.inputs()
    with ThreadPool(1) as pool, load(two_way.path, threads=1) as first:
        second = first.stream(pool)
        expected = first(inputs)
        first.close()
        for got, wanted in zip(second(inputs), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        with pytest.raises(UsageError, match="closed"):
            first.stream(pool)


def test_a_module_of_streams_makes_no_other(streamed):
    with ThreadPool(1) as pool, pytest.raises(UsageError, match="streams=1"):
        streamed.stream(pool)


def test_a_child_is_refused(two_way):
    code = """
import os, sys, threading
import neocpu
from neocpu.foundation.errors import UsageError
import numpy as np
module = neocpu.load(sys.argv[1], threads=1, streams=2)
zeros = [np.zeros(spec.shape, spec.dtype) for spec in module.inputs]
module(zeros), module.submit(zeros).result()
held = [module._pool.taken() for _ in range(2)]
for one in held:
    one.__enter__()
if (child := os.fork()) == 0:
    refused = 0
    for call in (lambda: module(zeros), lambda: module.submit(zeros)):
        try:
            call()
        except UsageError as error:
            refused += "fork" in str(error)
    module.close()
    os._exit(0 if refused == 2 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_script(code, two_way.path) == ""
