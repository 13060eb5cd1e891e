"""Candidates as shared libraries for a fleet's servers, cross-compiled on this machine."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import tvm
import tvm_ffi

from neocpu.core import ROOT
from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.linker import cause
from neocpu.schedules import registry
from neocpu.schedules.estimates.loop_threads import kernel_tasks
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measure import Request

HARNESS = Path(__file__).with_name("rpc_harness.c")
# The parts of the runtime that share loops out among threads, and the parts that those need.
CORE = (
    "cpus.c",
    "denormals.c",
    "error.c",
    "features.c",
    "kernel_calls.c",
    "pool.c",
    "threads.c",
    "trace.c",
    "workspace.c",
)


def compile_harness(
    linker: Sequence[str], threads: int, seconds: float, folder: Path
) -> tuple[Path, ...]:
    """Compile what each library carries besides its candidate; return the object files. `linker` is
    the C++ compiler for the servers' machine. A kernel uses ``threads`` if the server has as many
    CPUs, and the server's process ends after ``seconds`` of it.
    """
    include = tvm_ffi.libinfo.find_include_path()
    dlpack = tvm_ffi.libinfo.find_dlpack_include_path()
    source = ROOT / "src"
    sources = [HARNESS, *(source / name for name in CORE)]
    flags = ["-O2", "-fPIC", "-pthread", "-x", "c", "-std=gnu11", "-D_GNU_SOURCE"]
    flags += [f"-I{include}", f"-I{dlpack}", f"-iquote{ROOT}", f"-iquote{source}"]
    flags += [f"-DNEOCPU_THREADS={threads}", f"-DNEOCPU_SECONDS={seconds}"]
    objects = []
    for path in sources:
        objects.append(folder / path.with_suffix(".o").name)
        _run(linker, [*flags, "-c", str(path), "-o", str(objects[-1])])
    return tuple(objects)


class Libraries:
    """Builds the candidates of one target and thread count: a `measuring_process.Builder`."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self._target = target
        self._threads = threads

    def build_library(
        self, request: Request, linker: Sequence[str], harness: Sequence[Path], library: Path
    ) -> tuple[int, ...]:
        """Compile a candidate and link it with the harness into ``library``. Returns its
        `kernel_tasks`. Raises NeoCPUError if the linker fails; no candidate is to blame for that.
        """
        lowered = registry.lower(request.workload, request.scheme, self._target, self._threads)
        function = lowered.with_attr("global_symbol", "kernel")
        code = tvm.tirx.build(
            tvm.IRModule({"kernel": function}), self._target.to_tvm(), pipeline=PIPELINE
        )
        compiled = library.with_suffix(".o")
        code.write_to_file(str(compiled))
        # The library's own functions are called, whatever the server has of the same names.
        flags = ["-shared", "-fPIC", "-pthread", "-Wl,--strip-debug,-Bsymbolic"]
        objects = map(str, (compiled, *harness))
        _run(linker, [*flags, "-o", str(library), *objects, "-lm"])
        compiled.unlink()
        return kernel_tasks(lowered, self._target, self._threads)


def _run(linker: Sequence[str], arguments: Sequence[str]) -> None:
    done = subprocess.run([*linker, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NeoCPUError(
            f"'{shlex.join(linker)}' failed: {cause(done.stderr or done.stdout)}; is it a working "
            "C++ compiler for the servers' machine?"
        )
