"""Code for every CPU that LLVM knows: a host runs it correctly, or refuses it.

The hosts are this one and QEMU's CPUs; each of these lacks some instruction set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu import core
from neocpu.foundation.errors import TargetError
from neocpu.runtime.artifact import ArtifactFile
from neocpu.schedules.vocabulary import target_parsing as targets
from neocpu.schedules.vocabulary.target import TRIPLES, CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target

SHAPE = (1, 16, 9, 9)
COMPILERS = {"x86_64": "cc", "aarch64": "aarch64-linux-gnu-gcc"}
EMULATORS = {"x86_64": "qemu-x86_64-static", "aarch64": "qemu-aarch64-static"}
HOSTS = {
    "x86_64": ("Nehalem", "Haswell", "kvm64", "phenom", "SandyBridge", "EPYC", "Denverton", "max"),
    "aarch64": ("cortex-a72", "cortex-a76", "cortex-a53", "neoverse-n1", "a64fx", "max"),
}
"""QEMU's names of CPUs; those after the first two are similar to them."""


def every_cpu(machine: str) -> list[CpuTarget]:
    """Return a machine's 64-bit CPUs: all, or the first of every fifth kind.

    Kinds are sorted by the features they demand, most first.
    """
    kinds: dict[tuple[str, ...], list[CpuTarget]] = {}
    for name in targets._cpus(machine):
        try:
            cpu = parse_target(f"llvm -mtriple={TRIPLES[machine]} -mcpu={name}")
        except TargetError:
            continue
        kinds.setdefault(cpu.demands, []).append(cpu)
    ordered = sorted(kinds.items(), key=lambda item: -len(item[0]))
    if needs.EVERYTHING:
        return [cpu for _, alike in ordered for cpu in alike]
    return [alike[0] for _, alike in (*ordered[::5], ordered[-1])]


def network() -> onnx.ModelProto:
    """Return a network of a convolution, a gate, a dense layer and a softmax."""
    rng = np.random.default_rng(0)
    shapes = {"w": (32, 16, 3, 3), "inner": (32, 32, 1, 1), "outer": (32, 32, 1, 1), "d": (32, 10)}
    weights = {name: rng.standard_normal(shape) / 12 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Conv", ["p", "inner"], ["i"]),
        helper.make_node("Relu", ["i"], ["h"]),
        helper.make_node("Conv", ["h", "outer"], ["o"]),
        helper.make_node("Sigmoid", ["o"], ["g"]),
        helper.make_node("Mul", ["r", "g"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "d"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "every",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compile_each(folder: Path, machine: str, verify: bool) -> None:
    """Compile the network for every CPU, inspect it, and run or try to run it.

    Without verification it is only compiled.
    """
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    expected = None
    for cpu in every_cpu(machine):
        path = folder / f"{cpu.mcpu}.so"
        with neocpu.compile(network(), target=cpu, threads=2, verify=verify) as compiled:
            compiled.export(path)
        if not verify:
            continue
        (variant,) = ArtifactFile(path).variants
        assert (variant.obstacle is None) == (compiled.verification is not None), cpu
        if variant.obstacle is not None:
            with pytest.raises(TargetError, match=variant.obstacle):
                neocpu.load(path)
            continue
        with neocpu.load(path) as module:
            found = module(x)
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert expected is not None or not verify


def in_a_child(folder: Path, machine: str, verify: bool) -> None:
    """Compile for every CPU in a child process, which may crash."""
    arguments = f"Path({str(folder)!r}), {machine!r}, {verify}"
    script = f"from pathlib import Path; import test_every_cpu as t; t.compile_each({arguments})"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    written = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime)
    assert done.returncode == 0, f"after {written[-1:]}: {done.returncode} {done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Path]]:
    """Return a function that compiles the network for every CPU of a machine."""
    made: dict[str, list[Path]] = {}

    def of(machine: str) -> list[Path]:
        if machine not in made:
            folder = tmp_path_factory.mktemp(machine)
            in_a_child(folder, machine, verify=False)
            made[machine] = sorted(folder.glob("*.so"))
            assert len(made[machine]) > 5
        return made[machine]

    return of


@pytest.mark.slow
@pytest.mark.timeout(3600)  # of all CPUs, on a busy machine
@needs.machine("x86_64")
def test_this_host_runs_or_refuses_the_code_of_each_cpu(tmp_path: Path) -> None:
    in_a_child(tmp_path, "x86_64", verify=True)
    paths = {path.stem: path for path in tmp_path.glob("*.so")}
    runs = {name for name, path in paths.items() if not ArtifactFile(path).variants[0].obstacle}
    assert 0 < len(runs) < len(paths)
    for first in range(0, len(paths), 30):  # as many as a file may hold
        fat = tmp_path / "fat"
        part = dict(list(paths.items())[first : first + 30])
        neocpu.combine(part, fat)
        if runs & part.keys():
            with neocpu.load(fat) as module:
                assert parse_target(module.metadata.target).mcpu in runs


@pytest.mark.slow
@pytest.mark.timeout(3600)  # of all CPUs, on a busy machine
@needs.one_in(4)
@pytest.mark.parametrize(
    ("machine", "host"), [(machine, host) for machine, hosts in HOSTS.items() for host in hosts]
)
def test_emulated_hosts_run_or_refuse_each(
    artifacts: Callable[[str], list[Path]], tmp_path: Path, machine: str, host: str
) -> None:
    needs.skip(needs.programs(COMPILERS[machine], EMULATORS[machine]))
    needs.skip(needs.linker(machine))
    program = runner(machine, tmp_path)
    codes = {
        path.stem: run(EMULATORS[machine], "-cpu", host, program, path, "--threads", "1")
        for path in artifacts(machine)
    }
    assert set(codes.values()) == {0, TargetError.exit_code}, codes


def runner(machine: str, folder: Path) -> Path:
    """Return the runtime as a program that needs no libraries."""
    path = folder / "neocpu_run"
    flags = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-static", "-pthread", f"-I{core.ROOT}"]
    sources = [core.ROOT / "neocpu_run.c", *core.ROOT.glob("src/*.c")]
    subprocess.run([COMPILERS[machine], *flags, *sources, "-o", path, "-lm"], check=True)
    return path


def run(*command: str | Path) -> int:
    """Return the exit code, or minus the number of the signal that QEMU reports."""
    done = subprocess.run(command, env={}, capture_output=True, check=False)
    return -(code - 128) if (code := done.returncode) > 128 else code
