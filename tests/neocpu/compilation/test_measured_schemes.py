"""The schemes of a workload come from its own records, or from a relative's, scaled."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import needs
import numpy as np
import onnx
import pytest
from conv_workloads import conv_workload

import neocpu
from neocpu.compilation.network_tuning import measured_schemes, open_store
from neocpu.foundation.errors import DatabaseError, UsageError
from neocpu.frontend.models import build
from neocpu.planning.costs import CostModel
from neocpu.schedules import registry
from neocpu.schedules.estimates.memory_traffic import with_cores
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.scheme import DirectScheme, Scheme, WinogradScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.tuning_db.nearest import cpu_target
from neocpu.tuning_db.record import Environment, Record, Result, TargetKey, Workload
from neocpu.tuning_db.store import Store

HERE = parse_target("llvm -mcpu=znver4")
WORKLOAD = conv_workload(1, 64, 28, 28, 64, (3, 3), padding=(1, 1, 1, 1))
SCHEMES = registry.schemes(WORKLOAD, HERE)
# The order is the reverse of the estimates'.
SECONDS = {scheme: 1e-3 * (i + 1) for i, scheme in enumerate(reversed(SCHEMES[:5]))}


def record(
    target: TargetKey, scheme: Scheme, seconds: float | None, workload: Workload = WORKLOAD
) -> Record:
    result = Result((), "timeout") if seconds is None else Result((2 * seconds, seconds))
    env = Environment("0", "0", "0", registry.template_version(scheme.template))
    return Record(
        workload=workload,
        target=target,
        scheme=scheme,
        result=result,
        env=env,
        time="2026-11-21T00:00:00+00:00",
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store that can be written to."""
    return Store.open([], tmp_path / "records.jsonl", registry.template_version)


def fill(store: Store, mcpu: str, threads: int) -> CpuTarget:
    """Record ``SECONDS`` and a failure of a CPU, and return the CPU that its key describes."""
    key = TargetKey.of(parse_target(f"llvm -mcpu={mcpu}"), threads)
    store.append([record(key, scheme, seconds) for scheme, seconds in SECONDS.items()])
    store.append([record(key, SCHEMES[5], None)])
    return cpu_target(key)


@pytest.mark.parametrize(
    ("mcpu", "threads", "source"),
    [
        ("znver4", 1, "measured on znver4 with 1 thread"),
        ("znver4", 8, "measured on znver4 with 8 threads"),
        ("skylake-avx512", 2, "measured on skylake-avx512 with 2 threads"),
    ],
)
def test_borrowed_seconds_are_scaled_by_the_median_of_the_estimates(
    store: Store, mcpu: str, threads: int, source: str
):
    there = fill(store, mcpu, threads)
    found = measured_schemes(store, HERE, 2, WORKLOAD)
    ratios = [
        registry.estimate(WORKLOAD, scheme, HERE, 2)
        / registry.estimate(WORKLOAD, scheme, there, threads)
        for scheme in SECONDS
    ]
    assert found.source == source
    expected = {s: seconds * statistics.median(ratios) for s, seconds in SECONDS.items()}
    assert found.seconds == {s: pytest.approx(v) for s, v in expected.items()} | {SCHEMES[5]: None}
    # One factor for all: their order is the measured one.
    assert sorted(SECONDS, key=SECONDS.__getitem__) == sorted(
        SECONDS, key=found.seconds.__getitem__
    )


def test_a_cpu_of_the_same_name_is_taken_to_have_the_same_caches(store: Store):
    fill(store, "znver4", 2)
    bigger = dataclasses.replace(HERE, features=HERE.features[:-1], l1d=2 * HERE.l1d, l3=0)
    found = measured_schemes(store, bigger, 2, WORKLOAD)
    assert found.source == "measured on znver4 with 2 threads"
    assert {s: v for s, v in found.seconds.items() if v is not None} == pytest.approx(SECONDS)


def test_with_a_record_of_its_own_a_workload_borrows_nothing(store: Store):
    fill(store, "znver4", 1)
    own = record(TargetKey.of(HERE, 2), SCHEMES[7], 5e-3)
    store.append([own])
    found = measured_schemes(store, HERE, 2, WORKLOAD)
    assert (found.seconds, found.source) == ({SCHEMES[7]: 5e-3}, "measured")


def test_failures_of_its_own_do_not_end_the_borrowing_and_stay_failures(store: Store):
    store.append([record(TargetKey.of(HERE, 2), SCHEMES[i], None) for i in (0, 9)])
    assert measured_schemes(store, HERE, 2, WORKLOAD).seconds == {
        SCHEMES[0]: None,
        SCHEMES[9]: None,
    }
    fill(store, "znver4", 1)
    found = measured_schemes(store, HERE, 2, WORKLOAD)
    assert found.source == "measured on znver4 with 1 thread"
    failed = {scheme for scheme, seconds in found.seconds.items() if seconds is None}
    assert failed == {SCHEMES[0], SCHEMES[5], SCHEMES[9]}
    assert found.seconds.keys() == {*SECONDS, *failed}


@pytest.mark.parametrize("threads", [1, 2])
def test_beside_other_streams_measurements_take_longer_as_estimates_do(store: Store, threads: int):
    fill(store, "znver4", threads)
    store.append([record(TargetKey.of(HERE, 1), SCHEMES[9], None)])
    beside = dataclasses.replace(HERE, streams=4)
    alone, found = (measured_schemes(store, cpu, 1, WORKLOAD).seconds for cpu in (HERE, beside))
    assert alone.keys() == found.keys()
    for scheme in SECONDS:
        before, now = (registry.estimate(WORKLOAD, scheme, cpu, 1) for cpu in (HERE, beside))
        assert found[scheme] == pytest.approx(alone[scheme] * now / before)
        assert found[scheme] >= alone[scheme]
    assert found[SCHEMES[9]] is None


def test_a_workload_without_relatives_borrows_nothing(store: Store):
    fill(store, "haswell", 2)  # half the registers, half as wide
    fill(store, "znver4", 1)
    other = dataclasses.replace(WORKLOAD, height=29)
    assert measured_schemes(store, HERE, 2, other).seconds == {}
    assert measured_schemes(store, HERE, 2, WORKLOAD).source != "measured"


def test_every_kind_of_workload_may_borrow(store: Store):
    transform = TransformWorkload(
        batch=1, channels=64, height=28, width=28, in_block=1, out_block=16
    )
    (scheme,) = registry.schemes(transform, HERE)
    store.append([record(TargetKey.of(HERE, 1), scheme, 1e-5, transform)])
    found = measured_schemes(store, HERE, 2, transform)
    assert found.source == "measured on znver4 with 1 thread"
    (seconds,) = found.seconds.values()
    ratio = registry.estimate(transform, scheme, HERE, 2) / registry.estimate(
        transform, scheme, HERE, 1
    )
    assert seconds == pytest.approx(1e-5 * ratio)


def test_a_plan_prefers_what_was_fast_elsewhere(store: Store):
    fill(store, "znver4", 1)
    costs = CostModel(target=HERE, threads=2, measured=partial(measured_schemes, store, HERE, 2))
    choices = costs.conv_choices(WORKLOAD)
    schemes = [choice.scheme for choice in choices]
    assert SCHEMES[5] not in schemes  # it failed there
    sources = {choice.source for choice in choices}
    assert sources == {"estimated", "measured on znver4 with 1 thread"}
    borrowed = [c.scheme for c in choices if c.source != "estimated"]
    assert borrowed[0] == min((s for s in SECONDS if s in schemes), key=SECONDS.__getitem__)


def test_only_the_named_databases(tmp_path, monkeypatch):
    """Shipped records and the user's own do not count, and nothing is written elsewhere."""
    own = tmp_path / "own.jsonl"
    own.write_text("")
    monkeypatch.setattr("neocpu.compilation.network_tuning.default_database", lambda: own)
    assert len(open_store([])) > 0
    assert open_store([], writing=True).writable == own
    named = tmp_path / "named.jsonl"
    assert open_store([named], only=True, writing=True).writable == named
    assert open_store([], only=True).writable is None
    with pytest.raises(DatabaseError, match=r"named\.jsonl: No such file"):
        open_store([named], only=True)  # no other process computes it
    named.touch()
    assert len(open_store([named], only=True)) == 0
    with pytest.raises(UsageError, match="name one with databases="):
        open_store([], only=True, writing=True)


def test_results_of_an_earlier_compilation_are_reused_until_records_change(store: Store):
    kept: dict[str, str] = {}

    def keep(key: str, make: Callable[[], Any]) -> Any:
        if key not in kept:
            kept[key] = json.dumps(make())
        return json.loads(kept[key])

    assert measured_schemes(store, HERE, 2, WORKLOAD, keep).seconds == {}
    fill(store, "znver4", 2)
    expected = measured_schemes(store, HERE, 2, WORKLOAD)
    for _ in range(2):
        assert measured_schemes(store, HERE, 2, WORKLOAD, keep) == expected
    assert len(kept) == 2


def test_estimates_of_a_scheme_scale_its_time_to_more_threads(store: Store):
    fill(store, "znver4", 2)
    found = measured_schemes(store, HERE, 16, WORKLOAD)
    assert found.source == "measured on znver4 with 2 threads"
    many = with_cores(HERE, 16)
    expected = {
        scheme: seconds
        * registry.estimate(WORKLOAD, scheme, many, 16)
        / registry.estimate(WORKLOAD, scheme, HERE, 2)
        for scheme, seconds in SECONDS.items()
    }
    assert found.seconds == {s: pytest.approx(v) for s, v in expected.items()} | {SCHEMES[5]: None}


UNSOUND = (
    WinogradScheme(16, 1, reg_n=4, tile=4, reg_oc=16, strip=1, oc_split=True),  # less than a vector
    WinogradScheme(16, 16, reg_n=4, tile=100, reg_oc=16, strip=1, oc_split=True),
    DirectScheme(16, 1 << 20, reg_n=7, unroll_ker=False),  # nothing but padding
    DirectScheme(1 << 20, 16, reg_n=7, unroll_ker=False),
    DirectScheme(16, 16, reg_n=4096, unroll_ker=False),  # endless code
)


@pytest.mark.parametrize("count", [1, 12])
def test_schemes_that_become_no_kernel_are_left_out(
    store: Store, count: int, caplog: pytest.LogCaptureFixture
):
    """TVM would refuse them only after the plan is made."""
    fill(store, "znver4", 2)
    key = TargetKey.of(HERE, 2)
    broken = [DirectScheme(16, 16, reg_n=1 + n, unroll_ker=False, out_bn=24) for n in range(count)]
    assert all(registry.can_compute(WORKLOAD, scheme, HERE) for scheme in broken)
    store.append([record(key, scheme, 1e-9) for scheme in broken])
    costs = CostModel(target=HERE, threads=2, measured=partial(measured_schemes, store, HERE, 2))
    choices = costs.conv_choices(WORKLOAD)
    assert {choice.scheme for choice in choices}.isdisjoint(broken)
    assert "record skipped: no kernel can be made of" in caplog.text
    assert {choice.scheme for choice in choices} <= {*SCHEMES}


@pytest.mark.parametrize("threads", [2, 1], ids=["own", "borrowed"])
@pytest.mark.parametrize("scheme", UNSOUND, ids=str)
def test_schemes_that_no_template_computes_are_left_out(
    store: Store, threads: int, scheme: Scheme, caplog: pytest.LogCaptureFixture
):
    """They come from untrusted files, and would be by far the fastest."""
    key = TargetKey.of(HERE, threads)
    store.append([record(key, scheme, 1e-9)])
    assert measured_schemes(store, HERE, 2, WORKLOAD).seconds == {}
    fill(store, "znver4", threads)
    found = measured_schemes(store, HERE, 2, WORKLOAD)
    assert found.seconds.keys() == {*SECONDS, SCHEMES[5]}
    assert f"1 record skipped: the schemes cannot compute {WORKLOAD}" in caplog.text
    costs = CostModel(target=HERE, threads=2, measured=partial(measured_schemes, store, HERE, 2))
    assert all(choice.scheme != scheme for choice in costs.conv_choices(WORKLOAD))


def test_records_of_similar_workloads_are_borrowed_in_their_order(tmp_path: Path) -> None:
    """They are scaled by one factor, except for schemes that failed with an epilogue."""
    similar = dataclasses.replace(WORKLOAD, epilogue=(EpilogueOp("bias_add"), EpilogueOp("relu")))
    here = TargetKey.of(HERE, 2)
    store = open_store([tmp_path / "r.jsonl"], only=True, writing=True)
    failed, *others = SECONDS
    store.append([record(here, failed, None, similar)])
    store.append([record(here, scheme, SECONDS[scheme], similar) for scheme in others])
    found = measured_schemes(store, HERE, 2, WORKLOAD)
    assert found.source == "borrowed"
    assert failed not in found.seconds
    assert list(found.seconds) == others
    factors = [found.seconds[scheme] / SECONDS[scheme] for scheme in others]
    assert factors == pytest.approx([factors[0]] * len(factors))
    # Bias and activation take some of the similar workload's time.
    assert 0.5 < factors[0] <= 1


@needs.everything()
def test_a_network_without_biases_has_the_schemes_of_one_with() -> None:
    """The records come with neocpu; a batch normalisation without a shift leaves no bias."""
    plain = build("resnet50")
    shifts = {
        name
        for node in plain.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[2:4]
    }
    for tensor in plain.graph.initializer:
        if tensor.name in shifts:
            zeros = np.zeros(tuple(tensor.dims), np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, tensor.name))
    plans = []
    for model in (build("resnet50"), plain):
        with neocpu.compile(model, target=HERE, threads=2, verify=False) as compiled:
            plans.append([op for op in compiled.plan.ops if op.kind == "conv2d"])
    assert not any("bias_add" in op.workload for op in plans[1])
    assert all(op.cost_source.startswith("borrowed") for op in plans[1])
    assert [op.scheme for op in plans[0]] == [op.scheme for op in plans[1]]
