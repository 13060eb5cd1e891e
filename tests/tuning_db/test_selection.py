"""Choosing records to ship, and counting what files hold."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

from tuning_records import RECORD, WORKLOAD, open_store, record

from neocpu.tuning_db.record import Record
from neocpu.tuning_db.record_file import read_records
from neocpu.tuning_db.selection import (
    FileStatistics,
    GroupStatistics,
    Selection,
    file_statistics,
    select,
)

OTHER = dataclasses.replace(WORKLOAD, height=57)


def made(seconds: float, workload=WORKLOAD, *, mcpu="znver5", threads=2, **scheme: int) -> Record:
    target = dataclasses.replace(RECORD.target, mcpu=mcpu, threads=threads)
    return dataclasses.replace(record(seconds, **scheme), workload=workload, target=target)


SLOW, FAST, FASTEST = made(3e-3, reg_n=1), made(2e-3, reg_n=2), made(1e-3, reg_n=3)
FAILED = record(error="timeout", reg_n=4)
ELSEWHERE = made(1e-4, mcpu="haswell")
ALONE = made(1e-4, threads=1)
ANOTHER = made(5e-3, OTHER)
EVERY = [SLOW, FAST, FASTEST, FAILED, ELSEWHERE, ALONE, ANOTHER]


def test_each_criterion():
    def chosen(**criteria: object) -> list[Record]:
        return select(EVERY, Selection(**criteria))

    here = [SLOW, FAST, FASTEST, FAILED]
    assert sorted(chosen(), key=str) == sorted(EVERY, key=str)
    assert chosen(cpus=["haswell"]) == [ELSEWHERE]
    assert chosen(threads=[1]) == [ALONE]
    assert chosen(workloads={OTHER}) == [ANOTHER]
    assert chosen(workloads=set()) == []
    assert set(chosen(cpus=["znver5"], threads=[2], workloads={WORKLOAD})) == set(here)
    assert set(chosen(best=2)) == {FAST, FASTEST, ELSEWHERE, ALONE, ANOTHER}
    assert set(chosen(best=3, threads=[2], workloads={WORKLOAD}, cpus=["znver5"])) == {
        SLOW,
        FAST,
        FASTEST,
    }


def test_the_fastest_between_each_pair_of_layouts_stays():
    other = made(9e-3, ic_bn=8)
    slower = made(10e-3, ic_bn=8, reg_n=2)
    chosen = select([*EVERY, other, slower], Selection(best=1, workloads={WORKLOAD}))
    assert set(chosen) == {FASTEST, other, ELSEWHERE, ALONE}


def test_the_order_is_of_the_records_alone():
    shuffled = list(EVERY)
    expected = select(EVERY, Selection())
    for seed in range(10):
        random.Random(seed).shuffle(shuffled)
        assert select(shuffled, Selection()) == expected
    # Lines of one workload stand together, which makes reading fast.
    keys = [(chosen.workload, chosen.target) for chosen in expected]
    assert len(set(keys)) == sum(a != b for a, b in zip(keys, [*keys[1:], None], strict=True))


def test_statistics(tmp_path: Path):
    path = tmp_path / "records.jsonl"
    store = open_store(path)
    stale = record(1e-3, version=2, reg_n=9)
    store.append([made(9e-3, reg_n=1), *EVERY, stale])
    with path.open("a") as file:
        file.write("torn")
    counted = file_statistics(read_records(path), lambda name: 3)
    direct = "conv2d_direct"
    assert counted == FileStatistics(
        size=path.stat().st_size,
        groups=(
            GroupStatistics(
                mcpu="haswell",
                threads=2,
                template=direct,
                workloads=1,
                records=1,
                failed=0,
                stale=0,
            ),
            GroupStatistics(
                mcpu="znver5", threads=1, template=direct, workloads=1, records=1, failed=0, stale=0
            ),
            GroupStatistics(
                mcpu="znver5", threads=2, template=direct, workloads=2, records=6, failed=1, stale=1
            ),
        ),
        superseded=1,
        skipped=1,
    )
    assert counted.records == 8
