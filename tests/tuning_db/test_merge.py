"""Merging: the better record wins, order does not matter, and nothing is lost."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_records import RECORD, WORKLOAD, open_store, record

from neocpu.foundation.errors import DatabaseError, UsageError
from neocpu.tuning_db.merge import merge
from neocpu.tuning_db.record import Record
from neocpu.tuning_db.store import shipped_databases


def at(time: str, made: Record) -> Record:
    return dataclasses.replace(made, time=time)


def write(path: Path, *records: Record, tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(made.to_line().encode() for made in records) + tail)
    return path


OLD, NEW = "2026-01-01T00:00:00+00:00", "2026-06-01T00:00:00+00:00"
FAST_ONCE = at(NEW, record(1e-3))
OFTEN = at(OLD, record(2e-3, 3e-3))
WRONG = at(OLD, record(error="wrong answer: largest error 0.3"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FAST_ONCE, OFTEN),  # more repeats, whatever the clock says
        (OFTEN, WRONG),  # a failure, though older and without a repeat
        (at(OLD, record(1e-3)), at(NEW, record(2e-3))),  # else the later one, not the faster
        (at(OLD, record(error="timeout")), at(NEW, record(error="crashed"))),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_the_other_wins_in_any_order(tmp_path: Path, one: Record, other: Record, swap: bool):
    files = [write(tmp_path / "one.jsonl", one), write(tmp_path / "other.jsonl", other)]
    merge(tmp_path / "all.jsonl", files[::-1] if swap else files)
    assert set(open_store(tmp_path / "all.jsonl")) == {other}
    into = files[swap]
    merge(into, [files[not swap]])
    assert set(open_store(into)) == {other}


def test_in_one_file_the_later_line_counts_even_against_the_clock(tmp_path: Path):
    """A scheme failed at first, and worked later by a clock that was slow."""
    source = write(tmp_path / "a.jsonl", at(NEW, WRONG), FAST_ONCE, at(OLD, record(5e-3)))
    merge(tmp_path / "all.jsonl", [source])
    assert set(open_store(tmp_path / "all.jsonl")) == {at(OLD, record(5e-3))}


def test_the_records_taken_from_each_file_are_reported(tmp_path: Path):
    destination = write(tmp_path / "all.jsonl", FAST_ONCE, record(1e-3, reg_n=1))
    one = write(
        tmp_path / "one.jsonl", OFTEN, record(1e-3, reg_n=1), record(1e-3, reg_n=2), tail=b"torn"
    )
    other = write(
        tmp_path / "other.jsonl", record(1e-3, 2e-3, reg_n=2), record(1e-3, reg_n=3, version=2)
    )
    first, second = merge(destination, [one, other])
    assert (first.records, first.added, first.improved) == (3, 0, 1)
    assert (second.records, second.added, second.improved) == (2, 2, 0)
    assert [str(s) for s in first.skipped] == [
        f"{one}:4: skipped: Expecting value: line 1 column 1 (char 0)"
    ]
    assert second.skipped == ()
    again = merge(destination, [one, other])
    assert all((file.added, file.improved) == (0, 0) for file in again)


def test_the_destination_keeps_its_bytes(tmp_path: Path):
    """Torn lines and lines of other versions stay too, because merging does not prune."""
    destination = write(tmp_path / "all.jsonl", RECORD, tail=b'{"v":2}\n{"v":1,"torn')
    before = destination.read_bytes()
    source = write(tmp_path / "one.jsonl", record(1e-3, reg_n=2))
    merge(destination, [source])
    assert destination.read_bytes() == before + b"\n" + source.read_bytes()
    unchanged = destination.stat()
    merge(destination, [source, destination])
    assert destination.stat() == unchanged


def test_records_of_old_templates_and_other_targets_stay_separate(tmp_path: Path):
    records = {
        RECORD,
        record(1e-3, version=2),
        dataclasses.replace(RECORD, workload=dataclasses.replace(WORKLOAD, batch=2)),
        dataclasses.replace(RECORD, target=dataclasses.replace(RECORD.target, threads=1)),
    }
    files = [write(tmp_path / f"{i}.jsonl", made) for i, made in enumerate(records)]
    merge(tmp_path / "all.jsonl", files)
    lines = (tmp_path / "all.jsonl").read_text().splitlines(keepends=True)
    assert sorted(lines) == sorted(made.to_line() for made in records)


scheme_records = st.builds(
    lambda reg_n, seconds, error, day: at(
        f"2026-01-{day:02}T00:00:00+00:00", record(*seconds, error=error, reg_n=reg_n)
    ),
    st.integers(1, 3),
    st.lists(st.sampled_from([1e-3, 2e-3]), min_size=1, max_size=3),
    st.sampled_from([None, None, "timeout", "crashed"]),
    st.integers(1, 5),
)


@settings(max_examples=30)
@given(st.lists(st.lists(scheme_records, max_size=4), min_size=3, max_size=3))
def test_standing_does_not_depend_on_the_order_of_files(
    tmp_path_factory: pytest.TempPathFactory, contents: list[list[Record]]
):
    folder = tmp_path_factory.mktemp("merge")
    files = [write(folder / f"{i}.jsonl", *made) for i, made in enumerate(contents)]
    standings = set()
    for number, order in enumerate(itertools.permutations(files)):
        destination = folder / f"all{number}.jsonl"
        merge(destination, order)
        found = open_store(destination) if destination.exists() else ()
        standings.add(
            frozenset(
                (r.scheme, r.result.error is None, len(r.result.seconds), r.time) for r in found
            )
        )
    assert len(standings) == 1


def append_many(database: Path, count: int) -> None:
    store = open_store(database)
    for number in range(count):
        store.append([record(1e-3, reg_n=number + 100)])


def test_others_may_append_meanwhile(tmp_path: Path):
    destination = tmp_path / "all.jsonl"
    source = write(tmp_path / "one.jsonl", *(record(1e-3, reg_n=n) for n in range(1, 51)))
    writer = multiprocessing.get_context("fork").Process(target=append_many, args=(destination, 50))
    writer.start()
    merges = 0
    while writer.is_alive():
        merges += 1
        merge(destination, [write(tmp_path / "more.jsonl", record(1e-3, reg_n=1000 + merges))])
    merge(destination, [source])
    store = open_store(destination)
    assert len(store) == 100 + merges
    assert not store.skipped


def test_the_destination_is_made_even_of_nothing(tmp_path: Path):
    merge(tmp_path / "all.jsonl", [write(tmp_path / "one.jsonl", tail=b"torn")])
    assert (tmp_path / "all.jsonl").read_bytes() == b""


def test_mistakes_change_nothing(tmp_path: Path):
    destination = tmp_path / "new" / "all.jsonl"
    with pytest.raises(DatabaseError, match=r"nowhere\.jsonl: No such file"):
        merge(destination, [write(tmp_path / "one.jsonl", RECORD), tmp_path / "nowhere.jsonl"])
    assert not destination.parent.exists()
    with pytest.raises(UsageError, match="never changed"):
        merge(shipped_databases()[0], [tmp_path / "one.jsonl"])
