"""``neocpu inspect``."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import imported

from neocpu.building.elf import read_elf
from neocpu.building.fat_file import combine
from neocpu.building.link import write_artifact
from neocpu.cli import inspect as inspect_module
from neocpu.runtime.artifact import read_header
from neocpu.runtime.header import WEIGHTS_SECTION

HOST = os.uname().machine


def words(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_text(cli, artifact):
    outcome = cli("inspect", artifact).succeeds()
    first, *fields = words(outcome.out)
    assert first.startswith(f"{artifact}: neocpu artifact, ")
    header = read_header(artifact)
    for line in (
        "model small",
        "inputs image: float32[1, 3, 16, 16]",
        "outputs features: float32[1, 8, 16, 16]",
        f"target {header.target}",
        f"instructions {', '.join(header.isa_features)}",
        "runs here yes",
        f"threads planned for {header.threads}",
        "checksums code and header match their digest; weights unchecked",
    ):
        assert line in fields


def test_json(cli, artifact):
    document = cli("inspect", artifact, "--json", "--verify").json
    header = read_header(artifact)
    assert document["bytes"] == artifact.stat().st_size
    assert document["fat"] is False
    assert document["loaded_here"] == ""
    (only,) = document["variants"]
    assert only["inputs"] == [spec.to_json() for spec in header.inputs]
    assert only["isa_features"] == list(header.isa_features)
    assert only["weights_verified"] is True
    assert only["obstacle"] is None
    assert sum(only["templates"].values()) == 1
    parts = only["code_bytes"] + only["weight_bytes"]
    assert 0 < parts < only["bytes"]


def test_of_another_machine(cli, linear):
    header = replace(linear.header, isa_features=("avx99",))
    write_artifact(linear.built, linear.weights, header, "far.so")
    outcome = cli("inspect", "far.so").succeeds()
    assert "runs here no, this host lacks avx99" in words(outcome.out)
    document = cli("inspect", "far.so", "--json").json
    assert document["loaded_here"] is None
    assert document["variants"][0]["obstacle"] == "this host lacks avx99"


def test_any_tvm_may_have_compiled_it(cli, linear):
    header = replace(linear.header, tvm_version="0.1", ffi_version="0.2")
    write_artifact(linear.built, linear.weights, header, "old.so")
    outcome = words(cli("inspect", "old.so").out)
    assert "runs here yes" in outcome
    assert any("apache-tvm 0.1, apache-tvm-ffi 0.2" in line for line in outcome)


def test_fat_file(cli, linear):
    header = replace(linear.header, isa_features=("avx99",))
    write_artifact(linear.built, linear.weights, header, "far.so")
    combine({"far": "far.so", "near": linear.path}, "fat.so")
    outcome = cli("inspect", "fat.so", "--verify").succeeds()
    lines = words(outcome.out)
    assert lines[0].startswith("fat.so: neocpu fat file of 2 variants, ")
    assert lines[2].startswith(f"far {HOST} llvm ")
    assert lines[2].endswith("this host lacks avx99")
    assert lines[3].startswith("near ")
    assert lines[3].endswith("loaded")
    assert lines[5] == "near:"
    document = cli("inspect", "fat.so", "--json").json
    assert document["loaded_here"] == "near"
    assert [each["name"] for each in document["variants"]] == ["far", "near"]


def test_damage(cli, linear):
    data = bytearray(linear.path.read_bytes())
    section = read_elf(memoryview(data)).find(WEIGHTS_SECTION)
    assert section is not None
    data[section.offset + 5] ^= 1
    Path("weights.so").write_bytes(data)
    assert cli("inspect", "weights.so").code == 0
    cli("inspect", "weights.so", "--verify").fails(8, "the weights are damaged")
    Path("short.so").write_bytes(data[:-100])
    outcome = cli("inspect", "short.so", "--json")
    assert outcome.code == 8
    assert outcome.json["error"]["kind"] == "artifact"


@pytest.mark.parametrize("name", [".", "none.so", np._core._multiarray_umath.__file__])
def test_files_that_are_no_artifacts_are_refused(cli, name):
    cli("inspect", name).fails(8, name)


def test_long_verification_reports_its_progress(cli, artifact, monkeypatch):
    assert "verify" not in cli("inspect", artifact, "--verify").err
    monkeypatch.setattr(inspect_module, "PROGRESS_AFTER", -1)
    assert "neocpu: verify" in cli("inspect", artifact, "--verify").err


def test_nothing_heavy_is_imported(artifact):
    found = imported(f"from neocpu.cli.main import main; main(['inspect', {str(artifact)!r}])")
    assert not found & {"tvm", "tvm_ffi", "onnx", "scipy"}


def test_plan_that_says_nothing_of_schemes(cli, linear):
    plans = ({}, {"ops": 3}, {"ops": [3, {"scheme": 4}]}, {"ops": None}, {"call_seconds": "few"})
    for number, plan in enumerate(plans):
        write_artifact(
            linear.built, linear.weights, replace(linear.header, stored_plan=plan), f"{number}.so"
        )
        assert "schemes none" in words(cli("inspect", f"{number}.so").out)
        cli("explain", f"{number}.so").fails(8, "has a plan that cannot be shown")


def test_names_cannot_command_the_terminal(cli, linear):
    path = linear.path.parent / "coloured.so"
    header = replace(linear.header, name="\x1b[31mred\nline é")
    write_artifact(linear.built, linear.weights, header, path)
    outcome = cli("inspect", path).succeeds()
    assert r"model \x1b[31mred\nline é" in words(outcome.out)
    assert cli("inspect", path, "--json").json["variants"][0]["model"] == header.name
