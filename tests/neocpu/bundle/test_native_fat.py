"""Of a file for several CPUs the C program takes the part that Python takes."""

import os
import re
from dataclasses import replace
from importlib.resources import files

import needs
import numpy as np
import pytest

import neocpu
from neocpu.fat_file import combine
from neocpu.link import write_artifact
from neocpu.schedules import cpu_identity
from neocpu.schedules.cpu_identity import host_cpu
from neocpu.schedules.errors import NeoCPUError

CPU = host_cpu() or "unknown"
HERE = "avx2" if os.uname().machine == "x86_64" else "neon"


@pytest.fixture
def variants(linear, tmp_path):
    """Write a file of variants with given targets and instruction sets; weights tell them apart."""

    def write(*each):
        sources = {}
        for number, (cpu, features) in enumerate(each, 1):
            header = replace(linear.header, target=f"llvm -mcpu={cpu}", isa_features=features)
            weights = [weight * np.float32(number) for weight in linear.weights]
            sources[f"v{number}"] = tmp_path / f"{number}.so"
            write_artifact(linear.executable, weights, header, sources[f"v{number}"])
        combine(sources, tmp_path / "fat.so")
        return tmp_path / "fat.so"

    return write


@needs.instruction_set(HERE)
@pytest.mark.parametrize(
    "each",
    [
        [("a", ())],
        [("a", ()), ("b", (HERE,)), ("c", ("avx99",))],
        [("a", (HERE,)), ("b", (HERE,))],
        [("a", (HERE,)), (CPU, ()), (f"{CPU}x", (HERE,))],
        [("neon99", ("neon99",)), ("a", ())],
    ],
)
def test_the_same_part_is_run(run, linear, variants, tmp_path, each):
    path = variants(*each)
    (x,) = linear.inputs()
    np.save(tmp_path / "x.npy", x)
    with neocpu.load(path) as module:
        expected = module(x)
    done = run(path, tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_refusals_are_those_of_python(run, linear, variants, tmp_path):
    path = variants(("a", ("avx99",)), ("b", ("avx77", "avx88")))
    np.save(tmp_path / "x.npy", linear.inputs()[0])
    whole = path.read_bytes()
    for content, code in (
        (whole, 5),
        (whole[:-1], 8),
        (whole[:5000], 8),
        (b"NEOCPU-FAT 2\n{}\n", 8),
    ):
        path.write_bytes(content)
        with pytest.raises(NeoCPUError) as caught:
            neocpu.load(path)
        done = run(path, tmp_path / "x.npy")
        assert done.returncode == caught.value.exit_code == code
        if code == 5:
            assert "v1 (lacks avx99); v2 (lacks avx77, avx88)" in str(caught.value)
            assert str(caught.value).split(" can run: ")[1] in done.stderr


def test_both_know_the_same_cpus():
    source = files("neocpu.bundle") / "native" / "src" / "host_cpu.c"
    table = source.read_text().split("cpus[] = {")[1].split("};")[0]
    python = {name for *_, name in cpu_identity._AMD} | {*cpu_identity._INTEL.values()}
    python |= {*cpu_identity._ARM.values(), "skylake-avx512", "cascadelake", "cooperlake"}
    assert set(re.findall(r'"([a-z0-9-]+)"}', table)) == python
