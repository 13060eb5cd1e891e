"""The memory that a candidate is timed on, in the arguments of `rpc_harness.c`."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm
from conv_workloads import conv_workload

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Workload
from neocpu.search.measuring import rpc_session
from neocpu.search.measuring.buffers import size_of
from neocpu.search.measuring.candidate_builds import OWN_CACHES
from neocpu.search.measuring.measure import Request
from neocpu.search.measuring.measuring_process import Candidate
from neocpu.search.measuring.rpc_session import Session

TARGET = dataclasses.replace(parse_target("llvm -mcpu=znver3"), l2=1 << 16)
THREADS = 2
TASKS = (16, 5)
POOL = 1 << 20


class Calls(list):
    """The arguments of a library's `run`: tensors, strides, parallel loops, calls and turn."""

    def __call__(self, *arguments) -> float:
        *rest, first, second, loops, calls, turn = arguments
        assert ((first, second), loops) == (TASKS, 2)
        half = len(rest) // 2
        self.append((rest[:half], rest[half:], calls, turn))
        return calls * 1e-3


def loaded(session: Session, workload: Workload):
    """Load the first scheme of ``workload``; return its request, its runner and its calls."""
    request = Request(workload, registry.schemes(workload, TARGET)[0])
    calls = Calls()
    library = {"fill": lambda tensor: None, "run": calls}
    session._library = lambda candidate: library
    return request, session._load(Candidate(request, Path("x.so"), TASKS)), calls


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session on a server that is this process."""
    monkeypatch.setattr(rpc_session, "POOL_BYTES", POOL)
    made = Session(TARGET, THREADS)
    made._session = SimpleNamespace(cpu=tvm.cpu)
    return made


def bytes_of(tensor) -> int:
    return size_of((tensor.shape, str(tensor.dtype)))


@pytest.mark.parametrize(
    "workload",
    [
        TransformWorkload(batch=1, channels=24, height=7, width=9, in_block=1, out_block=8),
        JoinWorkload(operator="concat", batch=1, channels=(8, 24), height=5, width=5, block=8),
        JoinWorkload(
            operator="elementwise", batch=1, channels=(64, 64), height=56, width=56, block=8
        ),  # more than the caches at once
    ],
)
def test_feature_maps_take_turns_beyond_the_cores_own_caches(session: Session, workload: Workload):
    request, run, calls = loaded(session, workload)
    assert run(3) == 1e-3
    run(2)
    (tensors, strides, count, first), (_, _, _, then) = calls
    assert (count, first) == (3, 0)
    sizes = [size_of(shape) for shape in registry.argument_shapes(workload, request.scheme)]
    assert [stride - stride % 64 for stride in strides] == strides
    assert all(0 <= stride - size < 64 for stride, size in zip(strides, sizes, strict=True))
    (places,) = {bytes_of(t) // stride for t, stride in zip(tensors, strides, strict=True)}
    assert then == 3 % places
    assert places * sum(strides) >= OWN_CACHES * TARGET.l2 * THREADS
    assert (places - 1) * sum(strides) < OWN_CACHES * TARGET.l2 * THREADS


def test_weights_come_from_a_pool_and_go_on_where_the_last_candidate_left_off(session: Session):
    workload = conv_workload(1, 16, 8, 8, 16, (3, 3))
    _, run, calls = loaded(session, workload)
    run(3)
    _, again, more = loaded(session, workload)
    again(2)
    (tensors, strides, _, first), (_, _, _, then) = *calls, *more
    assert (first, then) == (0, 3)
    assert [index for index, stride in enumerate(strides) if stride] == [1]
    assert bytes_of(tensors[1]) == POOL
    assert strides[1] >= 16 * 16 * 9 * 4


def test_weights_larger_than_the_pool_get_a_larger_one(session: Session):
    workload = conv_workload(1, 256, 8, 8, 256, (3, 3))
    _, run, calls = loaded(session, workload)
    run(1)
    run(1)
    for tensors, strides, _, _ in calls:
        # At two places, which take turns.
        assert bytes_of(tensors[1]) == 2 * strides[1]
        assert strides[1] >= math.prod(workload.kernel_shape) * 4 > POOL
    assert [turn for _, _, _, turn in calls] == [0, 1]
