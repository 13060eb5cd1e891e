"""The C program refuses wrong files as the command line does."""

import json
import os
import subprocess

import needs
import pytest
from forgery import forge_header

from neocpu.cli.main import main
from neocpu.foundation.instruction_sets import KNOWN_FEATURES, host_features


@pytest.fixture
def refused(run, capfd):
    """Have both refuse a file; return the C program's message."""

    def check(path, code=8):
        done = run(path)
        assert done.returncode == code, done.stderr
        capfd.readouterr()
        assert main(["run", str(path)]) == code
        (line,) = done.stderr.splitlines()
        assert line.startswith("neocpu_run: error: ")
        assert capfd.readouterr().err == line.replace("neocpu_run", "neocpu", 1) + "\n"
        assert path.name in line
        return line

    return check


def fields_of(toy):
    return json.loads(toy.header.encode())


def test_missing_empty_and_no_file(refused, tmp_path):
    assert "No such file" in refused(tmp_path / "none.so")
    empty = tmp_path / "empty.so"
    empty.touch()
    assert "is empty" in refused(empty)
    assert "it is a folder" in refused(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "a pipe or device" in refused(fifo)


def test_missing_instruction_sets_are_named(refused, linear, tmp_path):
    fields = {**fields_of(linear), "isa_features": ["avx4096", "fma7"]}
    path = forge_header(linear.path, tmp_path / "wide.so", fields)
    assert "this host lacks avx4096, fma7" in refused(path, 5)


def test_both_agree_on_each_instruction_set(run, linear, tmp_path):
    for feature in sorted(KNOWN_FEATURES):
        fields = {**fields_of(linear), "isa_features": [feature]}
        done = run(forge_header(linear.path, tmp_path / "one.so", fields), "--threads", 1)
        assert done.returncode == (0 if feature in host_features() else 5), done.stderr


@needs.machine("x86_64")
@pytest.mark.parametrize(("cpu", "code"), [("Nehalem", 5), ("Haswell", 0)])
def test_what_an_emulated_cpu_lacks(built, linear, tmp_path, cpu, code):
    fields = {**fields_of(linear), "isa_features": ["sse4.2", "avx2", "fma"]}
    path = forge_header(linear.path, tmp_path / "avx2.so", fields)
    emulator = needs.program("qemu-x86_64-static")
    program = built.folder / "neocpu_run"
    command = [emulator, "-cpu", cpu, program, path, "--threads", "1"]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("this host lacks avx2, fma" in done.stderr) == (code == 5)


def test_replaced_while_it_is_open(linear, built, tmp_path):
    """The loaded model does not change: its code is a copy, its weights are mapped."""
    path = tmp_path / "model.so"
    path.write_bytes(linear.path.read_bytes())
    done = built.run("neocpu_run", path, "--repeat", 3)
    assert done.returncode == 0
    other = tmp_path / "other.so"
    other.write_bytes(b"something else")
    other.rename(path)
    assert built.run("neocpu_run", path).returncode == 8


def test_a_name_with_all_that_json_allows(run, linear, tmp_path):
    name = 'mod\u00e8le "\u4e2d" \U0001f600 \\ /'
    for escaped in (True, False):
        text = json.dumps({**fields_of(linear), "name": name}, ensure_ascii=escaped)
        path = forge_header(linear.path, tmp_path / "name.so", text.encode())
        assert run(path).stdout.splitlines()[0] == name
