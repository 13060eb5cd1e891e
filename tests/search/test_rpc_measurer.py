"""No result is lost if servers die, hang, crash or cannot run the code."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator

import fake_fleet as fake
import needs
import pytest
from conv_workloads import conv_workload
from fake_fleet import TARGET, FakeTracker, request
from fleet_servers import fleet
from waiting import wait_until

from neocpu.foundation.errors import NeoCPUError, TargetError
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.scheme import NchwScheme
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.schedules.vocabulary.workload import Workload
from neocpu.search.measuring import rpc_children, rpc_measurer
from neocpu.search.measuring.child import Child
from neocpu.search.measuring.local_measurer import REPEATS
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.measuring.rpc_measurer import RpcMeasurer
from neocpu.search.measuring.rpc_tracker import Address

#: Seconds after which a server counts as lost: enough for a busy machine, or few enough that a test
#: does not wait long for a lost server.
LONG, SHORT = 60.0, 1.0


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch):
    """Make measurers on fake servers, without TVM."""
    monkeypatch.setattr(rpc_measurer, "LIBRARIES", "fake_fleet:FakeLibraries")
    monkeypatch.setattr(rpc_measurer, "SESSION", "fake_fleet:FakeSession")
    monkeypatch.setattr(rpc_children, "NOTICE", 0.1)
    monkeypatch.setattr(rpc_measurer, "find_linker", lambda machine: ("true",))
    monkeypatch.setattr(rpc_measurer, "compile_harness", lambda *a: (a[-1] / "harness.o",))
    monkeypatch.setattr(rpc_measurer.registry, "schemes", lambda *a: (NchwScheme(fake.GOOD, 1),))

    def make(
        tracker: FakeTracker, parallel: int | None = None, patience: float = LONG
    ) -> RpcMeasurer:
        timeout = fake.TIMEOUT
        return RpcMeasurer(TARGET, 2, tracker.address, "zen", parallel, timeout, patience)

    return make


@pytest.fixture
def two_servers() -> Iterator[FakeTracker]:
    tracker = FakeTracker(["x86_64"] * 2)
    yield tracker
    tracker.close()


def by_request(measurements) -> dict[Request, Measurement]:
    answers = list(measurements)
    assert len({m.request for m in answers}) == len(answers)
    return {m.request: m for m in answers}


def test_every_request_is_answered_once_by_all_servers(measurer, two_servers):
    requests = [request(fake.GOOD, 100 + i) for i in range(20)]
    with measurer(two_servers) as m:
        # Otherwise the first server may measure everything before the other starts.
        wait_until(lambda: all(server.sessions for server in two_servers.servers))
        results = by_request(m.measure([*requests, requests[0]]))
        assert m.batch == 2 * rpc_measurer.SHARE
    assert results.keys() == set(requests)
    for r, result in results.items():
        assert result.seconds == pytest.approx((r.scheme.reg_n * 1e-6,) * REPEATS)
    assert all(server.sessions for server in two_servers.servers)


def test_only_as_many_servers_as_asked_for(measurer, two_servers):
    with measurer(two_servers, parallel=1) as m:
        by_request(m.measure([request(fake.GOOD, 100 + i) for i in range(6)]))
    assert sorted(server.sessions for server in two_servers.servers) == [0, 1]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (fake.UNBUILDABLE, "ValueError: no such loop"),
        (fake.RAISES, "ValueError: and the cause"),
        (fake.CRASHES, "crashed: the server's process ended"),
        (fake.HANGS, "timeout: took more than 0.5 s"),
    ],
)
def test_a_bad_candidate_costs_only_itself(measurer, two_servers, behaviour: int, reason: str):
    good = [request(fake.GOOD, 100 + i) for i in range(6)]
    bad = request(behaviour)
    with measurer(two_servers) as m:
        results = by_request(m.measure([*good[:3], bad, *good[3:]]))
        assert results.pop(bad) == Measurement(bad, (), reason)
        assert results.keys() == set(good)
        assert not any(result.error for result in results.values())
        # The servers are still of use.
        assert by_request(m.measure(good)).keys() == set(good)


def test_a_server_that_survives_its_candidate_is_not_called_lost(measurer, two_servers, caplog):
    """It counts as alive though the other free server takes its place."""
    bad = request(fake.CRASHES)
    with measurer(two_servers, parallel=1) as m:
        assert by_request(m.measure([bad]))[bad].error == "crashed: the server's process ended"
        assert not by_request(m.measure([request(fake.GOOD)]))[request(fake.GOOD)].error
    assert not caplog.records


@pytest.mark.parametrize("hangs", [False, True])
def test_a_lost_servers_trial_goes_to_another(measurer, two_servers, caplog, hangs: bool):
    deadly = request(fake.KILLS_SERVER, 100 + hangs)
    requests = [deadly, *(request(fake.GOOD, 100 + i) for i in range(6))]
    with measurer(two_servers, patience=SHORT if hangs else LONG) as m:
        results = by_request(m.measure(requests))
    assert results.keys() == set(requests)
    assert not any(result.error for result in results.values())
    (warning,) = (record.message for record in caplog.records)
    assert "is lost" in warning
    assert "another" in warning


def test_no_server_left_is_one_clear_error(measurer):
    tracker = FakeTracker(["x86_64"])
    with measurer(tracker, patience=SHORT) as m:
        assert by_request(m.measure([request(fake.GOOD)]))
        with pytest.raises(NeoCPUError, match=r"no server of key='zen' is left.*kept") as caught:
            list(m.measure([request(fake.KILLS_SERVER), request(fake.GOOD)]))
        assert "\n" not in str(caught.value)
        with pytest.raises(NeoCPUError, match="no server of key='zen' is left"):
            list(m.measure([request(fake.GOOD)]))


def test_a_server_that_cannot_run_the_code_is_left_out(measurer, caplog):
    requests = [request(fake.GOOD, 100 + i) for i in range(6)]
    with measurer(FakeTracker(["x86_64"] * 2, broken=1)) as m:
        wait_until(lambda: "cannot run code" in caplog.text)
        results = by_request(m.measure(requests))
    assert not any(result.error for result in results.values())
    assert "cannot run code for x86-64" in caplog.text
    assert "does its CPU have sse" in caplog.text


@pytest.mark.parametrize(
    ("machine", "broken", "message"),
    [
        ("x86_64", 1, "no free one that can run code for x86-64"),
        ("aarch64", 0, r"127.0.0.1:\d+ is aarch64, the target x86_64"),
    ],
)
def test_no_server_can_run_the_code(measurer, machine: str, broken: int, message: str):
    with (
        measurer(FakeTracker([machine], broken=broken), patience=SHORT) as m,
        pytest.raises(TargetError, match=message),
    ):
        list(m.measure([request(fake.GOOD)]))


def test_a_server_that_cannot_be_reached_is_named(measurer):
    tracker = FakeTracker(["x86_64"])
    tracker.servers[0].address = Address("127.0.0.1", 1)
    with (
        measurer(tracker, patience=SHORT) as m,
        pytest.raises(NeoCPUError, match=r"to server 127\.0\.0\.1:1: ConnectionRefused"),
    ):
        list(m.measure([request(fake.GOOD)]))


def test_no_thread_dies_in_silence(measurer, two_servers, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Child, "send", broken)
    with measurer(two_servers) as m, pytest.raises(RuntimeError, match="a bug"):
        list(m.measure([request(fake.GOOD)]))


def test_a_linker_that_fails_is_nobodys_measurement(measurer, two_servers):
    with measurer(two_servers) as m, pytest.raises(NeoCPUError, match="linker has had enough"):
        list(m.measure([request(fake.UNLINKABLE)]))


def test_candidates_are_compared_in_turns_or_separately_if_that_fails(measurer, two_servers):
    other = dataclasses.replace(fake.WORKLOAD, height=9)
    requests = [
        request(fake.GOOD, 100),
        request(fake.GOOD, 101),
        request(fake.GOOD, 102, other),
        request(fake.ALONE, 103, other),
    ]
    with measurer(two_servers) as m:
        results = by_request(m.compare(requests, 4))
    for r in requests:
        assert results[r].seconds == pytest.approx((r.scheme.reg_n * 1e-6,) * 4)


def test_checking(measurer, two_servers):
    right, wrong, unbuildable = map(request, (fake.GOOD, fake.WRONG, fake.UNBUILDABLE))
    with measurer(two_servers) as m:
        results = by_request(m.check([right, wrong, unbuildable]))
    errors = [results[r].error for r in (right, wrong, unbuildable)]
    assert errors == [None, "wrong answer", "ValueError: no such loop"]
    assert not any(result.seconds for result in results.values())


def test_a_run_that_is_given_up_leaves_nothing_to_the_next(measurer, two_servers):
    first, second = ([request(fake.GOOD, i + j) for j in range(8)] for i in (100, 200))
    with measurer(two_servers) as m:
        results = m.measure(first)
        next(results)
        results.close()
        assert by_request(m.measure(second)).keys() == set(second)


@pytest.mark.slow  # four real servers, one of which never answers
@needs.everything()
def test_of_four_real_servers_one_is_killed_and_one_hangs(caplog):
    target = host_target()
    workload = conv_workload(1, 32, 8, 8, 32, (3, 3), padding=(1, 1, 1, 1))
    requests = [Request(workload, s) for s in registry.schemes(workload, target)[:16]]
    moves: list[Workload] = [
        TransformWorkload(batch=1, channels=64, height=56, width=56, in_block=1, out_block=8),
        JoinWorkload(operator="concat", batch=1, channels=(16,) * 70, height=14, width=14, block=8),
    ]
    memory = [Request(w, s) for w in moves for s in registry.schemes(w, target)]
    with (
        fleet("zen", 4) as servers,
        RpcMeasurer(target, 2, servers.tracker, "zen", timeout=2.0, patience=3.0) as m,
    ):
        results = m.measure(requests)
        first = [next(results) for _ in range(3)]
        os.killpg(servers.servers[0], signal.SIGKILL)
        os.killpg(servers.servers[1], signal.SIGSTOP)
        answers = by_request([*first, *results])
        assert answers.keys() == set(requests)
        for answer in answers.values():
            assert answer.error is None
            assert len(answer.seconds) in (1, REPEATS)
            assert all(workload.flops / 1e15 < s < workload.flops / 1e6 for s in answer.seconds)
        assert {m.error for m in m.check(requests[:2])} == {None}
        for answer in by_request(m.measure(memory)).values():
            assert answer.error is None
            assert 1e-7 < min(answer.seconds) < 1e-1
        compared = by_request(m.compare([*requests[:2], *memory], 3))
        assert {len(answer.seconds) for answer in compared.values()} == {3}
    assert "is lost" in caplog.text
