"""A record file: errors of the file system, locks, links, and replacement during writes."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from file_limits import files_up_to
from tuning_records import RECORD, open_store, record
from waiting import wait_until

from neocpu.foundation.errors import DatabaseError
from neocpu.tuning_db import record_file
from neocpu.tuning_db.record_file import append_lines, locked, read_records, replace_contents

LINE = RECORD.to_line().encode()
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database file that does not exist yet."""
    return tmp_path / "records.jsonl"


def in_child(work: Callable[..., None], *arguments: object) -> int | None:
    """Run ``work`` in a child, which may set its own limits, and return its exit code."""
    child = FORK.Process(target=work, args=arguments)
    child.start()
    child.join()
    return child.exitcode


def append_until_full(database: Path, limit: int, batch: int, kept: Path) -> None:
    with files_up_to(limit):
        store = open_store(database)
        for start in range(0, 100, batch):
            try:
                store.append([record(1.0, reg_n=1 + start + i) for i in range(batch)])
            except DatabaseError as error:
                kept.write_text(f"{start} {error}")
                return
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("torn", [b"", LINE[:100]], ids=["whole", "torn"])
@pytest.mark.parametrize("limit", [0, 3, 500, 1000, 2500, 2501, 5000])
def test_a_full_disk_keeps_acknowledged_records_and_whole_lines(
    database: Path, limit: int, torn: bytes, batch: int
):
    """The limit on a file's size cuts a write short and then refuses the rest, as a disk does."""
    database.write_bytes(LINE + torn)
    kept = database.with_name("kept")
    assert in_child(append_until_full, database, len(LINE + torn) + limit, batch, kept) == 0
    acknowledged, _, message = kept.read_text().partition(" ")
    assert message.endswith(": File too large; make room or pass another file with databases=")
    assert database.read_bytes().startswith(LINE + torn)
    assert database.stat().st_size <= len(LINE + torn) + limit
    store = open_store(database)
    assert [skipped.line for skipped in store.skipped] == ([2] if torn else [])
    appended = {r.scheme.reg_n for r in store if r.result.seconds == (1.0,)}
    assert appended >= set(range(1, 1 + int(acknowledged)))
    # Once there is room again, the next record starts a new line.
    store.append([record(2.0, reg_n=500)])
    assert len(open_store(database)) == len(store)


def test_a_disk_that_is_full_for_good(database: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        record_file, "_open_for_append", lambda path: os.open("/dev/full", os.O_RDWR)
    )
    with pytest.raises(DatabaseError, match="No space left on device; make room or pass another"):
        open_store(database).append([RECORD])


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full"])
def test_a_device_is_not_read_for_ever(path: str):
    with pytest.raises(
        DatabaseError, match=f"cannot read tuning database {path}: it is a device, not a file; "
    ):
        open_store(Path(path))


def hold(database: Path, held: Path) -> None:
    with locked(database):
        held.touch()
        time.sleep(600)


@contextmanager
def locked_by_another(database: Path) -> Iterator[None]:
    """Have another process hold the lock, and kill it after the block."""
    held = database.with_name("held")
    holder = FORK.Process(target=hold, args=(database, held))
    holder.start()
    try:
        wait_until(held.exists)
        yield
    finally:
        holder.kill()
        holder.join()


def test_the_lock_of_a_dead_process_is_no_lock(database: Path):
    with locked_by_another(database):
        pass
    assert database.with_name("records.jsonl.lock").exists()
    append_lines(database, [LINE])
    assert database.read_bytes() == LINE


def test_the_lock_of_a_live_process_is_waited_for_and_named(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(record_file, "LOCK_TIMEOUT", 0.05)
    with locked_by_another(database), pytest.raises(DatabaseError) as caught:
        open_store(database).append([RECORD])
    assert str(caught.value) == (
        f"cannot write tuning database {database}: {database}.lock has been held by another "
        "process for 0.05 s; wait for it or pass another file with databases="
    )
    assert not database.exists()


def test_a_child_forked_under_the_lock_does_not_keep_it(database: Path):
    with locked(database):
        child = FORK.Process(target=time.sleep, args=(600,))
        child.start()
    try:
        append_lines(database, [LINE])
    finally:
        child.kill()
        child.join()


def test_an_exception_gives_the_lock_back(database: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record_file, "LOCK_TIMEOUT", 0.0)
    with pytest.raises(KeyError), locked(database):
        raise KeyError
    append_lines(database, [LINE])


def test_two_names_of_one_file_have_one_lock(database: Path, tmp_path: Path):
    link = tmp_path / "elsewhere" / "link.jsonl"
    link.parent.mkdir()
    link.symlink_to(database)
    append_lines(link, [LINE])
    assert database.read_bytes() == LINE
    with locked(link) as one, locked(tmp_path / "other.jsonl"):
        assert one == database
        assert [path.name for path in link.parent.iterdir()] == ["link.jsonl"]


def test_a_loop_of_links_is_named(database: Path):
    database.symlink_to(database)
    for use in (lambda: read_records(database), lambda: append_lines(database, [LINE])):
        with pytest.raises(DatabaseError, match=r"records\.jsonl: Too many levels of symb"):
            use()


@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_files_beside_a_database_are_not_written_to(database: Path, kind: str):
    """Other users who may write to the folder know the names of its temporary files."""
    victim = database.with_name("victim")
    victim.write_text("precious")
    plant(database.with_name("records.jsonl.new"), kind, victim)
    database.write_bytes(LINE)
    with locked(database) as real:
        replace_contents(real, LINE * 2)
    assert victim.read_text() == "precious"
    assert database.read_bytes() == LINE * 2
    assert not database.is_symlink()


def plant(path: Path, kind: str, victim: Path) -> None:
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("")


@pytest.mark.parametrize(
    ("kind", "reason"), [("link", "it is a link"), ("pipe", "it is a pipe, not a file")]
)
def test_a_lock_is_a_file(database: Path, kind: str, reason: str):
    victim = database.with_name("victim")
    victim.write_text("precious")
    lock = database.with_name("records.jsonl.lock")
    plant(lock, kind, victim)
    with pytest.raises(DatabaseError) as caught:
        append_lines(database, [LINE])
    assert caught.value.args[0] == (
        f"cannot write tuning database {database}: {reason}: {lock}; "
        "mend that or pass another file with --db"
    )
    assert victim.read_text() == "precious"
    assert not database.exists()


def test_a_database_that_became_a_link_under_the_lock_is_not_written_to(database: Path):
    victim = database.with_name("victim")
    victim.write_bytes(LINE)
    database.symlink_to(victim)
    with pytest.raises(OSError, match="it is a link"):
        os.close(record_file._open_for_append(database))


def test_a_link_in_a_shared_folder_is_its_owner_s_alone(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    victim = database.with_name("victim")
    victim.write_bytes(LINE)
    shared = database.with_name("shared")
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "records.jsonl"
    link.symlink_to(victim)
    append_lines(link, [LINE])
    monkeypatch.setattr(os, "geteuid", lambda: victim.stat().st_uid + 1)
    real = os.stat
    root = real("/")

    def of_root(path: Path, **options: bool) -> os.stat_result:
        status = real(path, **options)
        return (
            os.stat_result((*status[:4], root.st_uid + 5, *status[5:]))
            if path == shared
            else status
        )

    monkeypatch.setattr(os, "stat", of_root)
    with pytest.raises(DatabaseError, match="it is a link that another user has put there"):
        append_lines(link, [LINE])
    assert victim.read_bytes() == LINE * 2


def test_a_file_of_other_lines_is_refused_and_takes_no_memory(
    database: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nine megabytes of lines that are no records once took a gigabyte."""
    database.write_bytes(b"{}\n" * 3_000_000)
    assert in_child(read_within, database, 100 << 20, "it has more than 524288 lines") == 0
    database.write_bytes(b"{}\n" * (record_file.MAX_DAMAGED + 1))
    with pytest.raises(DatabaseError, match="more than 10000 of its lines are no records"):
        read_records(database)
    monkeypatch.setattr(record_file, "MAX_DAMAGED", 2)
    database.write_bytes(b"{}\n" * 2 + LINE + b'{"v":2}\n' * 3)
    assert len(read_records(database).lines) == 1


def read_within(database: Path, room: int, problem: str) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with pytest.raises(DatabaseError, match=problem):
        read_records(database)


def test_a_line_of_many_values_is_no_record(database: Path):
    many = RECORD.to_json() | {"result": {"seconds": [1] * 20_000, "error": None}}
    long = RECORD.to_json() | {"time": "x" * 100_000}
    lines = [json.dumps(each, separators=(",", ":")).encode() for each in (many, long)]
    database.write_bytes(b"\n".join(lines) + b"\n" + LINE)
    contents = read_records(database)
    assert [each.reason for each in contents.skipped] == [
        "20000 repeats, more than 1000",
        f"a line of {len(lines[1])} bytes, of which a record has far fewer",
    ]
    assert [entry.line for entry in contents.lines] == [3]


def test_files_left_by_a_killed_replacement_do_no_harm(database: Path):
    database.write_bytes(LINE)
    database.with_name("records.jsonl.new").write_bytes(LINE * 9)
    replace_contents(database, LINE * 2)
    assert database.read_bytes() == LINE * 2


def test_replacing_keeps_the_mode_and_syncs_a_whole_file(database: Path):
    database.write_bytes(LINE)
    database.chmod(0o640)
    with database.open("rb") as reader:
        replace_contents(database, LINE * 3)
        assert reader.read() == LINE
    assert database.read_bytes() == LINE * 3
    assert database.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in database.parent.iterdir()] == ["records.jsonl"]


def test_only_regular_files_are_replaced(database: Path):
    os.mkfifo(database)
    with pytest.raises(DatabaseError, match="it is a pipe, not a file"), locked(database) as real:
        replace_contents(real, LINE)
    assert database.is_fifo()
    folder = database.parent
    with pytest.raises(DatabaseError, match="it is a folder, not a file"), locked(folder) as real:
        replace_contents(real, LINE)


def test_a_read_only_file_is_not_replaced(database: Path, monkeypatch: pytest.MonkeyPatch):
    database.write_bytes(LINE)
    # The superuser may write anything.
    monkeypatch.setattr(os, "access", lambda path, mode: path != database)
    with (
        pytest.raises(DatabaseError, match="Permission denied; make it writable"),
        locked(database) as real,
    ):
        replace_contents(real, LINE * 2)
    assert database.read_bytes() == LINE


def test_a_file_other_than_the_database_is_named_if_the_file_system_refuses_it(database: Path):
    database.with_name("records.jsonl.lock").mkdir()
    with pytest.raises(DatabaseError) as caught:
        append_lines(database, [LINE])
    assert str(caught.value) == (
        f"cannot write tuning database {database}: Is a directory: {database}.lock; "
        "mend that or pass another file with databases="
    )


def test_a_name_that_is_too_long(tmp_path: Path):
    with pytest.raises(DatabaseError, match=r"cannot read .*: File name too long"):
        open_store(tmp_path / ("a" * 300))


def test_a_reason_is_short_however_long_the_line(database: Path):
    database.write_bytes(LINE.replace(b"conv2d_direct", b"x" * 10_000))
    (skipped,) = read_records(database).skipped
    assert len(skipped.reason) == record_file.MAX_REASON
    assert skipped.reason.startswith("unknown template 'xxx")


def replace_beyond_limit(database: Path) -> None:
    refused = pytest.raises(DatabaseError, match="File too large; make room")
    with files_up_to(2 * len(LINE)), refused, locked(database) as real:
        replace_contents(real, LINE * 3)


def test_replacing_on_a_full_disk_changes_nothing(database: Path):
    database.write_bytes(LINE)
    assert in_child(replace_beyond_limit, database) == 0
    assert database.read_bytes() == LINE
    assert sorted(path.name for path in database.parent.iterdir()) == [
        "records.jsonl",
        "records.jsonl.lock",
    ]


def test_reading_reports_its_progress(database: Path):
    database.write_bytes(LINE * 2500)
    seen: list[tuple[Path, int, int]] = []
    contents = read_records(database, lambda *progress: seen.append(progress))
    assert len(contents.lines) == 2500
    assert seen == [(database, 1000, 2501), (database, 2000, 2501)]


def test_an_unexpected_error_is_named(database: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(path: Path) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(record_file, "_open_for_append", fails)
    with pytest.raises(DatabaseError, match="Input/output error; mend that or pass another file"):
        append_lines(database, [LINE])
