"""The store: layers, lookups, damage, and errors of the file system."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import needs
import pytest
from tuning_records import RECORD, TARGET, WORKLOAD, open_store, record, write_packed

from neocpu.foundation.errors import DatabaseError, UsageError
from neocpu.schedules import registry
from neocpu.schedules.vocabulary import target, target_parsing
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.tuning_db import record as record_module
from neocpu.tuning_db import record_file
from neocpu.tuning_db.nearest import cpu_target
from neocpu.tuning_db.record import Record, TargetKey
from neocpu.tuning_db.record_file import read_packed
from neocpu.tuning_db.store import Store, default_database, shipped_databases

SLOWER = record(2e-3, reg_n=4)
FAILED = record(1e-9, error="timeout", reg_n=5)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database file that does not exist yet."""
    return tmp_path / "records.jsonl"


def test_append_then_find(database: Path):
    open_store(database).append([SLOWER, RECORD, FAILED])
    store = open_store(database)
    assert store.skipped == ()
    assert len(store) == 3
    assert set(store) == {SLOWER, RECORD, FAILED}
    assert store.best(WORKLOAD, TARGET, 2) == RECORD
    assert store.results(WORKLOAD, TARGET, 2) == {r.scheme: r for r in (SLOWER, RECORD, FAILED)}


def test_appended_records_are_found_at_once(database: Path):
    store = open_store(database)
    assert store.best(WORKLOAD, TARGET, 2) is None
    store.append([RECORD])
    assert store.best(WORKLOAD, TARGET, 2) == RECORD


def test_other_workloads_targets_and_threads_are_other_records(database: Path):
    store = open_store(database)
    store.append([RECORD])
    assert store.best(dataclasses.replace(WORKLOAD, height=57), TARGET, 2) is None
    assert store.best(dataclasses.replace(WORKLOAD, epilogue=()), TARGET, 2) is None
    assert store.best(WORKLOAD, TARGET, 1) is None
    for other in ({"mcpu": "znver4"}, {"features": ("avx2",)}):
        assert store.best(WORKLOAD, dataclasses.replace(TARGET, **other), 2) is None
    # Caches order the candidates but do not change what was measured.
    assert store.best(WORKLOAD, dataclasses.replace(TARGET, l3=1), 2) == RECORD


def test_records_of_another_template_version_are_left_out(database: Path):
    open_store(database).append([record(1e-6, version=2), SLOWER])
    assert open_store(database).best(WORKLOAD, TARGET, 2) == SLOWER
    older = Store.open([], database, lambda name: 2)
    assert older.results(WORKLOAD, TARGET, 2).keys() == {RECORD.scheme}


def test_only_failures_means_no_best(database: Path):
    store = open_store(database)
    store.append([FAILED])
    assert store.best(WORKLOAD, TARGET, 2) is None
    assert store.results(WORKLOAD, TARGET, 2) == {FAILED.scheme: FAILED}


def test_later_layers_and_lines_count(tmp_path: Path):
    shipped, user = tmp_path / "shipped.jsonl", tmp_path / "user.jsonl"
    open_store(shipped).append([RECORD, record(5e-3), SLOWER])
    open_store(user).append([record(7e-3, reg_n=4)])
    before = shipped.read_bytes()
    store = open_store(user, shipped)
    assert store.results(WORKLOAD, TARGET, 2)[SLOWER.scheme].result.seconds == (7e-3,)
    assert store.results(WORKLOAD, TARGET, 2)[RECORD.scheme].result.seconds == (5e-3,)
    store.append([FAILED])
    assert shipped.read_bytes() == before


def test_damaged_lines_are_named_and_the_rest_kept(database: Path):
    good = RECORD.to_line(), SLOWER.to_line()
    database.write_text(good[0] + "hello\n\n" + good[1].replace("0.002", "NaN") + good[1])
    store = open_store(database)
    assert set(store) == {RECORD, SLOWER}
    assert [(s.path, s.line) for s in store.skipped] == [(database, 2), (database, 4)]
    assert str(store.skipped[1]).startswith(f"{database}:4: skipped: ")
    assert "NaN" in str(store.skipped[1])


@pytest.mark.parametrize("cut", [1, 2, 30, 400])
def test_a_torn_last_line_costs_only_itself(database: Path, cut: int):
    line = RECORD.to_line().encode()
    database.write_bytes(SLOWER.to_line().encode() + line[:-cut])
    open_store(database).append([FAILED])
    store = open_store(database)
    whole = {SLOWER, FAILED} | ({RECORD} if cut == 1 else set())
    assert set(store) == whole
    assert [s.line for s in store.skipped] == ([] if cut == 1 else [2])


def test_an_empty_or_foreign_file_is_not_fatal(database: Path):
    database.write_bytes(b"")
    assert len(open_store(database)) == 0
    database.write_bytes(os.urandom(4096))
    store = open_store(database)
    assert len(store) == 0
    assert store.skipped


def test_missing_folder_is_made_when_written_not_when_read(tmp_path: Path):
    database = tmp_path / "a" / "b" / "records.jsonl"
    store = open_store(database)
    assert not database.parent.exists()
    store.ensure_writable()
    assert database.parent.is_dir()
    store.append([RECORD])
    assert len(open_store(database)) == 1


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """Expect a DatabaseError of one line with these words."""
    with pytest.raises(DatabaseError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_missing_file_to_read(tmp_path: Path):
    with refused("nowhere.jsonl", "No such file"):
        open_store(None, tmp_path / "nowhere.jsonl")


def test_a_folder_is_not_a_database(tmp_path: Path):
    with refused(str(tmp_path), "folder"):
        open_store(tmp_path)


def test_a_file_where_the_folder_should_be(tmp_path: Path):
    (tmp_path / "file").write_text("")
    store = open_store(tmp_path / "file" / "records.jsonl")
    with refused("file"):
        store.ensure_writable()


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make opening for append fail; permissions would not stop the superuser."""

    def fail(path: Path) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(record_file, "_open_for_append", fail)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_read_only_database_reads_but_refuses_to_write(
    database: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    open_store(database).append([RECORD])
    refuse(monkeypatch, number)
    store = open_store(database)
    assert store.best(WORKLOAD, TARGET, 2) == RECORD
    for write in (store.ensure_writable, lambda: store.append([SLOWER])):
        with refused(str(database), os.strerror(number), "databases="):
            write()
    assert store.results(WORKLOAD, TARGET, 2).keys() == {RECORD.scheme}


@needs.ordinary_user()
def test_a_read_only_folder(tmp_path: Path):
    tmp_path.chmod(0o500)
    with refused("Permission denied"):
        open_store(tmp_path / "records.jsonl").ensure_writable()


def test_shipped_records_are_not_written(tmp_path: Path):
    link = tmp_path / "mine.jsonl"
    link.symlink_to(shipped_databases()[0])
    with pytest.raises(UsageError, match="comes with neocpu and is never changed"):
        open_store(link).ensure_writable()


def test_shipped_records_are_all_found():
    read = Store.open(shipped_databases(), None, registry.template_version)
    assert read.skipped == ()
    shipped, all_at_once = (
        Store.open([], None, registry.template_version, shipped=shipped_databases())
        for _ in range(2)
    )
    keys = {(made.workload, made.target): made for made in read}
    for made in needs.sample([*keys.values()], 5):
        cpu = cpu_target(made.target)
        expected = list(read.results(made.workload, cpu, made.target.threads).items())
        assert list(shipped.results(made.workload, cpu, made.target.threads).items()) == expected
    assert list(shipped) == list(all_at_once) == list(read)
    assert len(shipped) == len(read) == sum(len(read_packed(path)) for path in shipped_databases())


def with_shipped(shipped: Path, *paths: Path, version: int = 3) -> Store:
    return Store.open(paths, None, lambda name: version, shipped=[shipped])


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    other = dataclasses.replace(SLOWER, workload=dataclasses.replace(WORKLOAD, height=57))
    stale = record(5e-3, reg_n=9, version=2)
    return write_packed(tmp_path / "shipped.records", SLOWER, other, RECORD, stale)


def test_a_users_records_count_before_shipped_ones(shipped: Path, tmp_path: Path):
    mine, newer = tmp_path / "mine.jsonl", record(9e-3, reg_n=4)
    mine.write_text(newer.to_line())
    store = with_shipped(shipped, mine)
    assert list(store.results(WORKLOAD, TARGET, 2).values()) == [newer, RECORD]
    assert store.best(WORKLOAD, TARGET, 2) == RECORD
    assert len(store) == len(set(store)) == 3


def test_shipped_records_are_borrowed(shipped: Path):
    relative = dataclasses.replace(TARGET, mcpu="znver4")
    borrowed = next(with_shipped(shipped).lenders(WORKLOAD, relative, 2))
    assert borrowed.target == RECORD.target
    assert set(borrowed.records.values()) == {SLOWER, RECORD}
    assert not [*with_shipped(shipped, version=4).lenders(WORKLOAD, relative, 2)]


def test_a_damaged_shipped_file_is_named_when_it_is_needed(shipped: Path):
    shipped.write_bytes(shipped.read_bytes()[:-1])
    store = with_shipped(shipped)
    with refused(str(shipped), "it is damaged"):
        store.best(WORKLOAD, TARGET, 2)


@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids", "znver3"])
def test_new_features_in_the_table_leave_a_cpu_its_records(cpu: str, monkeypatch):
    """Two features of all these CPUs become relevant to schedules in this test."""
    store = Store.open([], None, registry.template_version, shipped=shipped_databases())
    (known,) = (read_packed(path) for path in shipped_databases() if path.stem == cpu)
    before = parse_target(f"llvm -mcpu={cpu}")
    assert TargetKey.of(before, 2) in known.targets
    features = target.ISA_FEATURES | {"cx16", "sahf"}
    for module in (target, target_parsing, record_module):
        monkeypatch.setattr(module, "ISA_FEATURES", features)
    target_parsing._make.cache_clear()
    try:
        now = parse_target(f"llvm -mcpu={cpu}")
        without = parse_target(f"llvm -mcpu={cpu} -mattr=-sahf")
        narrow = parse_target(f"llvm -mcpu={cpu} -mattr=-avx2")
    finally:
        target_parsing._make.cache_clear()
    assert set(now.features) == {*before.features, "cx16", "sahf"}
    for workload in known.workloads(TargetKey.of(before, 2))[::20]:
        found = store.results(workload, now, 2)
        assert found
        assert list(found.items()) == list(store.results(workload, before, 2).items())
        assert not store.results(workload, without, 2)
        assert not store.results(workload, narrow, 2)
        lent = next(store.lenders(workload, without, 2))
        assert lent.target == TargetKey.of(before, 2)
    made = dataclasses.replace(RECORD, target=TargetKey.of(without, 2))
    assert Record.from_line(made.to_line().encode()) == made
    assert cpu_target(made.target).features == without.features


def test_the_default_database_is_the_users():
    assert default_database().is_absolute()
    assert "neocpu" in str(default_database())


def test_a_target_key_ignores_unmeasured_properties():
    assert TargetKey.of(TARGET, 2) == RECORD.target


def test_the_state_of_a_store_changes_with_its_records(database: Path, tmp_path: Path):
    def state(*shipped: Path) -> str:
        return Store.open([], database, registry.template_version, shipped=shipped).state

    empty = state()
    assert empty == state()
    open_store(database).append([RECORD])
    one = state()
    assert one == state() != empty
    store = open_store(database)
    before = store.state
    store.append([SLOWER])
    assert len({before, store.state, empty}) == 3
    assert store.state == state()
    shipped = write_packed(tmp_path / "shipped.records", RECORD)
    with_shipped = state(shipped)
    write_packed(shipped, SLOWER, RECORD)
    assert len({state(), with_shipped, state(shipped)}) == 3


def test_shipped_records_are_not_read_before_somebody_asks(database: Path, tmp_path: Path):
    shipped = write_packed(tmp_path / "shipped.records", RECORD)
    store = Store.open([], database, registry.template_version, shipped=[shipped])
    write_packed(shipped)
    assert store.best(WORKLOAD, TARGET, 2) is None
