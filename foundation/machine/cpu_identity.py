"""LLVM's name of this host's CPU, without LLVM, to prefer code that was compiled for this CPU.

The code that the CPU can run is another question, which `instruction_sets` answers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_AMD: Final = (
    # Family, first and last model, name. The first line that fits counts. From LLVM's Host.cpp.
    (0x17, 0x00, 0x2F, "znver1"),
    (0x17, 0x30, 0xFF, "znver2"),
    (0x19, 0x10, 0x1F, "znver4"),
    (0x19, 0x60, 0x7F, "znver4"),
    (0x19, 0xA0, 0xAF, "znver4"),
    (0x19, 0x00, 0xFF, "znver3"),
    (0x1A, 0x00, 0xFF, "znver5"),
)
_INTEL: Final = {
    # Models of family 6
    **dict.fromkeys((0x3C, 0x3F, 0x45, 0x46), "haswell"),
    **dict.fromkeys((0x3D, 0x47, 0x4F, 0x56), "broadwell"),
    **dict.fromkeys((0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), "skylake"),
    **dict.fromkeys((0x6A, 0x6C), "icelake-server"),
    **dict.fromkeys((0x7D, 0x7E), "icelake-client"),
    **dict.fromkeys((0x8C, 0x8D), "tigerlake"),
    **dict.fromkeys((0x97, 0x9A), "alderlake"),
    **dict.fromkeys((0xB7, 0xBA, 0xBF), "raptorlake"),
    0xA7: "rocketlake",
    0x8F: "sapphirerapids",
    0xCF: "emeraldrapids",
    0xAD: "graniterapids",
}
_AMX: Final = ("sapphirerapids", "emeraldrapids", "graniterapids")
_SKYLAKE_SERVER: Final = 0x55
"""The model of three CPUs, which differ in their stepping."""
_ARM: Final = {
    # Implementer and part
    (0x41, 0xD03): "cortex-a53",
    (0x41, 0xD05): "cortex-a55",
    (0x41, 0xD07): "cortex-a57",
    (0x41, 0xD08): "cortex-a72",
    (0x41, 0xD09): "cortex-a73",
    (0x41, 0xD0B): "cortex-a76",
    (0x41, 0xD42): "cortex-a78ae",
    (0x41, 0xD0C): "neoverse-n1",
    (0x41, 0xD49): "neoverse-n2",
    (0x41, 0xD40): "neoverse-v1",
    (0x41, 0xD4F): "neoverse-v2",
    (0xC0, 0xAC3): "ampere1",
}
_FIRST_CPU: Final = 4096
"""Bytes of ``/proc/cpuinfo`` with the first CPU's entry. Hundreds of CPUs would take ms."""


def host_cpu(cpuinfo: str | None = None) -> str:
    """Return LLVM's name of this host's first CPU; empty if it is not listed here."""
    if cpuinfo is None:
        cpuinfo = _read_cpuinfo()
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    try:
        return _x86_cpu(fields) if "vendor_id" in fields else _arm_cpu(fields)
    except ValueError:
        return ""


def unmasked(cpu: str, *, amx: bool) -> str:
    """Return ``cpu``, or the oldest CPU with AMX if the machine has ``amx`` and ``cpu`` has not.

    Hypervisors may give their guests the model number of an older CPU, but no instruction set that
    the real one lacks.
    """
    return _AMX[0] if amx and cpu not in _AMX else cpu


def _x86_cpu(fields: Mapping[str, str]) -> str:
    name = _by_model(fields)
    return unmasked(name, amx="amx_tile" in fields.get("flags", "").split()) if name else ""


def _by_model(fields: Mapping[str, str]) -> str:
    family, model, stepping = (
        int(fields.get(name, "-1")) for name in ("cpu family", "model", "stepping")
    )
    if fields["vendor_id"] == "AuthenticAMD":
        fits = (name for f, low, high, name in _AMD if f == family and low <= model <= high)
        return next(fits, "")
    if fields["vendor_id"] != "GenuineIntel" or family != 6:
        return ""
    if model == _SKYLAKE_SERVER:
        if stepping >= 10:
            return "cooperlake"
        return "cascadelake" if stepping >= 5 else "skylake-avx512"
    return _INTEL.get(model, "")


def _arm_cpu(fields: Mapping[str, str]) -> str:
    implementer, part = (int(fields.get(name, "0"), 0) for name in ("CPU implementer", "CPU part"))
    return _ARM.get((implementer, part), "")


def _read_cpuinfo() -> str:
    try:
        file = os.open("/proc/cpuinfo", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, _FIRST_CPU).decode("utf-8", "replace")
    finally:
        os.close(file)
