"""Code for VNNI, BF16 and the like is refused by name on CPUs that lack them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import needs
import numpy as np
import pytest

import neocpu
from neocpu.building.fat_file import combine
from neocpu.foundation.errors import TargetError
from neocpu.foundation.instruction_sets import KNOWN_FEATURES, X86_BITS, host_features
from neocpu.runtime.artifact import ArtifactFile
from neocpu.schedules.isa.catalogue import INSTRUCTIONS
from neocpu.schedules.vocabulary.llvm_features import demanded
from neocpu.schedules.vocabulary.target_parsing import missing_on_host, parse_target
from tests.neocpu.quantised_models import image, network, quantised, run_onnxruntime

ON_AVX2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
#: Targets that differ from nearly every host by one instruction set.
TARGETS = {
    "avxvnni": f"{ON_AVX2} -mattr=+avxvnni",
    "avx512vnni": "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake",
    "avx512bf16": "llvm -mtriple=x86_64-linux-gnu -mcpu=cooperlake",
    "dotprod": "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76",
    "i8mm": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
    "bf16": "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
}


def linker_of(target: str) -> pytest.MarkDecorator:
    """Return the mark of tests that need a linker for a target."""
    return needs.linker(parse_target(target).machine)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantised network in integers, for each target."""
    path = tmp_path_factory.mktemp("gate") / "all.so"
    linked = [target for target in TARGETS.values() if not linker_of(target).args[0]]
    cpus = (ON_AVX2, *dict.fromkeys(linked))
    settings = {"precision": "int8", "small": True, "threads": 2, "verify": False}
    neocpu.compile_fat(quantised(network()), cpus, path, **settings)
    return path


def cut(fat: Path, target: str, path: Path) -> Path:
    """Write the part of a fat file that was compiled for a target."""
    wanted = str(parse_target(target))
    (part,) = (each for each in ArtifactFile(fat).variants if each.header.target == wanted)
    path.write_bytes(fat.read_bytes()[part.offset :][: part.size])
    return path


@needs.machine("x86_64")
@pytest.mark.parametrize("feature", TARGETS)
def test_features_that_the_host_lacks_are_named(parts: Path, tmp_path: Path, feature: str) -> None:
    if feature in host_features():
        pytest.skip(f"this host has {feature}")
    needs.skip(linker_of(TARGETS[feature]))
    path = cut(parts, TARGETS[feature], tmp_path / "one.so")
    assert feature in ArtifactFile(path).variants[0].header.isa_features
    named = feature if feature in X86_BITS else "the code aarch64|for aarch64"
    with pytest.raises(TargetError, match=named):
        neocpu.load(path)


@needs.machine("x86_64")
@needs.instruction_set("avx2")
def test_a_part_that_runs_here_is_selected_from_several(parts: Path) -> None:
    x = image(3)
    found = neocpu.load(parts)(x)
    np.testing.assert_allclose(found, run_onnxruntime(quantised(network()), x), atol=0.1)
    if not {"avxvnni", "avx512vnni"} & host_features():
        assert neocpu.load(parts).metadata.target == str(parse_target(ON_AVX2))


@needs.machine("x86_64")
def test_a_file_without_a_part_for_the_host_names_the_missing_features(
    parts: Path, tmp_path: Path
) -> None:
    lacked = [name for name in ("avxvnni", "avx512vnni") if name not in host_features()]
    if len(lacked) < 2:
        pytest.skip("this host has VNNI")
    files = {name: cut(parts, TARGETS[name], tmp_path / f"{name}.so") for name in lacked}
    combine(files, tmp_path / "two.so")
    with pytest.raises(TargetError, match=r"avxvnni \(lacks avxvnni\).*avx512vnni \(lacks .*vnni"):
        neocpu.load(tmp_path / "two.so")


@needs.machine("x86_64")
def test_code_that_ends_its_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process runs the code, because the target demands less than the code needs."""
    cpu = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=diamondrapids")
    if not missing_on_host(cpu):
        pytest.skip("this host is one")
    with pytest.raises(TargetError, match=r"-mcpu=diamondrapids ended .*signal \d+ \(SIG") as error:
        neocpu.compile(network(), target=replace(cpu, demands=()), threads=2)
    assert "\n" not in str(error.value)


def test_code_that_may_not_use_instructions_does_not_demand_them() -> None:
    target = f"{TARGETS['avx512vnni']} -mattr=-avx512vnni"
    model = quantised(network())
    with neocpu.compile(model, target=target, threads=2, verify=False) as compiled:
        assert "avx512vnni" not in compiled.header.isa_features
        assert "avx512bw" in compiled.header.isa_features


def test_every_instruction_that_multiplies_is_gated() -> None:
    """Instructions whose feature no loader checks would kill processes on other CPUs."""
    features = {feature for each in INSTRUCTIONS for feature in each.features}
    assert len(features) > 8
    assert features <= KNOWN_FEATURES
    machines = ("x86_64", "aarch64")
    assert all(set(demanded(machine, features)) == features for machine in machines)
