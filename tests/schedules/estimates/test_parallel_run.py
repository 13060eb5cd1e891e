"""The predicted time of a run, and of joint launches, on several threads."""

import heapq
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.foundation.machine.machines import MACHINES
from neocpu.schedules.estimates.memory_traffic import EXPOSED
from neocpu.schedules.estimates.parallel_run import (
    LIMITS,
    CallTime,
    LoopTime,
    Piece,
    RunTime,
    busiest_part,
    busiest_seconds,
    launch_seconds,
    predict_run,
    task_count,
)

MACHINE = replace(MACHINES["znver4"], fork=0.0, fork_core=1e-6)
THREADS = (2, 3, 16, 64)


def _run(*calls, between=0.0):
    return RunTime(calls, between)


def _call(iterations, seconds=1e-3, **others):
    return CallTime(
        name="c", kernel="k", seconds=seconds, loops=(LoopTime(iterations, seconds),), **others
    )


def _only(run, threads, machine=MACHINE):
    """Return the losses of the only call, without forks."""
    (call, _) = predict_run(run, machine, threads).calls
    return {limit: lost for limit, lost in call.lost.items() if lost and limit != "fork-join"}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("iterations", [1, 2, 7, 16, 17, 49, 196, 1000, 70_000, 1_000_003])
def test_the_busiest_thread_is_that_of_tasks_dealt_one_by_one(iterations, threads):
    part = busiest_part(iterations, threads)
    # Whichever size the pool chose, no thread has less than its share, and none a task more than
    # tasks an eighth of a share long would give it.
    assert part >= 1 / threads - 1e-12
    most = max(1, iterations // (threads * 8), math.ceil(iterations / 0xFFFF))
    loads = [0] * threads
    for start in range(0, iterations, most):
        loads[loads.index(min(loads))] += min(most, iterations - start)
        if iterations > 2000:
            break
    if iterations <= 2000:
        assert part * iterations <= max(loads) + most
    else:
        assert part * iterations <= iterations / threads + most


def test_the_busiest_thread_of_few_and_of_unknown_tasks():
    assert busiest_part(9, 1) == 1.0
    assert busiest_part(1, 16) == 1.0
    assert busiest_part(7, 16) == pytest.approx(1 / 7)
    assert busiest_part(17, 16) == pytest.approx(2 / 17)
    assert busiest_part(0, 16) == pytest.approx(1 / 16)


def test_one_thread_takes_the_measured_time():
    run = _run(_call(7, weights=1000), _call(0, 2e-3), between=1e-5)
    predicted = predict_run(run, MACHINE, 1)
    assert predicted.seconds == pytest.approx(run.seconds) == pytest.approx(3.01e-3)
    assert set(predicted.lost.values()) == {0.0}


@pytest.mark.parametrize("threads", THREADS)
def test_seconds_are_ideal_shares_plus_losses(threads):
    half = CallTime(
        name="h",
        kernel="k",
        seconds=4e-3,
        loops=(LoopTime(5, 1e-3, 2), LoopTime(640, 2e-3)),
        weights=10**8,
        others=10**7,
        times=3,
    )
    run = _run(_call(16), half, between=1e-5)
    predicted = predict_run(run, MACHINE, threads)
    assert predicted.seconds == pytest.approx(run.seconds / threads + sum(predicted.lost.values()))
    assert set(predicted.lost) == set(LIMITS)
    assert min(predicted.lost.values()) >= 0
    # Only threads that get a task are waited for: in a loop that is entered twice, five at most.
    forks = [MACHINE.fork_seconds(min(count, threads)) for count in (5, 5, threads, 16)]
    assert predicted.lost["fork-join"] == pytest.approx(sum(forks))


def test_each_limit_of_a_call_is_named():
    assert _only(_run(_call(16)), 16) == {}
    assert _only(_run(_call(8)), 16) == {"few tasks": pytest.approx(1e-3 / 16)}
    assert _only(_run(_call(17)), 16) == {"uneven tasks": pytest.approx(1e-3 * (2 / 17 - 1 / 16))}
    assert _only(_run(CallTime(name="c", kernel="k", seconds=1e-3)), 4) == {
        "one thread": pytest.approx(0.75e-3)
    }
    (_, between) = predict_run(_run(_call(16), between=1e-4), MACHINE, 2).calls
    assert (between.call.name, between.lost["one thread"]) == ("runtime", pytest.approx(0.5e-4))


def test_a_loop_of_one_task_is_not_entered():
    assert predict_run(_run(_call(1)), MACHINE, 2).lost["fork-join"] == 0.0
    assert predict_run(_run(_call(0)), MACHINE, 2).lost["fork-join"] == pytest.approx(2e-6)


def test_bytes_come_no_faster_than_the_machine_has_them():
    # More weights than L3 holds come from memory, by the links of the caches in use.
    large = _run(_call(640, 1e-2, weights=200 << 20))
    rate = 2 * MACHINE.memory_l3
    assert _only(large, 16) == {"bandwidth": pytest.approx((200 << 20) / rate - 1e-2 / 16)}
    # Those that it keeps come from there, and so do feature maps that no L2 holds.
    assert _only(_run(_call(640, 1e-3, weights=8 << 20)), 2) == {}
    near = 2 * MACHINE.l3_core
    kept = _only(_run(_call(640, 1e-4, weights=8 << 20)), 2)
    assert kept["bandwidth"] == pytest.approx((8 << 20) / near - 0.5e-4)
    maps = _only(_run(_call(640, 2e-4, others=20 << 20)), 2)
    assert maps["bandwidth"] == pytest.approx((20 << 20) / near - 1e-4)
    far = _only(_run(_call(640, 2e-3, others=40 << 20)), 2)
    assert far["bandwidth"] == pytest.approx((40 << 20) / MACHINE.memory_rate(2) - 1e-3)


def test_hidden_traffic_shows_in_part_once_threads_share_the_computing():
    machine = replace(MACHINE, memory_core=50e9, memory_l3=50e9)
    way = (200 << 20) / 50e9
    lost = _only(_run(_call(640, 2e-2, weights=200 << 20)), 2, machine)
    # The share EXPOSED of the traffic shows, on one thread as on two.
    assert lost == {"bandwidth": pytest.approx(EXPOSED * way / 2)}


def test_feature_maps_come_from_the_cores_that_had_them_last():
    maps = _run(_call(640, 1e-6, others=2 << 20))
    fetched = (2 << 20) / 2 / (2 * MACHINE.peer_core)  # half of them, each core half of that
    assert _only(maps, 2) == {"other cores": pytest.approx(fetched)}
    assert _only(maps, 1) == {}
    # Long computing hides most of the traffic, and larger maps are in no L2.
    hidden = _only(_run(_call(640, 1e-3, others=2 << 20)), 2)
    assert hidden == {"other cores": pytest.approx(EXPOSED * fetched)}
    assert "other cores" not in _only(_run(_call(640, 1e-3, others=3 << 20)), 2)
    # Half of sixteen cores have another L3.
    near = (1 / 2 - 1 / 16) / (16 * MACHINE.peer_core)
    far = 1 / 2 / MACHINE.memory_rate(16)
    spread = _only(_run(_call(640, 1e-3, others=2 << 20)), 16)
    assert spread == {"other cores": pytest.approx(EXPOSED * (2 << 20) * (near + far))}


def test_bytes_take_no_longer_than_all_did_on_one_thread():
    run = _run(_call(640, 1e-6, weights=200 << 20))
    assert predict_run(run, MACHINE, 1).seconds == pytest.approx(1e-6)
    assert _only(run, 2) == {"bandwidth": pytest.approx(0.5e-6)}


def test_a_slower_core_takes_longer_for_everything():
    run = _run(_call(7, weights=1000), between=1e-5).slower(3)
    assert run.seconds == pytest.approx(3.03e-3)
    assert run.calls[0].loops[0].seconds == pytest.approx(3e-3)
    assert run.calls[0].weights == 1000


PIECES = st.lists(
    st.builds(Piece, st.integers(1, 40), st.floats(1e-6, 1e-3)), min_size=1, max_size=6
)


@given(PIECES, st.sampled_from([2, 3, 16, 64]))
def test_each_thread_takes_the_next_task(pieces, threads):
    free = [0.0] * threads
    for piece in pieces:
        for _ in range(piece.tasks):
            heapq.heappush(free, heapq.heappop(free) + piece.seconds / piece.tasks)
    assert busiest_seconds(pieces, threads) == pytest.approx(max(free))


def test_joint_calls_take_as_long_as_the_longest():
    pieces = [Piece(4, 4e-6), Piece(6, 12e-6), Piece(1, 1e-6)]
    assert launch_seconds(pieces, MACHINE, 16) == pytest.approx(2e-6 + 10e-6)
    assert launch_seconds(pieces[1:2], MACHINE, 16) == pytest.approx(2e-6 + 6e-6)
    # Serial work before a loop adds up over calls; and all bytes share one bandwidth.
    slow = [replace(piece, before=1e-6, moving=3e-6) for piece in pieces]
    assert launch_seconds(slow, MACHINE, 16) == pytest.approx(3e-6 + 9e-6 + 10e-6)


@pytest.mark.parametrize(
    ("iterations", "threads", "count"), [(7, 16, 7), (0, 16, 16), (50, 1, 1), (160, 2, 16)]
)
def test_tasks_of_a_loop(iterations, threads, count):
    assert task_count(iterations, threads) == count


def test_a_run_with_a_launch():
    def call(iterations, seconds):
        return CallTime(
            name="c", kernel="k", seconds=seconds, loops=(LoopTime(iterations, seconds),)
        )

    run = RunTime((call(64, 1e-3), call(4, 4e-4), call(8, 8e-4), call(64, 1e-3)))
    together = replace(run, launches=((1, 2),))
    for threads in (2, 16):
        apart = predict_run(run, MACHINE, threads)
        found = predict_run(together, MACHINE, threads)
        assert found.seconds == pytest.approx(run.seconds / threads + sum(found.lost.values()))
        assert [each.seconds for each in found.calls[::3]] == pytest.approx(
            [each.seconds for each in apart.calls[::3]]
        )
    # On 16 threads, twelve equal tasks run at once; the longer loop has two thirds of them.
    assert [each.seconds for each in found.calls[1:3]] == pytest.approx([110e-6 / 3, 220e-6 / 3])
    assert found.calls[1].lost["few tasks"] == pytest.approx(100e-6 / 3 - 25e-6)
    assert predict_run(together, MACHINE, 1).seconds == pytest.approx(run.seconds)
    assert together.slower(2.0).launches == together.launches
