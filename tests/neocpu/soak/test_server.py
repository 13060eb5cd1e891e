"""A server among hostile clients survives, keeps no resources, and serves the good client."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import hostile
import numpy as np
import pytest

from tests.neocpu.soak.flat import Footprint, check_flat

pytest.importorskip("uvicorn")
from server_process import ServerProcess
from v2_requests import Connection, binary_tensor, body

INFER = "/v2/models/linear/infer"
SEED = 20261122
RATE = 100.0
"""Hostile requests a second: a machine's CPUs serve the clients, too."""
BATCH = 50


class GoodClient:
    """Sends a right request now and then, and compares the answers byte for byte."""

    def __init__(self, server: ServerProcess, toy) -> None:
        x = np.ascontiguousarray(toy.inputs()[0])
        text = body(binary_tensor("x", x), parameters={"binary_data_output": True})
        self._request = (INFER, text + x.tobytes(), len(text))
        self._connection = Connection(server.address)
        self._expected = self._ask()
        tail = np.frombuffer(self._expected[-4 * 33 * 4 :], "float32").reshape(4, 33)
        np.testing.assert_allclose(tail, toy.reference(x)[0], rtol=1e-4, atol=1e-4)

    def _ask(self) -> bytes:
        answer = self._connection.post(*self._request)
        assert answer.status == 200, answer
        return answer.content

    def ask_until(self, over) -> list[float]:
        """Return how many seconds each answer took; all of them are right."""
        seconds = []
        while not over():
            start = time.perf_counter()
            assert self._ask() == self._expected
            seconds.append(time.perf_counter() - start)
            time.sleep(0.005)
        return seconds

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def server(linear, tmp_path):
    with ServerProcess(linear.path, "--max-bytes-in-flight", "64MiB") as running:
        yield running
        assert running.log() == ""


@pytest.mark.slow
def test_clients_that_vanish(server, linear, soak):
    """Clients vanish at random bytes of the request, or before they have read the answer."""
    target = hostile.Target(*server.address, "linear")
    data = target.post(hostile.good())
    good = GoodClient(server, linear)
    ways = ("vanish", "reset", "slow", "read")

    def work(number):
        threads = [
            threading.Thread(
                target=hostile.send,
                args=(target, data, ways[i % 4], hostile.random.Random(number * BATCH + i)),
            )
            for i in range(BATCH)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rounds = soak.count(2 * BATCH, 10_000) // BATCH
    soak(check_flat(work, rounds, warmup=4, process=server.process.pid))
    good.ask_until(iter([False, True]).__next__)
    good.close()


@pytest.mark.slow
def test_hostile_mix(server, linear, soak):
    """One good client gets only right answers during attacks of every kind in random order."""
    count, rounds = soak.count(200, 10_000), 10 if soak.full else 2
    good = GoodClient(server, linear)
    before = Footprint.of(server.process.pid)
    alone, beside, answers = [], [], Counter()
    for number in range(rounds):  # in turns, for the machine may be slower later
        end = time.monotonic() + min(8.0, count / rounds / RATE)
        alone += good.ask_until(lambda end=end: time.monotonic() > end)
        arguments = (*server.address, "linear", SEED + number, count // rounds, RATE)
        command = [sys.executable, Path(hostile.__file__), *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attackers:
            beside += good.ask_until(lambda attackers=attackers: attackers.poll() is not None)
            for codes in json.loads(attackers.stdout.read()).values():
                answers.update(codes)
    good.ask_until(iter([False] * 20 + [True]).__next__)
    good.close()
    read = {code: times for code, times in answers.items() if code != hostile.UNREAD}
    statuses = {int(code) for code in read if code != "null"}
    assert statuses <= {200, *range(400, 500)}, answers
    assert 200 in statuses
    # A client that is refused while it sends may see a reset connection and no answer.
    assert read.get("null", 0) <= sum(read.values()) / 2, answers
    after = Footprint.of(server.process.pid)
    assert server.process.poll() is None
    assert after.resident - before.resident < (96 if soak.full else 32) << 20
    soak((before, after))
    a, b = (float(np.percentile(times, 99)) * 1e3 for times in (alone, beside))
    print(f"  {len(alone)} answers alone, p99 {a:.2f} ms; {len(beside)} beside, p99 {b:.2f} ms")
    print(f"  ratio {b / a:.2f}; statuses {sorted(statuses)}")
    if soak.full:  # no regular test depends on time
        assert b < 2 * a
