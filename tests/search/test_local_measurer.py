"""Candidates that crash, hang, raise and lie must cost only themselves."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import fake_builder as fake
import pytest
from fake_builder import TARGET, WORKLOAD, request
from processes import alive, wait_for

from neocpu.schedules.errors import NeoCPUError, TargetError
from neocpu.search.local_measurer import LOOKS, LocalMeasurer
from neocpu.search.measure import Measurement

FAKE = "fake_builder:FakeBuilder"


def measurer(timeout: float = 2.0, builder: str = FAKE) -> LocalMeasurer:
    return LocalMeasurer(TARGET, 2, timeout=timeout, children=2, builder=builder)


def measure(*requests, **options) -> list[Measurement]:
    with measurer(**options) as m:
        return list(m.measure(requests))


def looked_at(ratio: float) -> int:
    """Repeats of a candidate that takes ``ratio`` times as long as the best."""
    return sum(repeats for repeats, limit in LOOKS if ratio <= limit)


def test_every_request_is_answered_and_contenders_are_repeated():
    requests = [request(fake.GOOD, 100 + 10 * i) for i in range(30)]
    results = measure(*requests, requests[0])
    assert {m.request for m in results} == set(requests)
    assert len(results) == len(requests)
    for m in results:
        assert m.error is None
        assert m.seconds[0] == pytest.approx(m.request.scheme.reg_n * 1e-6)
        assert len(m.seconds) == looked_at(m.request.scheme.reg_n / 100)


def test_contenders_are_judged_within_their_own_workload():
    other = dataclasses.replace(WORKLOAD, height=9)
    results = measure(request(fake.GOOD, 100), request(fake.GOOD, 900, other))
    assert [len(m.seconds) for m in results] == [looked_at(1.0)] * 2


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (fake.BUILD_RAISES, "cannot build"),
        (fake.BUILD_CRASHES, "crashed: signal 11 (SIGSEGV)"),
        (fake.CRASHES, "crashed: signal 11 (SIGSEGV)"),
        (fake.EXITS, "crashed: exit code 3"),
        (fake.RAISES, "ValueError: and the cause"),
        (fake.NAN, "impossible time: nan"),
        (fake.NEGATIVE, "impossible time: -1.0"),
        (fake.NOTHING, "impossible time: none"),
    ],
)
def test_a_bad_candidate_costs_only_itself(behaviour: int, reason: str):
    good = [request(fake.GOOD, 100 + i) for i in range(6)]
    results = measure(*good[:3], request(behaviour), *good[3:])
    assert [m.error for m in results] == [None, None, None, reason, None, None, None]
    assert results[3].seconds == ()
    assert all(len(m.seconds) in {looked_at(1.0), looked_at(1.05)} for m in results if not m.error)


@pytest.mark.parametrize("behaviour", [fake.BUILD_HANGS, fake.HANGS])
def test_a_hanging_candidate_is_stopped(behaviour: int):
    results = measure(request(fake.GOOD), request(behaviour), request(fake.GOOD, 7), timeout=0.5)
    assert [m.error for m in results] == [None, "timeout: took more than 0.5 s", None]


def test_every_candidate_bad():
    bad = [request(b) for b in (fake.CRASHES, fake.BUILD_CRASHES, fake.RAISES, fake.EXITS)]
    assert all(m.error for m in measure(*bad))


def test_children_get_the_thread_count_and_leave_affinity_alone():
    (result,) = measure(request(fake.GOOD), builder="fake_builder:EnvironmentBuilder")
    assert result.seconds[:3] == (2.0, 0.5, 2.0)


def test_a_builder_that_cannot_start_is_one_clear_error():
    with pytest.raises(NeoCPUError, match="OSError: no compiler here") as caught:
        measure(request(fake.GOOD), builder="fake_builder:BrokenBuilder")
    assert "\n" not in str(caught.value)


def test_a_target_this_machine_cannot_run():
    other = dataclasses.replace(TARGET, mcpu="neoverse-v9", features=("sve9",))
    with pytest.raises(TargetError, match=r"neoverse-v9.*sve9"):
        LocalMeasurer(other, 2)


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_die_with_their_parent(tmp_path: Path, deadly: signal.Signals):
    script = (
        "import fake_builder as f; from test_local_measurer import measure\n"
        "measure(f.request(f.HANGS), f.request(f.BUILD_HANGS), timeout=60.0)\n"
    )
    environment = os.environ | {
        fake.PIDS: str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    parent = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL
    )
    assert wait_for(lambda: len(alive(tmp_path)) == 2)
    os.kill(parent.pid, deadly)
    parent.wait(timeout=20)
    assert wait_for(lambda: not alive(tmp_path))


def test_closing_ends_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(fake.PIDS, str(tmp_path))
    with measurer() as m:
        results = m.measure([request(fake.GOOD), request(fake.GOOD, 7)])
        next(results)
        assert len(alive(tmp_path)) == 2
    assert alive(tmp_path) == []
