"""Kernel quality: which schemes are timed, and that the arithmetic of the report is right."""

import json

import pytest
from conv_workloads import conv_workload

from neocpu.bench.race.convolution_kernels import (
    KernelCase,
    KernelReport,
    KernelResult,
    best_cases,
    measure_kernels,
)
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey
from neocpu.tuning_db.store import Store

HOST = host_target()
SMALL = conv_workload(1, 16, 8, 8, 32, (3, 3), padding=(1, 1, 1, 1))
OTHER = conv_workload(1, 32, 8, 8, 16, (1, 1), epilogue=(EpilogueOp("bias_add"),))


def _record(workload, scheme, seconds, threads=1):
    version = registry.template_version(scheme.template)
    return Record(
        workload=workload,
        target=TargetKey.of(HOST, threads),
        scheme=scheme,
        result=Result((seconds,)),
        env=Environment.current(version),
        time="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def store(tmp_path):
    return Store.open([], tmp_path / "records.jsonl", registry.template_version)


def test_the_best_measured_scheme_is_taken(store):
    slow, fast, *_ = registry.schemes(SMALL, HOST)[::-1]
    store.append([_record(SMALL, slow, 2e-3), _record(SMALL, fast, 1e-3)])
    first, second = best_cases([SMALL, OTHER, SMALL], store, HOST, threads=1)
    assert (first.workload, first.count, first.source) == (SMALL, 2, "measured")
    assert first.scheme == fast
    assert (second.workload, second.count, second.source) == (OTHER, 1, "estimated")


def test_measurements_with_other_threads_do_not_count(store):
    store.append([_record(SMALL, registry.schemes(SMALL, HOST)[-1], 1e-3, threads=2)])
    (case,) = best_cases([SMALL], store, HOST, threads=1)
    assert case.source == "estimated"


def test_kernels_are_timed_against_the_peak(store):
    phases = []
    cases = best_cases([SMALL, OTHER], store, HOST, threads=1)
    report = measure_kernels(cases, HOST, 1, rounds=2, on_progress=phases.append)
    assert report.peak_gflops > 0
    assert [result.case for result in report.results] == list(cases)
    assert all(0 < result.share for result in report.results)
    assert {progress.phase for progress in phases} == {"build kernels", "time kernels"}
    json.dumps(report.to_json(), allow_nan=False)


def test_shares_are_of_the_peak():
    scheme = registry.schemes(SMALL, HOST)[0]
    case = KernelCase(SMALL, 1, scheme, "estimated")
    results = tuple(KernelResult(case, 1e-3, share) for share in (0.5, 0.9))
    report = KernelReport(2, 100.0, results)
    assert report.mean_share == pytest.approx(0.7)
    assert report.min_share == 0.5
    assert results[0].gflops == pytest.approx(SMALL.flops / 1e6)
