"""A cache in a folder: found again, bounded, checked for damage, never an obstacle."""

import os
import subprocess
import sys

import pytest

from neocpu.foundation.file_cache import FileCache


@pytest.fixture(name="folder")
def _folder(tmp_path):
    return tmp_path / "above" / "kept"


def test_entries_are_found_by_another_process(folder):
    FileCache(folder, 1 << 20).put("a", b"first")
    script = (
        "import sys; from pathlib import Path; from neocpu.foundation.file_cache import FileCache;"
        "cache = FileCache(Path(sys.argv[1]), 1 << 20);"
        "assert cache.get('a') == b'first'; cache.put('b', bytes(7))"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    cache = FileCache(folder, 1 << 20)
    assert cache.get("b") == bytes(7)
    assert cache.get("c") is None
    assert cache.size()[0] == 2
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_not_there_is_not_made_by_looking(folder):
    cache = FileCache(folder, 1 << 20)
    assert cache.get("a") is None
    assert not folder.exists()
    assert cache.size() == (0, 0)
    cache.put("a", b"x")
    assert cache.get("a") == b"x"


@pytest.mark.parametrize(
    "spoil", [lambda d: d[:-1], lambda d: b"", lambda d: d[:40] + b"!" + d[41:]]
)
def test_a_damaged_entry_is_not_found(folder, spoil, caplog):
    cache = FileCache(folder, 1 << 20)
    cache.put("a", bytes(100))
    path = cache.path("a")
    path.write_bytes(spoil(path.read_bytes()))
    assert cache.get("a") is None
    assert len(caplog.messages) == (path.exists() is False)
    cache.put("a", b"new")
    assert FileCache(folder, 1 << 20).get("a") == b"new"


def test_an_entry_under_another_name_is_not_found(folder):
    cache = FileCache(folder, 1 << 20)
    cache.put("a", b"x")
    cache.path("a").rename(cache.path("b"))
    assert cache.get("b") is None


def test_the_least_recently_used_entry_is_deleted_first(folder):
    cache = FileCache(folder, 1000)
    for number in range(9):
        cache.put(str(number), bytes(100))
        os.utime(cache.path(str(number)), (number, number))
    assert cache.get("0") == bytes(100)  # used now
    cache.trim()
    assert cache.path("0").exists()
    assert not cache.path("1").exists()
    assert not cache.path("2").exists()
    assert 0 < cache.size()[1] <= 750


def test_the_cache_counts_and_deletes_only_its_own_files(folder):
    cache = FileCache(folder, 300)
    cache.put("a", bytes(200))
    elsewhere = folder.parent / "elsewhere"
    strangers = [folder / name for name in ("notes.txt", "ab" * 31, "AB" * 32, ".neocpu-tmp-1")]
    for path in (*strangers, elsewhere):
        path.write_bytes(bytes(1000))
    (folder / ("cd" * 32)).symlink_to(elsewhere)
    (folder / ("ef" * 32)).mkdir()
    left = folder / f".neocpu-{'0' * 16}"
    left.write_bytes(bytes(10))
    for path in (*strangers, left):
        os.utime(path, (1, 1))
    cache.trim()
    assert cache.size() == (2, cache.path("a").stat().st_size + 10)
    cache.put("b", bytes(200))
    cache.trim()
    assert not left.exists()
    assert cache.size()[1] <= 300
    assert all(path.stat().st_size == 1000 for path in (*strangers, elsewhere))
    assert (folder / ("cd" * 32)).is_symlink()
    assert (folder / ("ef" * 32)).is_dir()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(folder, mode, caplog):
    FileCache(folder, 1 << 20).put("a", b"x")
    folder.chmod(mode)
    cache = FileCache(folder, 1 << 20)
    assert cache.get("a") is None
    cache.put("b", b"y")
    assert not cache.path("b").exists()
    (message,) = caplog.messages
    assert message == f"{folder} is not used: others may write to it (chmod go-w)"


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch, caplog):
    FileCache(folder, 1 << 20).put("a", b"x")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    cache = FileCache(folder, 1 << 20)
    assert cache.get("a") is None
    assert "belongs to another user" in caplog.text


def test_a_disk_that_takes_nothing_is_said_once_and_may_still_be_read(folder, monkeypatch, caplog):
    cache = FileCache(folder, 1 << 20)
    cache.put("a", b"x")

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neocpu.foundation.file_cache.replacing", full)
    cache.put("b", b"y")
    cache.put("c", b"z")
    assert cache.get("a") == b"x"
    (message,) = caplog.messages
    assert message.startswith("nothing is kept for the next time: ")
    assert "No space left on device" in message


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = FileCache(tmp_path / "file" / "kept", 1 << 20)
    assert cache.get("a") is None
    cache.put("a", b"x")
    cache.put("a", b"x")
    assert cache.get("a") is None
    (message,) = caplog.messages
    assert "cannot make the folder" in message
    assert "\n" not in message
