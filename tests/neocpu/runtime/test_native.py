"""Finding TVM's runtime libraries."""

import importlib.metadata
import json
import os

import pytest

from neocpu.foundation.errors import TargetError
from neocpu.runtime import native
from neocpu.runtime.native import (
    FFI_LIBRARY,
    RUNTIME_LIBRARY,
    VERSIONS,
    find_libraries,
    read_libraries,
)

FACTS = {"machine": os.uname().machine, "apache-tvm": "1.2", "apache-tvm-ffi": "0.3"}


@pytest.fixture
def folder(tmp_path):
    for name in (FFI_LIBRARY, RUNTIME_LIBRARY):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / VERSIONS).write_text(json.dumps(FACTS))
    return tmp_path


@pytest.fixture
def no_wheels(monkeypatch):
    monkeypatch.setattr(native, "_package", lambda name: None)


def test_those_of_the_wheels_with_their_versions():
    libraries = find_libraries()
    assert libraries.ffi.name == FFI_LIBRARY
    assert libraries.runtime.name == RUNTIME_LIBRARY
    assert libraries.ffi.is_file()
    assert libraries.runtime.is_file()
    assert libraries.tvm_version == importlib.metadata.version("apache-tvm")
    assert libraries.ffi_version == importlib.metadata.version("apache-tvm-ffi")
    assert libraries.machine == os.uname().machine


def test_an_unusual_installation_is_asked_for_its_version(monkeypatch):
    monkeypatch.setattr(native.os, "listdir", lambda folder: [])
    assert find_libraries().tvm_version == importlib.metadata.version("apache-tvm")


def test_bundled_ones_are_for_where_there_are_no_wheels(folder, monkeypatch, no_wheels):
    monkeypatch.setattr(native, "BUNDLED", folder)
    libraries = find_libraries()
    assert libraries == read_libraries(folder)
    assert libraries.ffi == folder / FFI_LIBRARY
    assert (libraries.tvm_version, libraries.ffi_version) == ("1.2", "0.3")


def test_none_at_all(tmp_path, monkeypatch, no_wheels):
    monkeypatch.setattr(native, "BUNDLED", tmp_path)
    with pytest.raises(TargetError, match="not installed here: pip install neocpu, or neocpu-run"):
        find_libraries()


def test_bundled_ones_of_another_machine(folder, monkeypatch, no_wheels):
    (folder / VERSIONS).write_text(json.dumps({**FACTS, "machine": "riscv64"}))
    monkeypatch.setattr(native, "BUNDLED", folder)
    assert read_libraries(folder).machine == "riscv64"
    with pytest.raises(TargetError, match="are for riscv64, this host is "):
        find_libraries()


@pytest.mark.parametrize("name", [FFI_LIBRARY, RUNTIME_LIBRARY])
def test_a_folder_without_one_of_them(folder, name):
    (folder / name).unlink()
    with pytest.raises(TargetError, match=f"has no {name}: name a folder with"):
        read_libraries(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": 1}', json.dumps(FACTS)[:-3]])
def test_a_folder_whose_versions_cannot_be_read(folder, text):
    (folder / VERSIONS).write_text(text)
    with pytest.raises(TargetError, match=r"cannot read .*versions\.json"):
        read_libraries(folder)
