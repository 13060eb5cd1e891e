"""A bundle's C program: cross-compiled and run on AArch64, and its gate on an older x86 CPU."""

import shutil
import subprocess

import needs
import numpy as np
import pytest
from emulator import X86_QEMU, arm, emulate, run_modules
from small_model import IMAGE, small_model

import neocpu
from neocpu.foundation.errors import TargetError
from neocpu.runtime.bundle.write_bundle import write_bundle

PROGRAM = "neocpu_run"


def build(model, folder, target, tools=""):
    """Compile a model and its bundle's program; return the bundle's folder."""
    artifact = folder / "model.so"
    with neocpu.compile(model, target=target, threads=2, verify=False) as compiled:
        compiled.export(artifact)
    write_bundle(artifact, folder / "bundle")
    done = subprocess.run(
        ["make", f"CC={tools}gcc", f"AR={tools}ar", "CFLAGS=-O2 -Werror"],
        cwd=folder / "bundle",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "bundle"


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The small model's bundle for a Raspberry Pi 4."""
    folder = tmp_path_factory.mktemp("board")
    return build(small_model(), folder, "rpi4", "aarch64-linux-gnu-")


def test_the_c_program_and_python_agree_on_arm(board, tmp_path):
    np.save(tmp_path / "x.npy", IMAGE)
    for threads in ("1", "2"):
        output = tmp_path / f"{threads}.npy"
        done = arm(
            *(board / PROGRAM, board / "model.so", tmp_path / "x.npy"),
            *("-o", output, "--threads", threads, "--repeat", "3"),
        )
        assert done.returncode == 0, done.stderr
    shutil.copy(board / "model.so", tmp_path)
    expected = run_modules(tmp_path, {"model": {"x": IMAGE}})["model"]["y"]
    for threads in ("1", "2"):
        np.testing.assert_array_equal(np.load(tmp_path / f"{threads}.npy"), expected)


def test_the_c_program_refuses_another_cpus_code(board, tmp_path):
    for target, reason in (("rpi5", "lacks dotprod"), ("sapphirerapids", "x86_64")):
        artifact = tmp_path / f"{target}.so"
        with neocpu.compile(small_model(), target=target, threads=2, verify=False) as compiled:
            compiled.export(artifact)
        done = arm(board / PROGRAM, artifact)
        assert done.returncode == TargetError.exit_code, done.stderr
        assert reason in done.stderr


@needs.machine("x86_64")
def test_the_c_program_refuses_avx_on_an_older_cpu(tmp_path):
    bundle = build(small_model(), tmp_path, "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    command = (bundle / PROGRAM, bundle / "model.so")
    done = emulate(X86_QEMU, "-cpu", "Nehalem", *command)
    assert done.returncode == TargetError.exit_code, done.stderr
    assert "avx2" in done.stderr
    assert emulate(X86_QEMU, "-cpu", "Haswell", *command).returncode == 0
