"""The real thing: a small convolution built with TVM, run, and tuned end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from neocpu.schedules import registry
from neocpu.schedules.target import host_target
from neocpu.schedules.workload import Conv2dWorkload, EpilogueOp
from neocpu.search import kernels as kernels_module
from neocpu.search.kernels import ALIGNMENT, POOL_BYTES, WEIGHTS, Kernels
from neocpu.search.local_measurer import LocalMeasurer
from neocpu.search.measure import Request
from neocpu.search.strategies.grid import GridStrategy
from neocpu.search.tuner import Budget, SearchSpace, TuningTask, tune
from neocpu.tuning_db.store import Store

WORKLOAD = Conv2dWorkload(
    1, 32, 8, 8, 32, (3, 3), padding=(1, 1, 1, 1), epilogue=(EpilogueOp("bias_add"),)
)
TARGET = host_target()


def requests(count: int) -> list[Request]:
    return [Request(WORKLOAD, s) for s in registry.schemes(WORKLOAD, TARGET)[:count]]


def test_built_candidates_are_timed():
    kernels = Kernels(TARGET, 1)
    (request,) = requests(1)
    (function,) = kernels.build([request])
    seconds = kernels.time(function, request, 3)
    assert len(seconds) == 3
    # Faster than any CPU, slower than an interpreter.
    assert all(WORKLOAD.flops / 1e15 < s < WORKLOAD.flops / 1e6 for s in seconds)


def test_weights_move_through_the_pool_and_nothing_else_does():
    calls = []
    kernels = Kernels(TARGET, 1)
    (request,) = requests(1)
    kernels.time(lambda *arguments: calls.append(arguments), request, 1)
    assert len(calls) > 1
    for index in range(len(calls[0])):
        addresses = {call[index].data_ptr() for call in calls[: POOL_BYTES // (64 << 10)]}
        assert all(address % ALIGNMENT == 0 for address in addresses)
        assert (len(addresses) == 1) == (index != WEIGHTS)


def test_what_cannot_be_lowered_or_compiled_is_told_apart(monkeypatch: pytest.MonkeyPatch):
    good, unlowered, uncompiled, fine = requests(4)
    real_lower, real_compile = registry.lower, kernels_module.tvm.compile

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
    monkeypatch.setattr(kernels_module.tvm, "compile", compile_)
    built = Kernels(TARGET, 1).build([good, unlowered, uncompiled, fine])
    assert built[1] == "ValueError: no such loop"
    assert built[2] == "RuntimeError: LLVM has had enough"
    assert callable(built[0])
    assert callable(built[3])


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
