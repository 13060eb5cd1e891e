"""Targets: every spelling means the same, and mistakes are named."""

import json

import pytest

from neocpu.foundation.cpus import ALIASES, CACHES, FMA_BYTES
from neocpu.foundation.errors import TargetError
from neocpu.foundation.instruction_sets import KNOWN_FEATURES, host_features
from neocpu.schedules.vocabulary import target_parsing as module
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.target import ISA_FEATURES
from neocpu.schedules.vocabulary.target_parsing import host_target, missing_on_host, parse_target


@pytest.mark.parametrize(
    "spelling",
    [
        "llvm -mcpu=skylake-avx512 -mattr=+avx2",
        "-mcpu=skylake-avx512 -mattr=+avx2",
        '{"kind": "llvm", "mcpu": "skylake-avx512", "mattr": ["+avx2"]}',
        {"kind": "llvm", "mcpu": "skylake-avx512", "mattr": "+avx2"},
        "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512 -mattr=+avx2",
    ],
    ids=str,
)
def test_spellings_are_equal(spelling):
    cpu = parse_target(spelling)
    assert cpu == parse_target("llvm -mcpu=skylake-avx512 -mattr=+avx2")
    assert (cpu.isa, cpu.lanes("float32"), cpu.vector_registers) == ("avx512", 16, 32)


@pytest.mark.parametrize(
    "spelling",
    [
        "rpi4",
        "raspberry-pi-4",
        "cortex-a72",
        "llvm -mcpu=cortex-a72",
        "llvm -mcpu=rpi4",
        "llvm -mtriple=arm64-linux-gnu -mcpu=cortex-a72",
        "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72",
        "llvm -mtriple=aarch64 -mcpu=graviton1",
        '{"mtriple": "aarch64-linux", "mcpu": "rpi4"}',
    ],
)
def test_boards_and_triples_are_names_of_cpus(spelling):
    assert parse_target(spelling) == parse_target(
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    )


@pytest.mark.parametrize("name", [*ALIASES, *CACHES, *FMA_BYTES])
def test_every_name_in_the_tables_is_a_cpu_to_llvm(name):
    cpu = parse_target(name)
    assert cpu.mcpu == ALIASES.get(name, name)
    assert (cpu.mcpu in ALIASES) is False


def test_a_cpu_of_both_machines_is_this_hosts():
    assert parse_target("generic").machine == host_target().machine
    assert parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=generic").machine == "aarch64"
    assert parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=generic").machine == "x86_64"


def test_the_host_can_be_asked_for_every_feature_that_gates():
    assert ISA_FEATURES < KNOWN_FEATURES
    cpus = ("diamondrapids", "tigerlake", "neoverse-v2")  # between them they have all of them
    assert ISA_FEATURES == {name for cpu in cpus for name in parse_target(cpu).features}


def test_printed_target_parses_back():
    for text in ("llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"):
        cpu = parse_target(text)
        assert parse_target(str(cpu)) == cpu
        assert parse_target(json.dumps(cpu.to_dict())) == cpu


@pytest.mark.parametrize(
    ("text", "isa", "lanes", "registers"),
    [
        ("llvm -mcpu=haswell", "avx2", 8, 16),
        ("llvm -mcpu=nehalem", "sse", 4, 16),
        ("llvm -mcpu=sapphirerapids", "avx512", 16, 32),
        ("llvm -mcpu=znver4 -mattr=-avx512f", "avx2", 8, 16),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "neon", 4, 32),
    ],
)
def test_vector_units(text, isa, lanes, registers):
    cpu = parse_target(text)
    assert (cpu.isa, cpu.lanes("float32"), cpu.vector_registers) == (isa, lanes, registers)
    assert cpu.lanes("int8") == 4 * lanes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-mcpu=znver4", 1),
        ("-mcpu=znver4 -mattr=-avx512f", 2),
        ("-mcpu=znver5", 2),
        ("-mcpu=znver1", 1),
        ("-mcpu=znver1 -mattr=-avx2", 2),
        ("-mtriple=aarch64-linux-gnu -mcpu=cortex-a72", 1),
        ("-mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", 2),
    ],
)
def test_multiply_adds_of_half_width_units_take_two_cycles(text, expected):
    assert parse_target(f"llvm {text}").dot_unit(FLOAT32).per_cycle == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llvm -mcpu=skylake-avx51", "did you mean 'skylake-avx512'"),
        ("llvm -mcp=haswell", "did you mean 'mcpu'"),
        ("llvm -mcpu=haswell -mattr=+avx512ff", "did you mean 'avx512f'"),
        ("llvm -mcpu=haswell -mattr=avx2", "must start with"),
        ("cuda", "not supported"),
        ("rpi6", "did you mean 'rpi5'"),
        ("apple-m7", "did you mean 'apple-m"),
        ("llvm -mcpu=cortex-a77ae", "did you mean 'cortex-a7"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=rpi4", "needs -mtriple=aarch64-linux-gnu"),
        ("llvm -mtriple=arm64-apple-darwin -mcpu=apple-m1", "ELF files for Linux.*not for apple"),
        ("llvm -mtriple=aarch64-linux-musl -mcpu=rpi4", "GNU C library, not for linux-musl"),
        ("llvm -mtriple=aarch64_be-linux-gnu -mcpu=rpi4", "only x86_64 and aarch64"),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=x", "only x86_64 and aarch64"),
        ("llvm haswell", "not of the form"),
        ("{kind", "not valid JSON"),
        ('{"kind": ' + "[" * 100_000, "not valid JSON"),
        ('{"kind": 1' + "0" * 9000, "not valid JSON"),
        ('{"kind": "\udcff"}', "not valid JSON"),
        ("llvm -mcpu='haswell", "check its quotes"),
        ("llvm -mtriple=aarch64-linux-gnu", "name its CPU"),
        ('{"kind": "llvm", "mattr": 5}', "a list of strings"),
        (5, "a string or a dict"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(TargetError, match=message) as caught:
        parse_target(text)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5


def test_host_runs_what_its_target_needs():
    cpu = parse_target("host")
    assert cpu == host_target() == parse_target("llvm -mcpu=native")
    assert missing_on_host(cpu) == ()
    assert cpu.l1d > 0
    assert cpu.l2 > 0


def test_features_a_hypervisor_hides_are_switched_off(monkeypatch):
    visible = host_features() - {"avx512f", "avx2"}
    monkeypatch.setattr(module, "host_features", lambda: visible)
    module._host_target.cache_clear()
    try:
        cpu = host_target()
        assert not {"avx512f", "avx2"} & set(cpu.features)
    finally:
        module._host_target.cache_clear()
