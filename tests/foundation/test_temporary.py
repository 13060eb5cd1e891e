"""Temporary folders: gone with their processes, however these end."""

import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from neocpu.foundation import temporary
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.temporary import PREFIX, TemporaryFolder, sweep

HOLD = """
import sys, time
from neocpu.foundation.temporary import TemporaryFolder
folder = TemporaryFolder("test")
open(folder.name + "/file", "w").close()
print(folder.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(place: Path) -> tuple[subprocess.Popen[str], Path]:
    environment = {**os.environ, "TMPDIR": str(place)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    return holder, Path(holder.stdout.readline().strip())


def test_a_folder_is_deleted_with_its_block_or_its_object(place):
    with TemporaryFolder("test") as name:
        Path(name, "file").touch()
        assert os.listdir(place) == [Path(name).name]
    folder = TemporaryFolder("test")
    folder.cleanup()
    folder.cleanup()
    folder = TemporaryFolder("test")
    del folder
    gc.collect()
    assert os.listdir(place) == []


def test_no_folder_is_made_if_no_descriptor_is_left(place):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = 1 + max(map(int, os.listdir("/proc/self/fd")))
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(place, os.O_RDONLY))
        with pytest.raises(ArtifactError, match="Too many open files"):
            TemporaryFolder("test")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)
    assert os.listdir(place) == []


def test_the_folder_of_a_killed_process_is_swept_by_the_next_process(place):
    holder, left = hold(place)
    with holder:
        assert sweep(place) == []
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert left.is_dir()
    next_one, its = hold(place)
    with next_one:
        assert os.listdir(place) == [its.name]
        next_one.kill()


def test_only_our_own_folders_are_swept(place):
    (place / f"{PREFIX}notes.txt").touch()
    (place / "neocpu-sources").mkdir()
    (place / "target").mkdir()
    (place / f"{PREFIX}link").symlink_to(place / "target")
    with TemporaryFolder("test") as name:
        assert sweep(place) == []
        assert os.path.isdir(name)
    assert len(os.listdir(place)) == 4
    (place / f"{PREFIX}dead").mkdir()
    assert sweep(place) == [place / f"{PREFIX}dead"]


def test_folders_are_made_while_others_sweep(place):
    """A folder that is created but not locked yet looks abandoned to other processes."""
    stop = threading.Event()

    def sweep_on():
        while not stop.is_set():
            sweep(place)

    sweepers = [threading.Thread(target=sweep_on) for _ in range(3)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(300):
            with TemporaryFolder("test") as name:
                Path(name, "file").write_text("kept")
                assert Path(name, "file").read_text() == "kept"
    finally:
        stop.set()
        for sweeper in sweepers:
            sweeper.join()


def test_a_fork_leaves_it_to_its_parent(place):
    folder = TemporaryFolder("test")
    child = os.fork()
    if child == 0:
        folder.cleanup()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.isdir(folder.name)
    folder.cleanup()


def test_a_missing_parent_folder_is_an_error(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    with pytest.raises(ArtifactError, match=r"/none: No such file.*TMPDIR"):
        TemporaryFolder("test")


def test_a_failure_on_a_full_disk_is_the_disk_s(place, monkeypatch):
    def fail(error):
        monkeypatch.setattr(temporary, "FULL_BYTES", 0)
        with TemporaryFolder("test"):
            monkeypatch.setattr(temporary, "FULL_BYTES", 1 << 62)
            raise error

    with pytest.raises(ArtifactError, match=f"folder {place}: No space left") as caught:
        fail(ValueError("LLVM ERROR: IO failure on output stream"))
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    with pytest.raises(ArtifactError, match="No space left"):
        TemporaryFolder("test")
    assert os.listdir(place) == []


def test_a_failure_in_a_folder_that_something_deleted(place):
    def fail():
        with TemporaryFolder("test") as name:
            os.rmdir(name)
            raise ValueError("the cause")

    before = os.listdir("/proc/self/fd")
    with pytest.raises(ValueError, match="the cause"):
        fail()
    assert os.listdir("/proc/self/fd") == before
