"""The instruction sets of a host are read from the bits that CPUs and systems report."""

import os
import re

import needs
from scripts import run_script

from neocpu import core
from neocpu.foundation import instruction_sets
from neocpu.foundation.instruction_sets import (
    ARM_BITS,
    AT_HWCAP,
    AT_HWCAP2,
    AVX10_BIT,
    AVX10_LEAF,
    EBX,
    KNOWN_FEATURES,
    TILES,
    X86_BITS,
    arm_features,
    code_obstacle,
    cpuinfo_features,
    host_features,
    missing_features,
    tiles_permitted,
    x86_features,
)

SKYLAKE = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8168
flags\t\t: fpu sse sse2 pni ssse3 fma sse4_1 sse4_2 abm avx avx2 bmi1 avx512f avx512_vnni amx_tile
bugs\t\t: spectre_v1
processor\t: 1
flags\t\t: fpu
"""
x86_64 = needs.machine("x86_64")


def leaves(*usable, present=()):
    """Return a reader of CPUID leaves in which these (leaf, register, bit) are set."""

    def read(leaf):
        words = [0] * 8
        for offset, bits in ((4, usable), (0, (*usable, *present))):
            for index, word, bit in bits:
                words[offset + word] |= (index == leaf) << bit
        return words

    return read


def test_a_feature_is_one_bit_of_cpuid():
    apx = {name for name, place in X86_BITS.items() if place == X86_BITS["egpr"]}
    assert apx == {"ccmp", "cf", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu"}
    assert len(set(X86_BITS.values())) == len(X86_BITS) - len(apx) + 1
    assert x86_features(leaves()) == frozenset()
    for name, place in X86_BITS.items():
        assert x86_features(leaves(place)) == (apx if name in apx else {name})


def test_avx10_is_a_bit_and_a_version():
    versions = [(AVX10_LEAF, EBX, bit) for bit in range(8)]
    assert x86_features(leaves(*versions[:1])) == frozenset()
    assert x86_features(leaves(AVX10_BIT)) == frozenset()
    assert x86_features(leaves(AVX10_BIT, versions[0])) == {"avx10.1"}
    assert x86_features(leaves(AVX10_BIT, present=versions[1:2])) == {"avx10.1", "avx10.2"}


def test_registers_the_system_does_not_save_are_not_offered():
    # The CPU has AVX-512, but its system enabled the state of AVX only.
    avx, avx512 = X86_BITS["avx2"], X86_BITS["avx512f"]
    assert x86_features(leaves(avx, present=(avx512,))) == {"avx2"}


def test_a_feature_is_one_bit_of_the_auxiliary_vector():
    assert len(set(ARM_BITS.values())) == len(ARM_BITS)
    for name, (entry, bit) in ARM_BITS.items():
        assert arm_features(lambda asked, e=entry, b=bit: (asked == e) << b) == {name}


def test_the_c_runtime_knows_the_same_features():
    source = core.ROOT / "src" / "features.c"
    named = set(re.findall(r'\{"([^"]+)"', source.read_text()))
    assert named > KNOWN_FEATURES


def test_raspberry_pis():
    # AT_HWCAP as Linux reports it on a Cortex-A72 and a Cortex-A76.
    assert arm_features({AT_HWCAP: 0x887, AT_HWCAP2: 0}.__getitem__) == {"neon"}
    a76 = arm_features({AT_HWCAP: 0x119FFF, AT_HWCAP2: 0}.__getitem__)
    assert a76 == {"neon", "lse", "rdm", "rcpc", "dotprod", "fullfp16"}


def test_flags_of_the_kernel_where_the_library_does_not_tell():
    features = cpuinfo_features(SKYLAKE)
    assert {"sse4.1", "sse4.2", "bmi", "avx512f", "avx512vnni", "fma", "amx-tile"} < features
    assert missing_features(("avx2", "avx512f", "movbe"), features) == ("movbe",)
    assert cpuinfo_features("processor : 0\n") == frozenset()


@x86_64
def test_cpuid_and_the_system_agree_on_this_host():
    with open("/proc/cpuinfo") as file:
        assert host_features() == cpuinfo_features(file.read())


@x86_64
def test_a_library_without_the_function(monkeypatch):
    monkeypatch.setattr(instruction_sets.ctypes, "CDLL", lambda name: object())
    assert "sse4.2" in host_features()


@x86_64
@needs.instruction_set("avx2")
def test_features_switched_off_in_the_c_library_are_not_offered():
    script = (
        "from neocpu.foundation.instruction_sets import host_features; "
        "print('avx2' in host_features(), 'sse4.2' in host_features())"
    )
    answers = [
        run_script(script, GLIBC_TUNABLES=tunables).strip()
        for tunables in ("", "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable")
    ]
    assert answers == ["True True", "False True"]


def test_messages_say_why_code_cannot_run_here():
    machine = os.uname().machine
    other = {"x86_64": "aarch64"}.get(machine, "x86_64")
    available = frozenset({"avx2"})
    assert code_obstacle(machine, ("avx2",), available) is None
    assert code_obstacle(machine, ("avx2", "avx512f", "fma"), available) == (
        "this host lacks avx512f, fma"
    )
    assert code_obstacle(other, ("avx2",), available) == f"this host is {machine}, the code {other}"


#: A filter of system calls that lets arch_prctl (158) fail with EPERM.
REFUSING = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
def instruction(code, k, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, k)
program = (
    instruction(0x20, 0)                # the system call's number
    + instruction(0x15, 158, 0, 1)
    + instruction(0x06, 0x00050001)     # SECCOMP_RET_ERRNO, EPERM
    + instruction(0x06, 0x7FFF0000)     # SECCOMP_RET_ALLOW
)
buffer = ctypes.create_string_buffer(program)
header = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0                                   # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.create_string_buffer(header), 0, 0) == 0  # PR_SET_SECCOMP
assert libc.syscall(158, 0x1022, 0) == -1 and ctypes.get_errno() == 1
"""
ASKING = """
from neocpu.foundation.instruction_sets import TILES, host_features
print(sorted(TILES & host_features()))
"""


@x86_64
def test_no_tiles_are_used_if_the_system_refuses_them():
    assert run_script(REFUSING + ASKING) == "[]\n"


def test_a_program_that_is_executed_asks_for_itself():
    assert run_script(ASKING) == f"{sorted(TILES & host_features())}\n"


def test_the_tile_feature_needs_permission():
    assert tiles_permitted() or not TILES & host_features()
