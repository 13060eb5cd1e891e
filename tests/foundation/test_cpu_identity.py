"""This host's CPU is identified by LLVM's name."""

import os

import pytest

from neocpu.foundation.machine.cpu_identity import host_cpu
from neocpu.schedules.vocabulary.target_parsing import host_target


def x86(vendor: str, family: int, model: int, stepping: int = 1, flags: str = "") -> str:
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: Some CPU\nstepping\t: {stepping}\nflags\t\t: fpu avx2 {flags}\n\n"
        "processor\t: 1\nvendor_id\t: Other\n"
    )


def arm(implementer: str, part: str) -> str:
    return (
        f"processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: {implementer}\n"
        f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\n"
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (x86("AuthenticAMD", 23, 0x08), "znver1"),
        (x86("AuthenticAMD", 23, 0x31), "znver2"),
        (x86("AuthenticAMD", 25, 0x01), "znver3"),
        (x86("AuthenticAMD", 25, 0x11), "znver4"),
        (x86("AuthenticAMD", 25, 0x61), "znver4"),
        (x86("AuthenticAMD", 26, 0x02), "znver5"),
        (x86("GenuineIntel", 6, 0x3F), "haswell"),
        (x86("GenuineIntel", 6, 0x55, 4), "skylake-avx512"),
        (x86("GenuineIntel", 6, 0x55, 7), "cascadelake"),
        (x86("GenuineIntel", 6, 0x55, 11), "cooperlake"),
        (x86("GenuineIntel", 6, 0xCF), "emeraldrapids"),
        (x86("GenuineIntel", 6, 0xA7), "rocketlake"),
        (x86("GenuineIntel", 6, 0xA7, flags="amx_tile"), "sapphirerapids"),
        (x86("GenuineIntel", 6, 0xAD, flags="amx_tile"), "graniterapids"),
        (x86("GenuineIntel", 6, 0xFE), ""),
        (x86("GenuineIntel", 6, 0xFE, flags="amx_tile"), ""),
        (x86("GenuineIntel", 15, 0x3F), ""),
        (x86("AuthenticAMD", 99, 0x01), ""),
        (x86("HygonGenuine", 24, 0x01), ""),
        (arm("0x41", "0xd08"), "cortex-a72"),
        (arm("0x41", "0xd0c"), "neoverse-n1"),
        (arm("0x41", "0xfff"), ""),
        (arm("what", "ever"), ""),
        ("", ""),
    ],
)
def test_known_cpus(text: str, name: str) -> None:
    assert host_cpu(text) == name


def test_names_are_llvms() -> None:
    import tvm
    import tvm.target.codegen as llvm

    from neocpu.foundation.machine import cpu_identity as known

    for triple, names in (
        ("x86_64-linux-gnu", {n for *_, n in known._AMD} | {*known._INTEL.values()}),
        ("aarch64-linux-gnu", {*known._ARM.values()}),
    ):
        target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
        assert names <= {str(name) for name in llvm.llvm_get_cpu_archlist(target)}


def test_this_host_has_the_name_that_targets_use() -> None:
    if not os.path.exists("/proc/cpuinfo") or not host_cpu():
        pytest.skip("this host's CPU is not listed")
    assert host_cpu() == host_target().mcpu
