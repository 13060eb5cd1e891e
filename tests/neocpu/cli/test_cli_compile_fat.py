"""``neocpu compile --fat``, and the other commands on what it writes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest

import neocpu
from neocpu import pipeline
from neocpu.compilation import compile_fat as fat_compilation
from neocpu.compilation.compile_options import Member
from neocpu.foundation.errors import UsageError
from neocpu.foundation.progress import Progress
from neocpu.planning.precision import Precision
from neocpu.runtime.artifact import ArtifactFile, read_header
from neocpu.runtime.header import ArtifactHeader
from neocpu.verification.reference import oracles
from tests.neocpu.quantised_models import image, network, quantised, run_onnxruntime

BASE = "sse" if os.uname().machine == "x86_64" else "neon"
OTHER = "sandybridge" if BASE == "sse" else "cortex-a35"
FOREIGN = "neon" if BASE == "sse" else "avx2"
HOST_FIRST = f"host,{BASE}"


@pytest.fixture(scope="module")
def fat(onnx_file, tmp_path_factory):
    """The small model for this host and for the oldest CPU of its kind."""
    from neocpu.cli.main import main

    path = tmp_path_factory.mktemp("fat") / "small.so"
    command = ["compile", onnx_file, "--fat", f"{BASE},host", "-o", path, "--quiet"]
    assert main([str(word) for word in command]) == 0
    return path


@dataclass
class Compiled:
    """A stand-in for the result of `neocpu.compile`, with an artifact that exists."""

    path: Path
    header: ArtifactHeader
    plan: dict[str, Any]
    seconds: dict[str, float]
    tuned: None = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_the_model_is_imported_and_the_truth_computed_once(cli, onnx_file, monkeypatch):
    calls = []

    def counted(module, name):
        function = getattr(module, name)

        def call(*args, **settings):
            calls.append(name)
            return function(*args, **settings)

        monkeypatch.setattr(module, name, call)

    counted(pipeline, "import_relax")
    counted(oracles, "run_reference")
    outcome = cli("compile", onnx_file, "--fat", HOST_FIRST, "-o", "both.so", "--json")
    assert [each["unchecked"] for each in outcome.json["variants"]] == [None, None]
    assert calls == ["import_relax", "run_reference"]


@pytest.fixture
def compiled(fat, tmp_path, monkeypatch):
    """Take the parts of an existing file instead of compiling; return the CPUs' names."""
    parts = {each.header.target: each for each in ArtifactFile(fat).variants}
    calls = []

    def take(target, on_progress):
        if not parts:
            raise UsageError("no")
        calls.append(target.mcpu)
        on_progress(Progress("search"))
        part = parts.pop(str(target))
        path = tmp_path / f"{target.mcpu}.so"
        path.write_bytes(fat.read_bytes()[part.offset :][: part.size])
        return Compiled(path, part.header, part.header.plan, {"search": 1.0})

    def take_each(model, members, _, progress_of):
        return (take(each.target, progress_of(number)) for number, each in enumerate(members))

    monkeypatch.setattr(fat_compilation, "compile_each", take_each)
    return calls


def test_report(cli, compiled):
    outcome = cli("compile", "small.onnx", "--fat", HOST_FIRST).succeeds()
    assert f"neocpu: {BASE}: search" in outcome.err
    first, header, *rows = outcome.out.splitlines()
    assert first.startswith("small.so: ")
    columns = "variant target computes in size transforms predicted largest error"
    assert header.split() == columns.split()
    assert [row.split()[0] for row in rows] == ["host", BASE]
    assert all("norm-wise" in row for row in rows)
    assert len(compiled) == 2


def test_json_report(cli, compiled):
    report = cli("compile", "small.onnx", "--fat", HOST_FIRST, "--json", "-q").json
    assert report["bytes"] == Path("small.so").stat().st_size
    assert [each["name"] for each in report["variants"]] == ["host", BASE]
    headers = [each.header for each in ArtifactFile("small.so").variants]
    assert [each["target"] for each in report["variants"]] == [each.target for each in headers]
    assert all(each["verification"]["norm_error"] < 1e-5 for each in report["variants"])
    assert headers[0].isa_features != headers[1].isa_features


def test_it_runs(cli, fat, artifact):
    document = cli("run", fat, "--json", "-o", "fat.npz").json
    assert document["target"] == read_header(fat, "host").target
    cli("run", artifact, "-o", "plain.npz")
    with np.load("fat.npz") as ours, np.load("plain.npz") as theirs:
        assert ours.files == theirs.files
        for name in ours.files:
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_explain(cli, fat):
    def target(*options):
        return str(cli("explain", fat, "--json", *options).json["target"])

    assert target() == target("--variant", "host") != target("--variant", BASE)
    cli("explain", fat, "--variant", "hots").fails(2, "did you mean 'host'?")


def test_bench(cli, fat):
    cli("bench", fat, "--json", "-q", "--rounds", 2).succeeds()


@pytest.mark.parametrize(
    ("options", "blamed"),
    [
        (["--fat", "avx2", "--target", "host"], "--fat names the targets itself"),
        (["--fat", "avx2,"], "is not a list"),
        (["--fat", "avx2,haswell"], "'avx2' and 'haswell' are the same CPU"),
        (["--fat", "avx3"], "did you mean 'avx2'?"),
        (["--fat", "avx3:int8"], "did you mean 'avx2'?"),
        (["--fat", "avx2:int9"], "unknown precision 'int9'"),
        (["--fat", "avx2:int8,avx2:fp32"], "'avx2' and 'avx2' are the same CPU"),
        (["--fat", f"host,{FOREIGN}", "--tune-budget", "9"], f"cannot run '{FOREIGN}'"),
    ],
)
def test_wrong_names(cli, monkeypatch, options, blamed):
    monkeypatch.setattr(fat_compilation, "compile_each", lambda *_: pytest.fail("it was compiled"))
    outcome = cli("compile", "resnet50", *options)
    assert outcome.code in (2, 5)
    assert blamed in outcome.error
    assert os.listdir() == []


def test_a_missing_linker_is_noticed_first(cli, monkeypatch):
    def none(machine):
        raise UsageError(f"no linker for {machine}")

    monkeypatch.setattr(fat_compilation, "find_linker", none)
    monkeypatch.setattr(fat_compilation, "compile_each", lambda *_: pytest.fail("it was compiled"))
    assert "no linker for " in cli("compile", "resnet50", "--fat", "host,neon").error


def test_no_file_is_written_if_a_part_fails(cli, compiled):
    outcome = cli("compile", "small.onnx", "--fat", f"{HOST_FIRST},{OTHER}")
    assert outcome.code == 2
    assert len(compiled) == 2
    assert os.listdir() == []


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A quantised network in the precision that suits each CPU."""
    needs.skip(needs.linker("aarch64"))
    path = tmp_path_factory.mktemp("mixed") / "mixed.so"
    cpus = ("host:fp32", f"{BASE}:fp32", "cascadelake:int8", "rpi5")
    parts = neocpu.compile_fat(
        quantised(network()), cpus, path, precision="int8", small=True, threads=2, verify=False
    )
    assert [part.variant.name for part in parts] == [cpu.partition(":")[0] for cpu in cpus]
    return path


def convolutions(fat):
    """Return the precisions of the convolutions of each part."""
    return {
        each.name: {op.precision for op in each.header.plan.ops if op.kind == "conv2d"}
        for each in ArtifactFile(fat).variants
    }


def test_each_cpu_has_numbers_of_its_own(cli, mixed):
    found = convolutions(mixed)
    assert found["host"] == found[BASE] == {"fp32"}
    assert found["cascadelake"] == {"int8"}
    asked = [each.header.plan.precision for each in ArtifactFile(mixed).variants]
    assert asked == ["fp32", "fp32", "int8", "int8"]
    inspected = {line.split()[0]: line for line in cli("inspect", mixed).out.splitlines() if line}
    assert "int8: 5 int8 convolutions" in inspected["cascadelake"]
    assert " fp32 " in inspected["host"]
    explained = cli("explain", mixed, "--variant", "cascadelake").out
    assert "int8: 5 int8 convolutions" in explained


def test_a_mixed_file_computes_what_the_model_says(mixed):
    x = image(3)
    np.testing.assert_allclose(
        neocpu.load(mixed)(x), run_onnxruntime(quantised(network()), x), atol=0.1
    )


def test_options_give_each_cpu_its_numbers(cli, compiled):
    outcome = cli(
        "compile", "small.onnx", "--fat", f"host:fp32,{BASE}:auto", "--json", "-q"
    ).succeeds()
    assert [each["name"] for each in outcome.json["variants"]] == ["host", BASE]


def test_a_target_in_json_may_have_colons():
    text = '{"kind": "llvm", "mcpu": "haswell"}'
    member = Member.parse(text, Precision.INT8)
    assert (member.target.mcpu, member.precision) == ("haswell", "int8")
    assert Member.parse("avx2:fp32", Precision.INT8).precision == "fp32"
