"""Candidates as shared libraries for a fleet's servers, cross-compiled on this machine."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import tvm
import tvm_ffi

from neocpu.foundation.errors import NeoCPUError
from neocpu.schedules import registry
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measure import Request

HARNESS = Path(__file__).with_name("rpc_harness.c")


def compile_harness(linker: Sequence[str], threads: int, seconds: float, folder: Path) -> Path:
    """Compile what each library carries besides its candidate; return the object file.

    Parameters
    ----------
    linker : sequence of str
        The C++ compiler for the servers' machine.
    threads : int
        Threads a kernel uses.
    seconds : float
        After which a kernel that does not return ends the server's process.

    Raises
    ------
    NeoCPUError
        If the compiler fails.
    """
    output = folder / "harness.o"
    include = tvm_ffi.libinfo.find_include_path()
    dlpack = tvm_ffi.libinfo.find_dlpack_include_path()
    flags = ["-O2", "-fPIC", "-x", "c", f"-I{include}", f"-I{dlpack}"]
    constants = [f'-DNEOCPU_THREADS="{threads}"', f"-DNEOCPU_SECONDS={seconds}"]
    _run([*linker, *flags, *constants, "-c", str(HARNESS), "-o", str(output)])
    return output


class Libraries:
    """Builds the candidates of one target and thread count: a `measuring_process.Builder`."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self._target = target
        self._threads = threads

    def build_library(
        self, request: Request, linker: Sequence[str], harness: Path, library: Path
    ) -> None:
        """Compile a candidate and link it with the harness into ``library``.

        Raises
        ------
        NeoCPUError
            If the linker fails, for which no candidate is to blame.
        """
        lowered = registry.lower(request.workload, request.scheme, self._target, self._threads)
        function = lowered.with_attr("global_symbol", "kernel")
        code = tvm.tirx.build(
            tvm.IRModule({"kernel": function}), self._target.to_tvm(), pipeline=PIPELINE
        )
        compiled = library.with_suffix(".o")
        code.write_to_file(str(compiled))
        flags = ["-shared", "-fPIC", "-Wl,--strip-debug", "-o", str(library)]
        _run([*linker, *flags, str(compiled), str(harness), "-lm"])
        compiled.unlink()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise NeoCPUError(f"'{shlex.join(command)}' failed: {lines[-1]}")
