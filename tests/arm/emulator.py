"""Programs under qemu: AArch64 ones in the system under ``build/arm``, x86 ones on older CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from sysroot import PYTHON, QEMU, SYSROOT

GUEST = Path(__file__).with_name("guest.py")
X86_QEMU = "qemu-x86_64-static"
# These variables name the CPU to libraries, and would name the host's.
OF_THE_HOST = {"OPENBLAS_CORETYPE", "GLIBC_TUNABLES"}


def arm(
    *command: str | os.PathLike[str], cpu: str = "cortex-a72"
) -> subprocess.CompletedProcess[str]:
    """Run an AArch64 program on one of the CPUs qemu knows."""
    return emulate(QEMU, "-cpu", cpu, "-L", SYSROOT, *command)


def arm_python(*arguments: str | os.PathLike[str], cpu: str = "cortex-a72"):
    """Run Python with numpy and this checkout's neocpu on AArch64."""
    # -P: not the folder of the script, nor the current one, which has a neocpu without its rooms.
    return arm(PYTHON, "-P", *arguments, cpu=cpu)


def x86_python(cpu: str, *arguments: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """Run this very Python on another x86 CPU."""
    return emulate(X86_QEMU, "-cpu", cpu, sys.executable, *arguments)


def run_modules(
    folder: Path, inputs: Mapping[str, Mapping[str, np.ndarray]], cpu: str = "cortex-a72"
) -> dict[str, dict[str, np.ndarray]]:
    """Run the ``NAME.so`` of a folder on AArch64, all in one process; return outputs by NAME."""
    for name, arrays in inputs.items():
        np.savez(folder / f"{name}.in.npz", **arrays)
    done = arm_python(GUEST, folder, cpu=cpu)
    assert done.returncode == 0, done.stderr
    return {name: dict(np.load(folder / f"{name}.out.npz")) for name in inputs}


def emulate(*command: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """Run a command, the emulator first; one that hangs is an error."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_THE_HOST}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
