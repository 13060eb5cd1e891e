"""Candidates that crash, hang, raise or lie affect no others."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
from pathlib import Path

import fake_builder as fake
import needs
import pytest
from fake_builder import TARGET, WORKLOAD, request
from processes import alive
from waiting import wait_until

from neocpu.foundation.errors import NeoCPUError, TargetError
from neocpu.search.measuring import child as measuring_child
from neocpu.search.measuring import local_measurer
from neocpu.search.measuring.local_measurer import REPEATS, LocalMeasurer
from neocpu.search.measuring.measure import Measurement

FAKE = "fake_builder:FakeBuilder"


def measurer(timeout: float = 2.0, builder: str = FAKE) -> LocalMeasurer:
    return LocalMeasurer(TARGET, 2, timeout=timeout, children=2, builder=builder)


def measure(*requests, **options) -> list[Measurement]:
    with measurer(**options) as m:
        return list(m.measure(requests))


def test_every_request_is_answered_once_and_hopeless_ones_are_not_repeated():
    requests = [request(fake.GOOD, 100 + 10 * i) for i in range(30)]
    results = measure(*requests, requests[0])
    assert {m.request for m in results} == set(requests)
    assert len(results) == len(requests)
    for m in results:
        assert m.error is None
        assert m.seconds[0] == pytest.approx(m.request.scheme.reg_n * 1e-6)
        assert len(m.seconds) == (1 if m.request.scheme.reg_n > 200 else REPEATS)


def test_hopeless_is_judged_within_a_workload():
    other = dataclasses.replace(WORKLOAD, height=9)
    results = measure(request(fake.GOOD, 100), request(fake.GOOD, 900, other))
    assert [len(m.seconds) for m in results] == [REPEATS] * 2


def test_a_measurement_is_given_before_the_next_is_made():
    with measurer(timeout=60.0) as m:
        results = m.measure([request(fake.GOOD), request(fake.GOOD, 7), request(fake.HANGS)])
        assert next(results).error is None


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (fake.BUILD_RAISES, "ValueError: cannot build"),
        (fake.BUILD_CRASHES, "crashed: signal 11 (SIGSEGV)"),
        (fake.BUILD_FILLS_MEMORY, "out of memory"),
        (fake.FILLS_MEMORY, "out of memory"),
        (fake.KILLED, "out of memory: killed by the system"),
        (fake.CRASHES, "crashed: signal 11 (SIGSEGV)"),
        (fake.EXITS, "crashed: exit code 3"),
        (fake.RAISES, "ValueError: and the cause"),
        (fake.NAN, "impossible time: nan"),
        (fake.NEGATIVE, "impossible time: -1.0"),
        (fake.NOTHING, "impossible time: none"),
    ],
)
@needs.one_in(2)
def test_a_bad_candidate_costs_only_itself(behaviour: int, reason: str):
    good = [request(fake.GOOD, 100 + i) for i in range(6)]
    bad = request(behaviour)
    results = measure(*good[:3], bad, *good[3:])
    assert {m.request: m.error for m in results} == dict.fromkeys(good) | {bad: reason}
    assert len(results) == 7
    assert all(len(m.seconds) == (0 if m.error else REPEATS) for m in results)


@pytest.mark.parametrize("behaviour", [fake.BUILD_HANGS, fake.HANGS])
def test_a_hanging_candidate_is_stopped(behaviour: int):
    good = [request(fake.GOOD), request(fake.GOOD, 7)]
    bad = request(behaviour)
    results = measure(good[0], bad, good[1], timeout=0.5)
    reason = "timeout: took more than 0.5 s"
    assert {m.request: m.error for m in results} == dict.fromkeys(good) | {bad: reason}


def test_every_candidate_bad():
    bad = [request(b) for b in (fake.CRASHES, fake.BUILD_CRASHES, fake.RAISES, fake.EXITS)]
    assert all(m.error for m in measure(*bad))


def test_compare_takes_turns_and_gives_the_new_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv(fake.LOG, str(tmp_path / "log"))
    pair = [request(fake.GOOD, 100), request(fake.GOOD, 900)]
    with measurer() as m:
        list(m.measure(pair))
        (tmp_path / "log").unlink()
        results = list(m.compare([*pair, pair[0]], rounds=3))
    assert {m.request: m.seconds for m in results} == {
        pair[0]: pytest.approx((1e-4,) * 3),
        pair[1]: pytest.approx((9e-4,) * 3),
    }
    assert (tmp_path / "log").read_text().split() == ["100", "900"] * 3


def test_compare_builds_missing_candidates_and_reports_failures():
    good, bad = [request(fake.GOOD), request(fake.GOOD, 7)], request(fake.CRASHES)
    with measurer() as m:
        results = list(m.compare([good[0], bad, good[1]], rounds=4))
    assert {m.request: len(m.seconds) for m in results} == dict.fromkeys(good, 4) | {bad: 0}
    assert len(results) == 3


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (fake.GOOD, None),
        (fake.WRONG, fake.WRONG_ANSWER),
        (fake.CRASHES, "crashed: signal 11 (SIGSEGV)"),
        (fake.HANGS, "timeout: took more than 0.5 s"),
        (fake.RAISES, "ValueError: and the cause"),
        (fake.BUILD_RAISES, "ValueError: cannot build"),
    ],
)
def test_check(behaviour: int, reason: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_measurer, "CHECK_PATIENCE", 1)
    good, other = [request(fake.GOOD, n) for n in (10, 11)], request(behaviour)
    with measurer(timeout=0.5) as m:
        results = list(m.check([good[0], other, good[1], good[0]]))
    assert {m.request: m.error for m in results} == dict.fromkeys(good) | {other: reason}
    assert all(m.seconds == () for m in results)
    assert len(results) == 3


def test_a_check_that_takes_longer_than_a_kernel_may_is_no_failure():
    slow = request(fake.CHECKS_SLOWLY)
    with measurer(timeout=fake.SLOW / 2) as m:
        assert [c.error for c in m.check([slow])] == [None]


def test_failing_to_start_a_process_is_one_clear_error(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(NeoCPUError, match=r"cannot start a measuring process: .*unavailable"):
        measure(request(fake.GOOD))


def test_built_candidates_are_not_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv(fake.BUILDS, str(tmp_path / "builds"))
    requests = [request(fake.GOOD, 100 + i) for i in range(40)]
    with measurer() as m:
        list(m.measure(requests))
        assert len(list(m.compare(requests, 1))) == 40
        assert all(c.error is None for c in m.check(requests))
    assert len((tmp_path / "builds").read_text().split()) == 40


def test_children_forget_candidates_built_long_ago(monkeypatch):
    monkeypatch.setattr(measuring_child, "MAX_BUILT", 15)
    requests = [request(fake.GOOD, 100 + i) for i in range(60)]
    with measurer() as m:
        list(m.measure(requests))
        assert all(len(child.built) <= 15 for child in m._children)
        assert len(list(m.compare(requests, 1))) == 60


def test_an_abandoned_measurement_does_not_confuse_the_next():
    requests = [request(fake.GOOD, 100 + i) for i in range(100)]
    with ahead() as m:
        for _ in range(3):
            next(iter(m.measure(requests)))  # a group of children is still building
        results = list(m.measure(requests))
    assert {m.request: m.seconds[0] for m in results} == pytest.approx(
        {r: r.scheme.reg_n * 1e-6 for r in requests}
    )


def ahead(timeout: float = 2.0) -> LocalMeasurer:
    """A measurer on a machine with two cores more than the kernels use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_measurer, "usable_cores", lambda: 4)
        return LocalMeasurer(TARGET, 2, timeout=timeout, builder=FAKE)


def test_building_runs_ahead_where_cores_are_free(tmp_path, monkeypatch):
    monkeypatch.setenv(fake.PIDS, str(tmp_path))
    requests = [request(fake.GOOD, 100 + i) for i in range(100)]
    bad = [request(b) for b in (fake.BUILD_CRASHES, fake.CRASHES, fake.HANGS)]
    mixed = [*requests[:30], *bad, *requests[30:]]
    with ahead(timeout=0.5) as m:
        assert len({child for child in m._children}) == 4
        assert m.batch == 80
        results = list(m.measure(mixed))
    assert {r.request for r in results} == set(mixed)
    assert len(results) == len(mixed)
    assert {r.request for r in results if r.error} == set(bad)


def test_building_and_timing_take_turns_where_kernels_use_all_cores(monkeypatch):
    monkeypatch.setattr(local_measurer, "usable_cores", lambda: 2)
    monkeypatch.setattr(local_measurer, "usable_cpus", lambda: 3)
    with LocalMeasurer(TARGET, 2, builder=FAKE) as m:
        assert len(m._groups) == 1
        assert len(m._children) == 3


def test_children_are_set_up_as_the_kernels_need_it():
    (result,) = measure(request(fake.GOOD), builder="fake_builder:EnvironmentBuilder")
    threads, oom_score = result.seconds
    assert threads == 2.0
    # The first to go when memory runs out.
    assert oom_score == 1000


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
    parent = fake.start(script, tmp_path)
    wait_until(lambda: len(alive(tmp_path)) == 2)
    os.kill(parent.pid, deadly)
    parent.wait(timeout=20)
    wait_until(lambda: not alive(tmp_path))


def test_closing_ends_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(fake.PIDS, str(tmp_path))
    with measurer() as m:
        results = m.measure([request(fake.GOOD), request(fake.GOOD, 7)])
        next(results)
        assert len(alive(tmp_path)) == 2
    assert alive(tmp_path) == []
