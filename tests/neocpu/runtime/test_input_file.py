"""Files that are none, or that change while they are read."""

import os
import shutil
import subprocess
import sys
import threading

import pytest
from forgery import checked_header

from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.module import load

MOST_READS = 20
SHEARS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
ssize_t pread(int fd, void *data, size_t size, off_t offset) {
  static int reads;
  ssize_t (*real)(int, void *, size_t, off_t) =
      (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  if (reads++ == atoi(getenv("READS")) && truncate(getenv("CUT"), 0) != 0) abort();
  return real(fd, data, size, offset);
}
"""


def refused(path, match, *, by=read_header):
    with pytest.raises(ArtifactError, match=match) as caught:
        by(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("by", [read_header, load])
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


def test_a_path_that_leads_through_a_link(linear, tmp_path):
    (tmp_path / "link.so").symlink_to(linear.path)
    assert read_header(tmp_path / "link.so") == linear.header


def test_replaced_after_it_was_opened(linear, two_way, tmp_path):
    path = tmp_path / "a.so"
    shutil.copy(linear.path, path)
    file = ArtifactFile(path)
    shutil.copy(two_way.path, tmp_path / "b.so")
    os.replace(tmp_path / "b.so", path)
    file.check_weights()
    assert file.variants[0].header == linear.header
    assert os.pread(file.fd, 1 << 30, 0) == linear.path.read_bytes()
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
        names = {checked_header(path).name for _ in range(100)}
    finally:
        done.set()
        thread.join()
    assert names <= {"linear", "two_way"}


@pytest.fixture(scope="module")
def shears(tmp_path_factory):
    """A library that empties the file $CUT before the process's read number $READS."""
    folder = tmp_path_factory.mktemp("shears")
    (folder / "shears.c").write_text(SHEARS)
    path = folder / "shears.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, folder / "shears.c"], check=True)
    return path


@pytest.mark.parametrize("call", ["ArtifactFile(path)", "load(path, 1)"])
def test_cut_short_while_it_is_read(linear, tmp_path, shears, call):
    """Cut before each of the reads: never a signal, always the same error."""
    path = tmp_path / "a.so"
    refusals = 0
    for reads in range(MOST_READS):
        shutil.copy(linear.path, path)
        code = f"import sys; from neocpu.runtime.module import load; path = {str(path)!r}\n"
        code += "from neocpu.runtime.artifact import ArtifactFile\n"
        code += f"try: kept = {call}\nexcept Exception as error: sys.exit(str(error))"
        settings = {"LD_PRELOAD": str(shears), "CUT": str(path), "READS": str(reads)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        if path.stat().st_size:
            assert done.returncode == 0, done.stderr
            break
        assert done.returncode == 1, (reads, done.returncode)
        assert "was cut short while it was read" in done.stderr
        refusals += 1
    assert 4 < refusals < MOST_READS


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
    for by in (load, read_header):
        refused(path, "not a neocpu artifact", by=by)
    assert not witness.exists()
    code = f"import ctypes; ctypes.CDLL({str(path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert witness.exists(), "the constructor does not do what it is for"


def test_descriptors_are_closed(linear, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        file = ArtifactFile(linear.path)
        assert os.fstat(file.fd).st_size == linear.path.stat().st_size
        del file
    (tmp_path / "bad.so").write_bytes(linear.path.read_bytes()[:-1])
    for _ in range(3):
        refused(tmp_path / "bad.so", "is damaged|not a complete")
    assert len(os.listdir("/proc/self/fd")) == before
