"""The instruction sets that programs may use here, by LLVM's names.

The answer comes from the CPU itself, as this process sees it: ``/proc/cpuinfo`` does not describe
an emulated or masked CPU. Instruction sets whose registers the system does not save are left out.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from neocpu.core import LIBRARY

EAX, EBX, ECX, EDX = range(4)
X86_BITS: Final = {
    # Feature: glibc's index of the CPUID leaf (1, 7, 0x80000001, 7.1 are 0, 1, 2, 6), register, bit
    "sse3": (0, ECX, 0),
    "ssse3": (0, ECX, 9),
    "cx16": (0, ECX, 13),
    "sse4.1": (0, ECX, 19),
    "sse4.2": (0, ECX, 20),
    "movbe": (0, ECX, 22),
    "popcnt": (0, ECX, 23),
    "fma": (0, ECX, 12),
    "avx": (0, ECX, 28),
    "f16c": (0, ECX, 29),
    "bmi": (1, EBX, 3),
    "avx2": (1, EBX, 5),
    "bmi2": (1, EBX, 8),
    "avx512f": (1, EBX, 16),
    "avx512dq": (1, EBX, 17),
    "avx512ifma": (1, EBX, 21),
    "avx512cd": (1, EBX, 28),
    "avx512bw": (1, EBX, 30),
    "avx512vl": (1, EBX, 31),
    "avx512vbmi": (1, ECX, 1),
    "avx512vbmi2": (1, ECX, 6),
    "gfni": (1, ECX, 8),
    "avx512vnni": (1, ECX, 11),
    "avx512bitalg": (1, ECX, 12),
    "avx512vpopcntdq": (1, ECX, 14),
    "avx512fp16": (1, EDX, 23),
    "amx-bf16": (1, EDX, 22),
    "amx-tile": (1, EDX, 24),
    "amx-int8": (1, EDX, 25),
    "avxvnni": (6, EAX, 4),
    "avx512bf16": (6, EAX, 5),
    "cmpccxadd": (6, EAX, 7),
    "avxifma": (6, EAX, 23),
    "avxvnniint8": (6, EDX, 4),
    "avxneconvert": (6, EDX, 5),
    "avxvnniint16": (6, EDX, 10),
    "sahf": (2, ECX, 0),
    "lzcnt": (2, ECX, 5),
    "sse4a": (2, ECX, 6),
    "xop": (2, ECX, 11),
    "fma4": (2, ECX, 16),
    "tbm": (2, ECX, 21),
    # LLVM divides APX into parts. CPUs have all or none of it.
    **dict.fromkeys(("ccmp", "cf", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu"), (6, EDX, 21)),
}
AVX10_BIT, AVX10_LEAF, AVX10_VERSION = (6, EDX, 19), 9, 0xFF
AVX10: Final = {"avx10.1": 1, "avx10.2": 2}
"""The versions of AVX10, by feature. Leaf 0x24 (glibc's `AVX10_LEAF`) has the version in EBX."""
# Flags of the kernel that are not LLVM's name without its punctuation.
CPUINFO_FLAGS: Final = {
    **{"bmi": "bmi1", "sse3": "pni", "lzcnt": "abm", "sahf": "lahflm"},
    **{name: "apx" for name, place in X86_BITS.items() if place == X86_BITS["egpr"]},
}

AT_HWCAP, AT_HWCAP2 = 16, 26
ARM_BITS: Final = {
    # Feature: entry of the auxiliary vector, bit
    "neon": (AT_HWCAP, 1),
    "lse": (AT_HWCAP, 8),
    "fullfp16": (AT_HWCAP, 10),
    "rdm": (AT_HWCAP, 12),
    "jsconv": (AT_HWCAP, 13),
    "complxnum": (AT_HWCAP, 14),
    "rcpc": (AT_HWCAP, 15),
    "dotprod": (AT_HWCAP, 20),
    "sve": (AT_HWCAP, 22),
    "fp16fml": (AT_HWCAP, 23),
    "sve2": (AT_HWCAP2, 1),
    "i8mm": (AT_HWCAP2, 13),
    "bf16": (AT_HWCAP2, 14),
    "sha3": (AT_HWCAP, 17),
    "lse2": (AT_HWCAP, 25),
    "rcpc-immo": (AT_HWCAP, 26),
    "flagm": (AT_HWCAP, 27),
    "sve-bitperm": (AT_HWCAP2, 4),
    "sve-sha3": (AT_HWCAP2, 5),
    "altnzcv": (AT_HWCAP2, 7),
    "fptoint": (AT_HWCAP2, 8),
    "cssc": (AT_HWCAP2, 34),
    "mops": (AT_HWCAP2, 43),
    "hbc": (AT_HWCAP2, 44),
    "sve-b16b16": (AT_HWCAP2, 45),
    "rcpc3": (AT_HWCAP2, 46),
    "lut": (AT_HWCAP2, 49),
    "faminmax": (AT_HWCAP2, 50),
    "fp8": (AT_HWCAP2, 51),
    "fp8fma": (AT_HWCAP2, 52),
    "fp8dot4": (AT_HWCAP2, 53),
    "fp8dot2": (AT_HWCAP2, 54),
}
KNOWN_FEATURES: Final = X86_BITS.keys() | AVX10.keys() | ARM_BITS.keys()
"""All features that hosts are asked for. No host is known to have any other."""

TILES: Final = frozenset(("amx-bf16", "amx-int8", "amx-tile"))
"""The features that a process needs permission for: see `tiles_permitted`."""
TILES_REFUSED: Final = "its CPU has tiles, but the system does not let this process use them"

LeafReader = Callable[[int], Sequence[int]]
"""Maps glibc's index of a CPUID leaf to eight words: four of the CPU, and four usable ones."""


def host_features() -> frozenset[str]:
    """Return the instruction sets that generated code may use here; tiles only with permission."""
    found = _cpu_features()
    return found if TILES.isdisjoint(found) or tiles_permitted() else found - TILES


def refused_features() -> frozenset[str]:
    """Return the instruction sets that the CPU has and the system refuses this process."""
    return _cpu_features() - host_features()


def _cpu_features() -> frozenset[str]:
    libc = ctypes.CDLL(None)
    if os.uname().machine == "aarch64":
        libc.getauxval.restype = ctypes.c_ulong
        libc.getauxval.argtypes = (ctypes.c_ulong,)
        return arm_features(libc.getauxval)
    try:
        read = libc.__x86_get_cpuid_feature_leaf
    except AttributeError:  # glibc before 2.33, or another C library
        return cpuinfo_features(Path("/proc/cpuinfo").read_text())
    read.restype = ctypes.POINTER(ctypes.c_uint32 * 8)
    read.argtypes = (ctypes.c_uint,)
    return x86_features(lambda leaf: read(leaf).contents)


def missing_features(required: Iterable[str], available: frozenset[str]) -> tuple[str, ...]:
    """Return the ``required`` features that are not ``available``, in their order."""
    return tuple(name for name in required if name not in available)


def code_obstacle(machine: str, features: Iterable[str], available: frozenset[str]) -> str | None:
    """Return why this host, with features ``available``, cannot run code; None if it can."""
    if machine != (host := os.uname().machine):
        return f"this host is {host}, the code {machine}"
    missing = missing_features(features, available)
    if not missing:
        return None
    why = f" ({TILES_REFUSED})" if refused_features().intersection(missing) else ""
    return f"this host lacks {', '.join(missing)}{why}"


def x86_features(read: LeafReader) -> frozenset[str]:
    """Return the usable features; an older C library does not report the newest ones."""
    leaves = {leaf: read(leaf)[4:8] for leaf, _, _ in X86_BITS.values()}

    def may_use(place: tuple[int, int, int]) -> bool:
        leaf, word, bit = place
        return bool(leaves[leaf][word] >> bit & 1)

    version = read(AVX10_LEAF)[EBX] & AVX10_VERSION if may_use(AVX10_BIT) else 0
    found = {name for name, place in X86_BITS.items() if may_use(place)}
    return frozenset(found | {name for name, least in AVX10.items() if version >= least})


def arm_features(auxiliary: Callable[[int], int]) -> frozenset[str]:
    """Return the features whose bits are set in the auxiliary vector (see ``getauxval``)."""
    return frozenset(name for name, (entry, bit) in ARM_BITS.items() if auxiliary(entry) >> bit & 1)


def cpuinfo_features(text: str) -> frozenset[str]:
    """Return the features of the first x86 CPU in a text like that of ``/proc/cpuinfo``."""
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((value for key, _, value in lines if key.strip() == "flags"), "")
    plain = {flag.replace("_", "") for flag in flags.split()}
    names = {name: re.sub("[.-]", "", name) for name in X86_BITS} | CPUINFO_FLAGS
    return frozenset(name for name, flag in names.items() if flag in plain)


@functools.cache
def tiles_permitted() -> bool:
    """Ask for tile registers, and return whether this process may use them from here on.

    Without permission, touching a tile ends the process. It holds for all threads and over fork,
    and fails if a filter of system calls refuses it or a thread's signal stack is too small.
    """
    return bool(ctypes.CDLL(str(LIBRARY)).neocpu_permit_tiles())
