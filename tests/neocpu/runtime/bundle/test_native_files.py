"""The C program refuses wrong files as the command line does."""

import copy
import json
import os
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import needs
import numpy as np
import pytest
from forgery import forge, forge_header

from neocpu.building.elf import read_elf
from neocpu.cli.main import main
from neocpu.foundation.instruction_sets import KNOWN_FEATURES, host_features
from neocpu.runtime.header import FORMAT, WEIGHTS_SECTION


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


def edited(linear, path, edit):
    data = bytearray(linear.path.read_bytes())
    edit(data)
    path.write_bytes(data)
    return path


def test_missing_empty_and_no_file(refused, tmp_path):
    assert "No such file" in refused(tmp_path / "none.so")
    empty = tmp_path / "empty.so"
    empty.touch()
    assert "is empty" in refused(empty)
    assert "it is a folder" in refused(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "a pipe or device" in refused(fifo)


@pytest.mark.parametrize("content", [b"\x7f", b"hello, world" * 100, b"NEOCPU-FAT 2\n" * 9])
def test_not_an_artifact(refused, tmp_path, content):
    path = tmp_path / "model.so"
    path.write_bytes(content)
    refused(path)


def test_truncated_anywhere(run, linear, tmp_path):
    data = linear.path.read_bytes()
    path = tmp_path / "short.so"
    for length in sorted({1, 4, 16, 63, 64, 65, *range(100, len(data), 2997), len(data) - 1}):
        path.write_bytes(data[:length])
        done = run(path)
        assert (done.returncode, done.stdout) == (8, ""), done.stderr


def test_bits_flipped(run, refused, linear, tmp_path):
    size = linear.path.stat().st_size
    for where in np.random.default_rng(3).integers(0, size, 40):

        def edit(data, where=where):
            data[where] ^= 1 << int(where) % 8

        path = edited(linear, tmp_path / "flipped.so", edit)
        assert run(path, "--threads", 1).returncode == 8
    refused(path)


def test_damaged_weights(refused, linear, tmp_path):
    def edit(data):
        data[read_elf(memoryview(data)).find(WEIGHTS_SECTION).offset + 3] ^= 0x40

    assert "the weights are damaged" in refused(edited(linear, tmp_path / "weights.so", edit))


def test_a_foreign_library_is_not_loaded(refused, tmp_path):
    source, path, proof = tmp_path / "a.c", tmp_path / "a.so", tmp_path / "proof"
    source.write_text(
        "#include <stdio.h>\n"
        f'__attribute__((constructor)) static void run(void) {{ fopen("{proof}", "w"); }}\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
    assert "not a neocpu artifact" in refused(path)
    assert not proof.exists()


def test_other_machine(refused, linear, tmp_path):
    other, code = {"x86_64": ("aarch64", 183), "aarch64": ("x86_64", 62)}[linear.header.machine]

    def change_code(data):
        struct.pack_into("<H", data, 18, code)

    path = forge(linear.path, tmp_path / "wrong.so", change_code)
    assert "disagree on the machine" in refused(path)
    path = forge_header(path, tmp_path / "other.so", {**fields_of(linear), "machine": other})
    message = refused(path, 5)
    assert f"is compiled for {other} (llvm), this host is {linear.header.machine}" in message


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


def test_more_memory_than_there_is(refused, linear, tmp_path):
    fields = {**fields_of(linear), "arena_bytes": 1 << 40}
    path = forge_header(linear.path, tmp_path / "vast.so", fields)
    assert "its tensors take" in refused(path, 5)


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


def field(*place: Any) -> Callable[[Any, Any], None]:
    """Return a function that sets a value at a place of a header, or removes it."""

    def put(fields, value):
        for key in place[:-1]:
            fields = fields[key]
        if value is None:
            del fields[place[-1]]
        else:
            fields[place[-1]] = value

    return put


@pytest.mark.parametrize(
    ("put", "values"),
    [
        (field("format"), [FORMAT + 1, None, "3", FORMAT + 0.5, 10**30]),
        (field("name"), [None, 7, ["a"]]),
        (field("machine"), ["riscv64", 62]),
        (field("versions", "apache-tvm"), [None, 1]),
        (field("isa_features"), [None, "avx2", [1]]),
        (field("inputs"), [{}, None, [[]], ["x"]]),
        (field("inputs", 0, "name"), [None, 7]),
        (field("inputs", 0, "dtype"), ["float23", "<f4", 1, None]),
        (field("inputs", 0, "shape"), [[4, -64], [4, 6.5], ["4"], [[4]], {}, [1] * 40, None]),
        (field("inputs", 0, "shape"), [[10**18, 10**18], [1 << 31] * 4, [1 << 64]]),
        (field("inputs", 0, "shape"), [[0, 1 << 37, 1 << 37]]),
        (field("inputs", 0, "bounded"), [1, "yes"]),
        (field("threads"), [0, 1025, "2", None]),
        (field("outputs"), ["y", None]),
        (field("row_counts"), [[1, 1], [7], "x", None]),
        (field("weights", 0), [[], [0, "float32"], [0, "float32", [64, 33], 1], 5]),
        (field("weights", 0, 0), [-128, 64, 10**12, 1.5, 1 << 63]),
        (field("weights", 1, 2), [[10**9], [-33], None]),
        (field("activations"), [[[0, "float32", [1]]], 1, None]),
        (field("arena_bytes"), [-1, 1 << 60, 0.5, "0", None]),
    ],
)
def test_malformed_headers(refused, linear, tmp_path, put, values):
    for value in values:
        fields = copy.deepcopy(fields_of(linear))
        put(fields, value)
        refused(forge_header(linear.path, tmp_path / "bad.so", fields))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"nul",
        b"\xff\xfe",
        b'{"format":3,"format":3',
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"format": NaN}',
        b'{"format": 3} {}',
        b'{"format": "\\ud800"}',
        b'{"format":3,"format":3}',
    ],
)
def test_headers_that_are_no_json(refused, linear, tmp_path, text):
    assert "malformed header" in refused(forge_header(linear.path, tmp_path / "bad.so", text))


def test_a_name_with_all_that_json_allows(run, linear, tmp_path):
    name = 'mod\u00e8le "\u4e2d" \U0001f600 \\ /'
    for escaped in (True, False):
        text = json.dumps({**fields_of(linear), "name": name}, ensure_ascii=escaped)
        path = forge_header(linear.path, tmp_path / "name.so", text.encode())
        assert run(path).stdout.splitlines()[0] == name
