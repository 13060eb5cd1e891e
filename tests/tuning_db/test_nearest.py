"""Relatives of a target: which are close, and the records that the store lends."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path

import pytest
from tuning_records import RECORD, TARGET, WORKLOAD, open_store, record, write_packed

from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.tuning_db.nearest import cpu_target, relatives, similar_workloads
from neocpu.tuning_db.record import Record, TargetKey
from neocpu.tuning_db.store import Store


def key(mcpu: str, threads: int = 2, triple: str = "x86_64-linux-gnu") -> TargetKey:
    return TargetKey.of(parse_target(f"llvm -mtriple={triple} -mcpu={mcpu}"), threads)


ARM = "aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("mcpu", "triple"),
    [
        ("znver4", "x86_64-linux-gnu"),
        ("skylake-avx512", "x86_64-linux-gnu"),
        ("haswell", "x86_64-linux-gnu"),
        ("nehalem", "x86_64-linux-gnu"),
        ("cortex-a72", ARM),
        ("neoverse-n1", ARM),
    ],
)
def test_a_key_tells_its_cpu(mcpu: str, triple: str):
    known, told = (
        parse_target(f"llvm -mtriple={triple} -mcpu={mcpu}"),
        cpu_target(key(mcpu, triple=triple)),
    )
    same = dataclasses.replace(known, triple=told.triple)
    assert told == same
    assert (told.machine, told.isa) == (known.machine, known.isa)


def test_the_order_of_relatives():
    wanted = key("znver4", 4)
    closest_first = [
        key("znver4", 2),  # the same CPU, half the threads
        key("znver4", 1),  # a quarter, as far as four times as many
        key("znver4", 16),
        key("znver5", 4),  # another CPU with all its features
        key("znver5", 8),
        key("icelake-server", 4),  # lacks one
        key("skylake-avx512", 4),  # lacks many
    ]
    strangers = [
        wanted,
        key("znver3", 4),  # 16 registers of 256 bits
        key("nehalem", 4),
        key("neoverse-n1", 4, ARM),  # 32 registers, of 128 bits
    ]
    for seed in range(5):
        present = closest_first + strangers
        random.Random(seed).shuffle(present)
        assert list(relatives(wanted, present)) == closest_first


def test_relatives_are_mutual_and_of_one_width():
    every = [
        *(key(name) for name in ("znver3", "haswell", "znver4", "sapphirerapids", "nehalem")),
        key("cortex-a72", triple=ARM),
    ]
    pairs = {(a.mcpu, b.mcpu) for a, b in itertools.permutations(every, 2) if relatives(a, [b])}
    assert pairs == {
        *itertools.permutations(("znver3", "haswell"), 2),
        *itertools.permutations(("znver4", "sapphirerapids"), 2),
    }


def test_a_cpu_with_a_feature_hidden_is_its_own_closest_relative_unless_it_is_another_width():
    full = key("znver4")
    hidden = TargetKey("znver4", tuple(f for f in full.features if f != "avx512bf16"), 2)
    halved = TargetKey("znver4", tuple(f for f in full.features if "avx512" not in f), 2)
    assert relatives(full, [key("znver5"), hidden, halved]) == (hidden, key("znver5"))


def of(target: TargetKey, made: Record) -> Record:
    return dataclasses.replace(made, target=target)


def test_the_store_lends_records_of_the_closest_relative(tmp_path: Path):
    near, far = dataclasses.replace(RECORD.target, threads=1), key("haswell", 2)
    store = open_store(tmp_path / "records.jsonl")
    store.append([of(far, record(1e-3)), of(far, record(2e-3, reg_n=2))])
    found = next(store.lenders(WORKLOAD, TARGET, 2), None)
    assert found is not None
    assert found.target == far
    assert {s.reg_n for s in found.records} == {7, 2}

    store.append([of(near, record(error="crashed", reg_n=3))])
    assert (
        next(store.lenders(WORKLOAD, TARGET, 2), None) == found
    )  # a failure alone is worth nothing
    store.append([of(near, record(5e-3, reg_n=4))])
    again = next(open_store(tmp_path / "records.jsonl").lenders(WORKLOAD, TARGET, 2))
    assert again is not None
    assert again.target == near
    assert {s.reg_n: r.result.error for s, r in again.records.items()} == {3: "crashed", 4: None}


def test_nothing_is_lent_of_other_workloads_old_templates_or_strangers(tmp_path: Path):
    other = dataclasses.replace(WORKLOAD, height=57)
    store = open_store(tmp_path / "records.jsonl")
    store.append(
        [
            dataclasses.replace(of(key("haswell"), RECORD), workload=other),
            of(key("haswell"), record(1e-3, version=2)),
            of(key("znver4"), RECORD),
            RECORD,  # a target does not borrow its own records
        ]
    )
    assert next(store.lenders(WORKLOAD, TARGET, 2), None) is None


def test_similar_workloads_differ_in_what_hardly_costs():
    steps = [EpilogueOp("bias_add"), EpilogueOp("relu")]
    near = dataclasses.replace(WORKLOAD, epilogue=(*steps, EpilogueOp("add")))
    far = dataclasses.replace(WORKLOAD, padding=tuple(p + 1 for p in WORKLOAD.padding))
    others = [
        dataclasses.replace(WORKLOAD, padding=tuple(p + 2 for p in WORKLOAD.padding)),
        dataclasses.replace(WORKLOAD, epilogue=(EpilogueOp("scale"),)),
        dataclasses.replace(WORKLOAD, prologue=(EpilogueOp("relu"),)),
        dataclasses.replace(WORKLOAD, out_channels=2 * WORKLOAD.out_channels),
        dataclasses.replace(WORKLOAD, batch=2),
    ]
    assert similar_workloads(WORKLOAD, [*others, far, WORKLOAD, near]) == [near, far]


@pytest.mark.parametrize("shipped", [False, True])
def test_similar_workloads_lend_before_relatives(tmp_path: Path, shipped: bool):
    similar = dataclasses.replace(WORKLOAD, epilogue=(EpilogueOp("bias_add"),))
    path = tmp_path / "records.jsonl"
    store = open_store(path)
    store.append([of(key("haswell"), RECORD), dataclasses.replace(RECORD, workload=similar)])
    if shipped:
        store = Store.open(
            [], None, lambda _: 3, shipped=[write_packed(tmp_path / "shipped.records", *store)]
        )
    first, second = store.lenders(WORKLOAD, TARGET, 2)
    assert (first.workload, first.target) == (similar, RECORD.target)
    assert (second.workload, second.target) == (WORKLOAD, key("haswell"))
