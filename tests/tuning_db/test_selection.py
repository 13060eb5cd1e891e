"""Choosing records to ship, counting what files hold, and pruning: the kept bytes and others."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from pathlib import Path

import pytest
from tuning_records import RECORD, WORKLOAD, open_store, record

from neocpu.foundation.errors import DatabaseError, UsageError
from neocpu.tuning_db import record_file
from neocpu.tuning_db.record import Record
from neocpu.tuning_db.record_file import read_records
from neocpu.tuning_db.selection import (
    FileStatistics,
    GroupStatistics,
    PruneReport,
    PruneRules,
    Selection,
    file_statistics,
    prune,
    select,
)
from neocpu.tuning_db.store import shipped_databases

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


RULES = PruneRules(lambda name: 3, lambda record: record.scheme.reg_n != 99)


def line(made: Record) -> bytes:
    return made.to_line().encode()


def edited(made: Record, **changes: object) -> bytes:
    return json.dumps({**made.to_json(), **changes}).encode() + b"\n"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A file with one line of every kind."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(
        b"".join(
            [
                line(record(9e-3)),  # superseded by the next
                line(RECORD),
                b"\n",
                line(record(1e-3, version=2)),  # an old template
                line(record(1e-3, version=4)),  # a template of the future
                edited(RECORD, v=2),  # a record of the future
                edited(RECORD, scheme={"template": "conv2d_fft", "tile": 8}),
                edited(RECORD, result={"seconds": [-1.0], "error": None}),
                line(record(1e-9, reg_n=99)),  # does not fit
                line(record(error="timeout", reg_n=5)),
                line(record(3e-3, reg_n=2)),
                line(record(2e-3, reg_n=4)),
                line(dataclasses.replace(RECORD, workload=dataclasses.replace(WORKLOAD, batch=2))),
                line(RECORD)[:200],  # torn
            ]
        )
    )
    return path


def numbers(path: Path, before: list[bytes]) -> list[int]:
    """Return the numbers of the lines of ``before`` that are left; they must be unchanged."""
    after = path.read_bytes()
    assert after.endswith(b"\n")
    return [before.index(kept) + 1 for kept in after.splitlines(keepends=True)]


@pytest.mark.parametrize(
    ("rules", "kept", "dropped"),
    [
        (RULES, [2, 5, 6, 7, 10, 11, 12, 13], {}),
        (dataclasses.replace(RULES, failed=True), [2, 5, 6, 7, 11, 12, 13], {"failed": 1}),
        (dataclasses.replace(RULES, keep_best=2), [2, 5, 6, 7, 10, 12, 13], {"slower": 1}),
        (dataclasses.replace(RULES, keep_best=1), [2, 5, 6, 7, 10, 13], {"slower": 2}),
    ],
)
def test_rules_decide_which_records_are_dropped(
    database: Path, rules: PruneRules, kept: list[int], dropped: dict[str, int]
):
    before = database.read_bytes()
    size = len(before)
    planned = prune(database, rules, dry_run=True)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["records.jsonl"]
    report = prune(database, rules)
    assert numbers(database, before.splitlines(keepends=True)) == kept
    assert (
        report
        == planned
        == PruneReport(
            path=database,
            kept=len(kept) - 2,
            foreign=2,
            dropped={"torn": 2, "superseded": 1, "stale": 1, "unfit": 1, **dropped},
            bytes_before=size,
            bytes_after=database.stat().st_size,
        )
    )
    again = prune(database, rules)
    assert not again.dropped
    assert again.bytes_before == again.bytes_after


def test_pruning_does_not_change_the_records_that_a_store_finds(database: Path):
    before = set(open_store(database))
    prune(database, RULES)
    store = open_store(database)
    assert set(store) == before - {record(1e-9, reg_n=99)}


def test_records_appended_after_the_first_look_stay(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    late = record(4e-3, reg_n=6)
    real_locked = record_file.locked

    def append_before(path: Path):
        open_store(database).append([late])
        return real_locked(path)

    monkeypatch.setattr("neocpu.tuning_db.selection.locked", append_before)
    prune(database, RULES)
    assert late in set(open_store(database))


def test_a_link_is_followed(database: Path, tmp_path: Path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(database)
    prune(link, RULES)
    assert link.is_symlink()
    assert not open_store(database).skipped[2:]


def test_shipped_records_are_never_touched(tmp_path: Path):
    link = tmp_path / "mine.jsonl"
    for shipped in shipped_databases():
        before = os.stat(shipped)
        link.unlink(missing_ok=True)
        link.symlink_to(shipped)
        for path in (shipped, link):
            with pytest.raises(UsageError, match="comes with neocpu and is never changed"):
                prune(path, RULES)
        assert os.stat(shipped) == before
    assert shipped_databases()


def test_a_missing_file_is_an_error_and_is_not_made(tmp_path: Path):
    with pytest.raises(DatabaseError, match="No such file"):
        prune(tmp_path / "a" / "records.jsonl", RULES)
    assert not list(tmp_path.iterdir())
