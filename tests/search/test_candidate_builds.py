"""The real thing: a small convolution built with TVM, run, and tuned end to end."""

from __future__ import annotations

import ctypes
import math
from itertools import pairwise
from pathlib import Path

import pytest
from conv_workloads import conv_workload
from python_kernels import kernel_of, then

from neocpu.schedules import registry
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.search.measuring import kernel_calls, measuring_process
from neocpu.search.measuring.buffers import ALIGNMENT, POOL_BYTES, Buffers, Turns, size_of
from neocpu.search.measuring.candidate_builds import HOPELESS, OWN_CACHES, WEIGHTS, Kernels
from neocpu.search.measuring.kernel_calls import Kernel
from neocpu.search.measuring.local_measurer import LocalMeasurer
from neocpu.search.measuring.measure import Request
from neocpu.search.strategies.simple import GridStrategy
from neocpu.search.tuner import Budget, SearchSpace, TuningTask, tune
from neocpu.tuning_db.store import Store

WORKLOAD = conv_workload(
    1, 32, 8, 8, 32, (3, 3), padding=(1, 1, 1, 1), epilogue=(EpilogueOp("bias_add"),)
)
TARGET = host_target()


def noting(calls: list[tuple[int, ...]]) -> Kernel:
    """A kernel that only notes the addresses of its arguments."""
    return kernel_of(lambda addresses: calls.append(addresses) or 0)


def requests(count: int) -> list[Request]:
    return [Request(WORKLOAD, s) for s in registry.schemes(WORKLOAD, TARGET)[:count]]


def test_built_candidates_are_timed():
    kernels = Kernels(TARGET, 1)
    (request,) = requests(1)
    (function,) = kernels.build([request])
    seconds = kernels.time(function, request, 3, math.inf)
    assert len(seconds) == 3
    # Faster than any CPU, slower than an interpreter.
    assert all(WORKLOAD.flops / 1e15 < s < WORKLOAD.flops / 1e6 for s in seconds)


def test_weights_move_through_the_pool_and_nothing_else_does():
    calls = []
    kernels = Kernels(TARGET, 1)
    (request,) = requests(1)
    kernels.time(noting(calls), request, 1, math.inf)
    assert len(calls) > 1
    for index in range(len(calls[0])):
        addresses = {call[index] for call in calls[: POOL_BYTES // (64 << 10)]}
        assert all(address % ALIGNMENT == 0 for address in addresses)
        assert (len(addresses) == 1) == (index != WEIGHTS)


def test_weights_of_more_than_half_the_pool_are_at_two_places():
    buffers = Buffers()
    weights = buffers.cold(((POOL_BYTES // 2 + 4,), "int8"))
    assert weights.stride >= POOL_BYTES // 2
    assert weights.places == 2


def test_a_candidate_goes_on_in_the_pool_where_the_last_one_ended():
    turns = Turns()
    assert [turns.take(2, 64, 5) for _ in range(4)] == [0, 2, 4, 1]
    # The next two calls would take bytes 192 to 320: larger weights begin after the last ones.
    assert turns.take(1, 128, 3) == 2
    assert turns.take(1, 128, 3) == 0


def test_failures_of_lowering_and_of_compiling_are_distinguished(monkeypatch: pytest.MonkeyPatch):
    good, unlowered, uncompiled, fine = requests(4)
    real_lower, real_compile = registry.lower, kernel_calls.tvm.tirx.build

    def lower(workload, scheme, target, threads):
        if scheme == unlowered.scheme:
            raise ValueError("stack\nno such loop")
        function = real_lower(workload, scheme, target, threads)
        return function.with_attr("bad", scheme == uncompiled.scheme)

    def compile_(module, target, **options):
        if any(f.attrs["bad"] for f in module.functions.values()):
            raise RuntimeError("LLVM has had enough")
        return real_compile(module, target, **options)

    monkeypatch.setattr(registry, "lower", lower)
    monkeypatch.setattr(kernel_calls.tvm.tirx, "build", compile_)
    built = measuring_process._build(Kernels(TARGET, 1), (good, unlowered, uncompiled, fine))
    assert built[1].message == "ValueError: no such loop"
    assert built[2].message == "RuntimeError: LLVM has had enough"
    assert isinstance(built[0], Kernel)
    assert isinstance(built[3], Kernel)


def test_a_hopeless_candidate_is_timed_once():
    kernels = Kernels(TARGET, 1)
    (request,) = requests(1)
    (function,) = kernels.build([request])
    (best,) = kernels.time(function, request, 1, math.inf)
    assert len(kernels.time(function, request, 5, best / HOPELESS / 100)) == 1
    assert len(kernels.time(function, request, 5, best * 100)) == 5


def test_arguments_are_disjoint_and_reused_by_the_next_candidate():
    calls: list[tuple] = []
    kernels = Kernels(TARGET, 1)
    for request in requests(2):
        kernels.time(noting(calls), request, 1, math.inf)
    data, _, bias, output = ([c[i] for c in (calls[0], calls[-1])] for i in range(4))
    assert all(first == last for first, last in (data, bias, output))
    shapes = registry.argument_shapes(request.workload, request.scheme)
    spans = sorted(zip(calls[-1], map(size_of, shapes), strict=True))
    assert all(start + size <= later for (start, size), (later, _) in pairwise(spans))


def test_transforms_are_timed_at_places_that_the_cores_caches_do_not_hold():
    calls: list[tuple] = []
    kernels = Kernels(TARGET, 1)
    workload = TransformWorkload(batch=1, channels=16, height=8, width=8, in_block=1, out_block=8)
    (scheme,) = registry.schemes(workload, TARGET)
    # Each repeat begins after the last one's places; how many it takes depends on the host's speed.
    kernels.time(noting(calls), Request(workload, scheme), 8, math.inf)
    places = set(calls)
    assert all(address % ALIGNMENT == 0 for place in places for address in place)
    assert len(places) * 2 * 4 * 16 * 8 * 8 >= OWN_CACHES * TARGET.l2


def corrupt(kernel: Kernel) -> Kernel:
    """A kernel that adds one to the first number of another kernel's output."""

    def spoil(addresses):
        ctypes.c_float.from_address(addresses[-1]).value += 1

    return then(kernel, spoil)


EVERY_TEMPLATE = [
    # Channels that no block divides, stride, padding that differs, and both kinds of operands.
    conv_workload(
        2, 13, 9, 10, 21, (3, 3), padding=(1, 0, 2, 1),
        epilogue=(EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu")),
    ),
    conv_workload(1, 24, 9, 9, 24, (3, 3), stride=(2, 2), padding=(1, 1, 1, 1), groups=24),
    conv_workload(
        2, 21, 5, 6, 19, (1, 1), stride=(2, 1), epilogue=(EpilogueOp("add"), EpilogueOp("relu")),
        prologue=(EpilogueOp("scale"), EpilogueOp("relu"), EpilogueOp("gate")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("workload", EVERY_TEMPLATE, ids=str)
def test_every_template_gives_the_right_answer_and_a_corrupt_kernel_does_not(workload):
    kernels = Kernels(TARGET, 2)
    firsts = {
        s.template: Request(workload, s) for s in reversed(registry.schemes(workload, TARGET))
    }
    candidates = list(firsts.values())
    for function, request in zip(kernels.build(candidates), candidates, strict=True):
        assert kernels.check(function, request) is None

        assert kernels.check(corrupt(function), request).startswith("wrong answer: largest error")
        assert kernels.check(noting([]), request) == "wrong answer: not finite"


def test_tuning_end_to_end(tmp_path: Path):
    store = Store.open([], tmp_path / "records.jsonl", registry.template_version)
    with LocalMeasurer(TARGET, 1, timeout=60.0, children=2) as measurer:
        report = tune(
            [TuningTask(WORKLOAD)],
            target=TARGET,
            threads=1,
            store=store,
            measurer=measurer,
            strategy=GridStrategy(),
            space=SearchSpace(
                schemes=lambda workload: registry.schemes(workload, TARGET),
                estimate=lambda workload, s: registry.estimate(workload, s, TARGET, 1),
                template_version=registry.template_version,
            ),
            budget=Budget(trials=4),
        )
    assert (report.measured, report.failed) == (4, 0)
    best = Store.open([], store.writable, registry.template_version).best(WORKLOAD, TARGET, 1)
    assert best == report.tasks[0].best
    assert best.scheme in registry.schemes(WORKLOAD, TARGET)
    assert 0 < best.result.best <= best.result.median < 1
