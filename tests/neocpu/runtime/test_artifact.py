"""Reading an artifact, and every way in which a file can be wrong."""

import json
import os
import struct
from dataclasses import replace

import numpy as np
import pytest
from forgery import checked_header, forge, forge_header, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_plans import small_operator, small_plan

from neocpu.building.elf import read_elf
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, TargetError
from neocpu.runtime.artifact import read_header
from neocpu.runtime.header import (
    DIGEST_SECTION,
    FORMAT,
    HEADER_SECTION,
    SIZED_FORMAT,
    WEIGHTS_SECTION,
    ArtifactHeader,
)
from neocpu.runtime.module import load

HOST = os.uname().machine
E_MACHINE = 18  # offset of e_machine in the ELF header


def test_header_comes_back_as_written(linear, two_way):
    for toy in (linear, two_way):
        assert checked_header(toy.path) == toy.header
        assert ArtifactHeader.from_json(json.loads(toy.header.encode())) == toy.header
    assert [w.shape for w in linear.header.weights] == [(64, 33), (33,)]
    assert linear.header.plan == small_plan(ops=(small_operator("dense_0", workload="µ"),))


def test_empty_file(tmp_path):
    path = tmp_path / "empty.so"
    path.touch()
    assert "is empty" in refused(path)


@pytest.mark.parametrize("content", [b"\x7f", b"hello, world" * 100, b"\x08\x07\x12\x07pytorch"])
def test_not_elf(tmp_path, content):
    for name, said in (
        ("net.so", "compile the model again"),
        ("net.onnx", "compile the model first"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        message = refused(path)
        assert "not an ELF file" in message
        assert said in message


def test_32_bit_elf(tmp_path):
    path = tmp_path / "small.so"
    path.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(100))
    assert "64-bit" in refused(path)


def test_foreign_shared_library():
    path = np._core._multiarray_umath.__file__
    assert "not a neocpu artifact" in refused(path)


def test_truncated_anywhere(linear, tmp_path):
    data = linear.path.read_bytes()
    path = tmp_path / "short.so"
    for length in sorted({1, 4, 16, 63, 64, 65, *range(100, len(data), 997), len(data) - 1}):
        path.write_bytes(data[:length])
        refused(path)


def test_bytes_added(linear, tmp_path):
    path = tmp_path / "long.so"
    path.write_bytes(linear.path.read_bytes() + b"\0")
    assert "at its end" in refused(path)


@settings(
    derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_one_changed_byte_anywhere_is_noticed(linear, tmp_path, data):
    content = bytearray(linear.path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "flipped.so"
    path.write_bytes(content)
    refused(path, by=checked_header)


def test_other_format_version(linear, tmp_path):
    path = tmp_path / "future.so"
    header = replace(linear.header, format=SIZED_FORMAT + 1)
    write_artifact(linear.built, linear.weights, header, path)
    reads = f"this neocpu reads formats {FORMAT} to {SIZED_FORMAT}"
    assert f"has artifact format {SIZED_FORMAT + 1}, {reads}" in refused(path)


def test_header_and_code_of_different_machines(linear, tmp_path):
    def edit(data):
        struct.pack_into("<H", data, E_MACHINE, 183 if linear.header.machine == "x86_64" else 62)

    assert "disagree on the machine" in refused(forge(linear.path, tmp_path / "a.so", edit))


@pytest.mark.parametrize(("machine", "code"), [("x86_64", 62), ("aarch64", 183)])
def test_artifact_for_another_machine_is_read_but_not_loaded(linear, tmp_path, machine, code):
    def edit(data):
        struct.pack_into("<H", data, E_MACHINE, code)

    fields = {**linear.header.to_json(), "machine": machine}
    path = forge(forge_header(linear.path, tmp_path / "a.so", fields), tmp_path / "b.so", edit)
    assert read_header(path).machine == machine
    if machine != HOST:
        said = f"is compiled for {machine} (llvm), this host is {HOST}: compile the model again"
        assert said in refused(path, TargetError)


def test_missing_instruction_set_is_named(linear, tmp_path):
    path = tmp_path / "wide.so"
    header = replace(linear.header, isa_features=("sse2", "avx4096", "fma7"), target="llvm -x")
    write_artifact(linear.built, linear.weights, header, path)
    message = refused(path, TargetError)
    assert "this host lacks" in message
    assert "avx4096, fma7" in message


def test_damaged_weights_are_found_only_when_asked(linear, tmp_path):
    data = bytearray(linear.path.read_bytes())
    section = read_elf(memoryview(data)).find(WEIGHTS_SECTION)
    data[section.offset + 3] ^= 0x40
    path = tmp_path / "weights.so"
    path.write_bytes(data)
    with load(path) as module, pytest.raises(ArtifactError, match="the weights are damaged"):
        module.warmup(1)
    with load(path, verify=False) as module:
        module.warmup(1)


def test_sections_are_what_binutils_sees(linear, tmp_path, binutils):
    dump = tmp_path / "header.json"
    binutils("objcopy", "--dump-section", f"{HEADER_SECTION}={dump}", linear.path, "/dev/null")
    assert ArtifactHeader.from_json(json.loads(dump.read_text())) == linear.header
    listing = binutils("readelf", "-SW", linear.path)
    assert "Warning" not in listing
    sections = read_elf(memoryview(linear.path.read_bytes())).sections
    rows = {
        line.split("]")[1].split()[0]: line for line in listing.splitlines() if " PROGBITS" in line
    }
    for name in (".text", WEIGHTS_SECTION, HEADER_SECTION, DIGEST_SECTION):
        section = next(s for s in sections if s.name == name)
        assert f" {section.offset:06x} {section.size:06x} " in rows[name]
