"""The time of calls whose loops are launched jointly."""

import heapq
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.foundation.machine.machines import MACHINES
from neocpu.schedules.estimates.parallel_run import (
    CallTime,
    LoopTime,
    RunTime,
    predict_run,
    task_count,
)
from neocpu.schedules.estimates.shared_launch import Piece, busiest_seconds, launch_seconds

MACHINE = replace(MACHINES["znver4"], fork=0.0, fork_core=1e-6)
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
