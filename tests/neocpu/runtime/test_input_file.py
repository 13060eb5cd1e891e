"""Files that are none, or that change while they are read."""

import errno
import os
import shutil
import subprocess
import sys
import threading

import pytest

from neocpu.foundation.errors import ArtifactError
from neocpu.runtime import input_file
from neocpu.runtime.artifact import open_artifact, open_variants, read_header
from neocpu.runtime.module import load

READS = 7
"""How often an artifact of one piece is read before its weights are mapped."""


def refused(path, match, *, by=read_header):
    with pytest.raises(ArtifactError, match=match) as caught:
        by(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("by", [read_header, open_variants, load])
def test_what_is_no_file(tmp_path, by):
    refused(tmp_path, "it is a folder", by=by)
    refused(tmp_path / "none.so", "No such file", by=by)
    refused(tmp_path / "none" / "a.so", "No such file", by=by)
    refused("/dev/zero", "pipe or device", by=by)
    refused("/dev/null", "pipe or device", by=by)
    refused("a\0b.so", "null byte", by=by)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop", "symbolic links", by=by)


@pytest.mark.timeout(20)
def test_a_pipe_nobody_writes_to_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "pipe or device")


def test_unreadable_file(linear, monkeypatch):
    def denied(*arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(input_file.os, "open", denied)  # root may read everything
    refused(linear.path, "Permission denied")


@pytest.mark.timeout(20)
def test_a_pipe_that_takes_a_files_place(linear, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    file = os.stat(linear.path)
    monkeypatch.setattr(input_file.os, "stat", lambda path: file)
    refused(tmp_path / "pipe", "pipe or device")


def test_a_path_that_leads_through_a_link(linear, tmp_path):
    (tmp_path / "link.so").symlink_to(linear.path)
    assert read_header(tmp_path / "link.so") == linear.header


def test_replaced_after_it_was_opened(linear, two_way, tmp_path):
    path = tmp_path / "a.so"
    shutil.copy(linear.path, path)
    with open_artifact(path) as artifact:
        shutil.copy(two_way.path, tmp_path / "b.so")
        os.replace(tmp_path / "b.so", path)
        artifact.verify_weights()
        assert artifact.header == linear.header
        with open(artifact.library_path(), "rb") as file:
            assert file.read() == linear.path.read_bytes()
    assert read_header(path) == two_way.header


def test_replaced_over_and_over_while_others_read(linear, two_way, tmp_path):
    path = tmp_path / "a.so"
    shutil.copy(linear.path, path)
    done = threading.Event()

    def replace():
        while not done.is_set():
            for toy in (linear, two_way):
                shutil.copy(toy.path, tmp_path / "b.so")
                os.replace(tmp_path / "b.so", path)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        names = {read_header(path, verify_weights=True).name for _ in range(100)}
    finally:
        done.set()
        thread.join()
    assert names <= {"linear", "two_way"}


@pytest.mark.parametrize("reads", range(READS + 1))
def test_cut_short_while_it_is_read(linear, tmp_path, monkeypatch, reads):
    """Cut before each of the reads and the mapping: never a signal, always the same error."""
    path = tmp_path / "a.so"
    shutil.copy(linear.path, path)
    real, left = os.pread, [reads]

    def pread(fd, size, offset):
        if left[0] == 0:
            os.truncate(path, 0)
        left[0] -= 1
        return real(fd, size, offset)

    monkeypatch.setattr(input_file.os, "pread", pread)
    if reads < READS:
        refused(path, "was cut short while it was read", by=open_artifact)
    else:
        open_artifact(path).close()
        assert left[0] == 0, f"there are more reads than {READS}"


def test_cut_short_before_it_is_mapped(linear, tmp_path, monkeypatch):
    path = tmp_path / "a.so"
    shutil.copy(linear.path, path)
    real = input_file.FilePart.map

    def map_cut(part, offset, size):
        os.truncate(path, 0)
        return real(part, offset, size)

    monkeypatch.setattr(input_file.FilePart, "map", map_cut)
    refused(path, "was cut short")


def test_a_foreign_library_is_never_loaded(tmp_path):
    """Its constructor would write a file."""
    witness = tmp_path / "witness"
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <stdio.h>\n"
        "__attribute__((constructor)) static void run(void) "
        f'{{ fclose(fopen("{witness}", "w")); }}\n'
    )
    path = tmp_path / "evil.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
    for by in (load, open_variants):
        refused(path, "not a neocpu artifact", by=by)
    assert not witness.exists()
    code = f"import ctypes; ctypes.CDLL({str(path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert witness.exists(), "the constructor does not do what it is for"


def test_descriptors_are_closed(linear, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with open_artifact(linear.path) as artifact:
            artifact.library_path()
        artifact.close()  # again
    del artifact
    (tmp_path / "bad.so").write_bytes(linear.path.read_bytes()[:-1])
    for _ in range(3):
        refused(tmp_path / "bad.so", "is damaged|not a complete")
    assert len(os.listdir("/proc/self/fd")) == before
