"""The runtime's library for a platform, and its real requirements."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import needs
import pytest

from wheels.platforms import Platform, compile_library, needs_of

MACHINE = os.uname().machine
PLATFORMS = [
    f"{system}_{machine}"
    for system in ("manylinux_2_17", "manylinux_2_28", "musllinux_1_2")
    for machine in ("x86_64", "aarch64")
]
zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="needs ziglang (pip install ziglang)"
)


def libraries_of(path: Path) -> set[str]:
    """Return the names of the shared objects that a library is loaded with."""
    listing = subprocess.check_output([needs.program("readelf"), "-dW", path], text=True)
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", listing))


def glibc_of(path: Path) -> int:
    """Return the minor version of the newest glibc whose symbols a library needs."""
    listing = subprocess.check_output([needs.program("readelf"), "-VW", path], text=True)
    return max(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", listing))


@pytest.mark.parametrize(
    "machine", [MACHINE, pytest.param("aarch64", marks=needs.programs("aarch64-linux-gnu-gcc"))]
)
@needs.one_in(2)
def test_the_systems_compiler_makes_a_wheel_for_a_machine(machine, tmp_path):
    library = tmp_path / "libneocpu.so"
    platform = compile_library(machine, library)
    assert platform == Platform("manylinux_2", max(17, glibc_of(library)), machine)
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[machine]
    assert libraries_of(library) <= {"libc.so.6", "libm.so.6", "libpthread.so.0", loader}


@zig
@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
def test_zig_makes_a_wheel_for_a_c_library(platform, tmp_path):
    library = tmp_path / "libneocpu.so"
    assert str(compile_library(platform, library)) == platform
    if "musl" in platform:
        assert libraries_of(library) == {"libc.so"}
        assert str(needs_of(library)) == platform
    else:
        assert glibc_of(library) <= int(platform.split("_")[2])


@pytest.mark.parametrize(
    ("asked", "compiler", "message"),
    [
        ("riscv64", None, "no platform 'riscv64': name a machine, x86_64 or aarch64, or such as"),
        (f"manylinux_2_17_{MACHINE}", "cc", rf"what cc compiles is for manylinux_2_\d+_{MACHINE},"),
        (f"musllinux_1_2_{MACHINE}", "cc", rf"_{MACHINE}, not for musllinux_1_2_{MACHINE}"),
        ("aarch64" if MACHINE == "x86_64" else "x86_64", "cc", f"is for .*{MACHINE}, not for"),
        (MACHINE, "no-such-compiler", "no-such-compiler cannot be run"),
    ],
)
@needs.one_in(3)
def test_impossible_platforms_are_refused(asked, compiler, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        compile_library(asked, tmp_path / "libneocpu.so", compiler)


def test_a_platform_without_a_compiler_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("wheels.platforms.zig", lambda *_: None)
    with pytest.raises(SystemExit, match=r"no C compiler for x86_64-linux-musl: pip install"):
        compile_library("musllinux_1_2_x86_64", tmp_path / "libneocpu.so")


def test_a_wheel_runs_on_newer_systems_of_its_machine_and_c_library():
    wheel = Platform("manylinux_2", 28, "x86_64")
    assert wheel.has(Platform("manylinux_2", 17, "x86_64"))
    assert not wheel.has(Platform("manylinux_2", 35, "x86_64"))
    assert not wheel.has(Platform("musllinux_1", 2, "x86_64"))
    assert not wheel.has(Platform("manylinux_2", 17, "aarch64"))
