"""Writing artifacts: all or nothing, and errors that name the fix."""

import errno
import os
import signal
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from file_limits import files_up_to
from forgery import without_calls

from neocpu.building import link
from neocpu.building.elf import read_elf
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, UnsupportedError, UsageError
from neocpu.foundation.files import check_destination
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.header import WEIGHT_ALIGN, WEIGHTS_SECTION
from neocpu.runtime.header_parts import Placement
from neocpu.runtime.module import load
from tests.neocpu.conftest import build_module

OTHER = "aarch64" if os.uname().machine == "x86_64" else "x86_64"


def write(toy, path, **options):
    return write_artifact(toy.built, toy.weights, toy.header, path, **options)


def refused(kind, call) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_written_header_places_every_weight(linear, tmp_path):
    bare = replace(linear.header, weights=())
    header = write_artifact(linear.built, linear.weights, bare, tmp_path / "a.so")
    assert header == linear.header
    assert [(w.offset, w.dtype, w.shape) for w in header.weights] == [
        (0, "float32", (64, 33)),
        (-(-64 * 33 * 4 // WEIGHT_ALIGN) * WEIGHT_ALIGN, "float32", (33,)),
    ]
    assert os.listdir(tmp_path) == ["a.so"]


def test_weights_of_any_kind(linear, tmp_path):
    weights = [
        np.arange(24, dtype="float32").reshape(2, 3, 4).transpose(2, 0, 1),
        np.float16([[1.5]]),
        np.array(7, "int64"),
        np.zeros((0, 4), "float32"),
        np.array([True, False]),
        np.arange(5, dtype="int8"),
    ]
    path = tmp_path / "a.so"
    write_artifact(without_calls(linear, len(weights)), weights, linear.header, path)
    file = ArtifactFile(path)
    file.check_weights()
    (variant,) = file.variants
    data = path.read_bytes()[variant.code_bytes :][: variant.weight_bytes]
    for placement, weight in zip(variant.header.weights, weights, strict=True):
        array = np.ndarray(placement.shape, placement.dtype, data, placement.offset)
        assert array.dtype == weight.dtype
        np.testing.assert_array_equal(array, weight)


@pytest.mark.parametrize("field", ["outputs", "activations"])
def test_dtypes_that_a_header_cannot_name(linear, tmp_path, field):
    header, built = linear.header, linear.built
    if field == "outputs":
        header = replace(header, outputs=(TensorSpec("y", "float8_e4m3fn", (4, 33)),))
    else:
        planned = replace(built.planned, activations=(Placement(0, "float8_e4m3fn", (4,)),))
        built = replace(built, planned=planned)
    path = tmp_path / "a.so"
    message = refused(UnsupportedError, lambda: write_artifact(built, linear.weights, header, path))
    assert "is of dtype float8_e4m3fn" in message
    assert os.listdir(tmp_path) == []


def test_an_artifact_without_weights_links(tmp_path, linear):
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(x)
        builder.emit_func_output(y)
    header = replace(linear.header, weights=(), outputs=linear.header.inputs)
    write_artifact(build_module(builder.get()), [], header, tmp_path / "identity.so")
    (value,) = linear.inputs()
    with load(tmp_path / "identity.so") as module:
        np.testing.assert_array_equal(module(value), value)


@pytest.mark.parametrize(("machine", "page"), [("x86_64", 4096), ("aarch64", 65536)])
def test_weights_start_on_the_largest_page(linear, tmp_path, machine, page):
    path = tmp_path / "a.so"
    header = replace(linear.header, machine=machine)
    write_artifact(linear.built, linear.weights, header, path, cxx="g++")
    section = read_elf(memoryview(path.read_bytes())).find(WEIGHTS_SECTION)
    assert section.offset % page == 0
    assert section.align == page


def test_an_older_file_is_replaced_with_the_umask_honoured(linear, tmp_path):
    path = tmp_path / "a.so"
    path.write_text("older")
    mask = os.umask(0o027)
    try:
        write(linear, path)
    finally:
        os.umask(mask)
    assert read_header(path) == linear.header
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert os.listdir(tmp_path) == ["a.so"]


def test_missing_folder(linear, tmp_path):
    path = tmp_path / "none" / "a.so"
    message = refused(UsageError, lambda: write(linear, path))
    assert (
        message == f"cannot write {path}: there is no folder {path.parent}; create it or change -o"
    )
    assert refused(UsageError, lambda: check_destination(path)) == message


def test_a_folder_that_takes_no_files_is_not_said_to_be_missing(linear):
    message = refused(UsageError, lambda: write(linear, Path("/proc/a.so")))
    why = "Permission denied" if os.geteuid() else "No such file or directory"
    assert message == f"cannot write /proc/a.so: {why}; choose another -o"


def test_unwritable_folder(linear, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):  # root writes anywhere but into the kernel's own folders
        folder = type(folder)("/sys/kernel")
    path = folder / "a.so"
    message = refused(UsageError, lambda: write(linear, path))
    assert message.startswith(f"cannot write {path}: ")
    assert message.endswith("choose another -o")
    assert refused(UsageError, lambda: check_destination(path)) == message


def test_destination_is_a_folder(linear, tmp_path):
    assert "is a folder" in refused(UsageError, lambda: check_destination(tmp_path))
    refused(UsageError, lambda: write(linear, tmp_path))
    assert os.listdir(tmp_path) == []


def test_parent_is_a_file(linear, tmp_path):
    (tmp_path / "file").touch()
    assert "cannot write" in refused(UsageError, lambda: write(linear, tmp_path / "file" / "a.so"))


def test_destination_that_works_leaves_no_trace(tmp_path):
    check_destination(tmp_path / "a.so")
    assert os.listdir(tmp_path) == []


def test_write_that_fails_halfway_keeps_the_older_file(linear, tmp_path):
    path = tmp_path / "a.so"
    path.write_text("older")
    weights = [*linear.weights, np.zeros(4 << 20, "uint8")]
    with files_up_to(2 << 20):
        message = refused(
            ArtifactError, lambda: write_artifact(linear.built, weights, linear.header, path)
        )
    assert message.startswith(f"cannot write {path}: File too large (4.2 MB needed)")
    assert path.read_text() == "older"
    assert os.listdir(tmp_path) == ["a.so"]


@pytest.mark.parametrize("step", ["replace", "link"])
def test_full_disk_leaves_nothing_behind(linear, tmp_path, monkeypatch, step):
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(link.os, step, fail)
    message = refused(ArtifactError, lambda: write(linear, tmp_path / "a.so"))
    assert "No space left on device" in message
    assert "free space or choose another -o" in message
    assert os.listdir(tmp_path) == []


def test_interrupt_leaves_nothing_behind(linear, tmp_path, monkeypatch):
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(link.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(linear, tmp_path / "a.so")
    assert os.listdir(tmp_path) == []


def test_interrupt_when_the_compiler_has_just_ended(linear, tmp_path, monkeypatch):
    communicate = subprocess.Popen.communicate

    def interrupt(process: subprocess.Popen[str]) -> None:
        communicate(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(link.subprocess.Popen, "communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(linear, tmp_path / "a.so")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("moment", ["starts", "runs"])
def test_interrupted_no_compiler_is_left(linear, tmp_path, monkeypatch, moment):
    compiler, start = tmp_path / "c++", subprocess.Popen
    started: list[subprocess.Popen[str]] = []
    then = "kill -INT $PPID" if moment == "runs" else ""
    compiler.write_text(f"#!/bin/sh\nsleep 60 &\n{then}\nwait\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        started.append(process := start(*arguments, **options))
        if moment == "starts":
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(link.subprocess, "Popen", interrupted)
    before = psutil.Process().children()
    with pytest.raises(KeyboardInterrupt):
        write(linear, tmp_path / "a.so")
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert psutil.Process().children() == before
    assert os.listdir(tmp_path) == ["c++"]


def test_no_compiler(linear, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    message = refused(UsageError, lambda: write(linear, tmp_path / "a.so"))
    assert "install g++" in message
    assert os.listdir(tmp_path) == []


def test_named_compiler_that_does_not_exist(linear, tmp_path):
    message = refused(UsageError, lambda: write(linear, tmp_path / "a.so", cxx="no-such-c++"))
    assert "'no-such-c++' not found" in message


def test_compiler_that_fails(linear, tmp_path):
    message = refused(ArtifactError, lambda: write(linear, tmp_path / "a.so", cxx="false"))
    assert "linking with 'false' failed" in message
    message = refused(ArtifactError, lambda: write(linear, tmp_path / "a.so", cxx="g++ --nonsense"))
    assert "--nonsense" in message
    assert os.listdir(tmp_path) == []


def test_full_temporary_folder(linear, tmp_path, monkeypatch):
    monkeypatch.setattr(link.tempfile, "tempdir", str(tmp_path / "none"))
    message = refused(ArtifactError, lambda: write(linear, tmp_path / "a.so"))
    assert "cannot work in the temporary folder" in message
    assert "TMPDIR" in message
