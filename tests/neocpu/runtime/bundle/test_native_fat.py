"""The C program takes the same part of a file for several CPUs as Python."""

import os
import re
from dataclasses import replace

import needs
import numpy as np
import pytest

import neocpu
from neocpu import core
from neocpu.building.fat_file import BLOCK, combine, encode_index
from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.machine import cpu_identity
from neocpu.foundation.machine.cpu_identity import host_cpu
from neocpu.runtime.artifact import ArtifactFile

CPU = host_cpu() or "unknown"
HERE, MORE = ("avx2", "fma") if os.uname().machine == "x86_64" else ("neon", "aes")


@pytest.fixture
def variants(linear, tmp_path):
    """Write a file of variants with given targets and instruction sets; weights tell them apart."""

    def write(*each):
        sources = {}
        for number, (cpu, features) in enumerate(each, 1):
            header = replace(linear.header, target=f"llvm -mcpu={cpu}", isa_features=features)
            weights = [weight * np.float32(number) for weight in linear.weights]
            sources[f"v{number}"] = tmp_path / f"{number}.so"
            write_artifact(linear.built, weights, header, sources[f"v{number}"])
        combine(sources, tmp_path / "fat.so")
        return tmp_path / "fat.so"

    return write


@needs.instruction_set(HERE)
@pytest.mark.parametrize(
    ("each", "best"),
    [
        ([("a", ())], 1),
        ([("a", ()), ("b", (HERE,)), ("c", ("avx99",))], 2),
        ([("a", (HERE,)), ("b", (HERE,))], 1),
        ([("a", (HERE,)), ("b", (HERE, MORE))], 2),
        ([("a", (HERE,)), (CPU, ()), (f"{CPU}x", (HERE,))], 2),
        ([("neon99", ("neon99",)), ("a", ())], 2),
        pytest.param(
            [("a", (HERE, MORE, "sse4.2")), ("b", ("avx512f",)), ("c", (HERE, MORE))],
            2,
            marks=needs.instruction_set("avx512f"),
        ),
    ],
)
def test_the_best_part_is_run(run, linear, variants, tmp_path, each, best):
    """Compiled for this very CPU; with the widest vectors; with most instruction sets; first."""
    path = variants(*each)
    (x,) = linear.inputs()
    np.save(tmp_path / "x.npy", x)
    with neocpu.load(path) as module:
        found = module(x)
    np.testing.assert_allclose(found, best * linear.reference(x)[0], rtol=1e-4, atol=1e-4)
    done = run(path, tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), found)
    assert ArtifactFile(path).loadable.name == f"v{best}"


def with_index(source, path, header, *entries):
    """Write a fat file of copies of an artifact, with the given entries in its index."""
    content = source.read_bytes()
    content = content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")
    size, parts = source.stat().st_size, []
    for number, fields in enumerate(entries):
        entry = {
            "name": f"v{number}",
            "offset": BLOCK + number * len(content),
            "size": size,
            "target": header.target,
            "machine": header.machine,
            "isa_features": header.isa_features,
        }
        parts.append({**entry, **fields})
    whole = encode_index(parts).ljust(BLOCK, b"\0") + content * len(parts)
    path.write_bytes(whole[: parts[-1]["offset"] + size])
    return path


@needs.instruction_set(HERE)
@pytest.mark.parametrize(
    "lie", [{"isa_features": ()}, {"isa_features": (HERE,)}, {"target": "llvm -mcpu=x"}]
)
def test_an_index_that_says_else_than_the_header(run, linear, tmp_path, lie):
    features = ("avx99", HERE) if "isa_features" in lie else ()
    header = replace(linear.header, isa_features=features)
    write_artifact(linear.built, linear.weights, header, tmp_path / "a.so")
    path = with_index(tmp_path / "a.so", tmp_path / "fat.so", header, lie)
    with pytest.raises(ArtifactError, match="index and header disagree on the target"):
        neocpu.load(path)
    done = run(path)
    assert done.returncode == 8, done.stderr
    assert "index and header disagree on the target" in done.stderr


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["a b", "~" * 63], 0),
        ([""], 8),
        (["a", "a"], 8),
        (["a\n"], 8),
        (["\x7f"], 8),
        (["\u00e9"], 8),
        (["a\0"], 8),
        (["a" * 64], 8),
    ],
)
def test_names_of_variants(run, linear, tmp_path, names, code):
    entries = [{"name": name} for name in names]
    path = with_index(linear.path, tmp_path / "fat.so", linear.header, *entries)
    done = run(path)
    assert done.returncode == code, done.stderr
    if code:
        assert "malformed index: a variant's name" in done.stderr
        with pytest.raises(ArtifactError, match="malformed index"):
            neocpu.load(path)
    else:
        neocpu.load(path, 1).close()


@pytest.mark.parametrize("field", ["target", "machine"])
def test_long_words_are_read(run, linear, tmp_path, field):
    """The words of a variant that this host does not run may be anything."""
    other = {"isa_features": ("avx99" * 100,), field: "x" * 5000}
    path = with_index(linear.path, tmp_path / "fat.so", linear.header, other, {})
    neocpu.load(path, 1).close()
    done = run(path, "--threads", 1)
    assert done.returncode == 0, done.stderr


def test_both_know_the_same_cpus():
    source = core.ROOT / "src" / "host_cpu.c"
    table = source.read_text().split("cpus[] = {")[1].split("};")[0]
    python = {name for *_, name in cpu_identity._AMD} | {*cpu_identity._INTEL.values()}
    python |= {*cpu_identity._ARM.values(), "skylake-avx512", "cascadelake", "cooperlake"}
    assert set(re.findall(r'"([a-z0-9-]+)"}', table)) == python
