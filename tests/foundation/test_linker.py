"""The right compiler is selected to link for each machine."""

import os
import sys

import pytest

from neocpu.foundation import linker
from neocpu.foundation.errors import UsageError
from neocpu.foundation.linker import find_linker

OTHER = "aarch64" if os.uname().machine == "x86_64" else "x86_64"


def test_compiler_choice(monkeypatch, tmp_path):
    machine = os.uname().machine
    for name in ("g++", "aarch64-linux-gnu-g++", "x86_64-linux-gnu-g++", "clang++"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_linker(machine) == (str(tmp_path / "g++"),)
    assert find_linker(OTHER) == (str(tmp_path / f"{OTHER}-linux-gnu-g++"),)
    assert find_linker(OTHER, "clang++ --target=x") == ("clang++", "--target=x")
    monkeypatch.setenv("CXX", "clang++")
    assert find_linker(machine) == ("clang++",)
    assert find_linker(OTHER) == (str(tmp_path / f"{OTHER}-linux-gnu-g++"),)
    monkeypatch.setenv("CXX", " ")
    assert find_linker(machine) == (str(tmp_path / "g++"),)


@pytest.mark.parametrize(
    ("cxx", "message"), [("no++ -O2", r"'no\+\+' not found"), ("g++ '", "check CXX")]
)
def test_a_compiler_that_is_no_command_is_named(cxx, message):
    with pytest.raises(UsageError, match=message):
        find_linker(os.uname().machine, cxx)


def test_cross_compiler_from_ziglang_or_a_hint(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(linker.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'neocpu\[cross\]'"):
        find_linker(OTHER)
    monkeypatch.setattr(linker.importlib.util, "find_spec", lambda name: object())
    assert find_linker(OTHER)[:4] == (sys.executable, "-P", "-m", "ziglang")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("a.c:1: error: no x\nnote: y\ncollect2: error: ld returned 1", "a.c:1: error: no x"),
        ("ld: cannot find -lx\ncollect2: error: ld returned 1", "collect2: error: ld returned 1"),
        ("", "no message"),
    ],
)
def test_the_line_that_tells_why_a_compiler_failed(said, told):
    assert linker.cause(said) == told
