"""From scheduled functions to object files, on all CPUs.

The functions of a network do not call each other, so each small group of them is an LLVM module of
its own. TVM's passes and LLVM run without Python's lock and keep no state between modules: threads
scale, need no second copy of TVM, and leave no process behind when they are interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import tvm

from neocpu.schedules.codegen import PIPELINE
from neocpu.schedules.errors import NeoCPUError
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.temporary import TemporaryFolder
from neocpu.search.worker import describe

#: Functions per LLVM module. Fewer are slower in all (each module is set up anew and repeats the
#: declarations), more leave a CPU idle at the end. It is the same on every machine, and so are then
#: the objects, whatever the number of CPUs.
GROUP_SIZE: Final = 8

# A global variable and its ``tirx.PrimFunc``; TVM is untyped.
_NamedFunction: TypeAlias = tuple[Any, Any]
_Job: TypeAlias = tuple[Sequence[_NamedFunction], Path]


def compile_objects(mod: tvm.IRModule, target: CpuTarget, workers: int) -> list[Any]:
    """Generate the machine code of every function of ``mod``.

    Parameters
    ----------
    mod : tvm.IRModule
        Scheduled ``PrimFunc`` only, each with its global symbol.
    target : CpuTarget
        What to generate code for.
    workers : int
        Groups compiled at a time. The objects do not depend on it.

    Returns
    -------
    list of tvm.runtime.Module
        Static libraries, in the order of the functions' names.

    Raises
    ------
    NeoCPUError
        If TVM or LLVM fails on a function, naming it.
    """
    functions = sorted(mod.functions_items(), key=lambda item: str(item[0].name_hint))
    groups = [functions[i : i + GROUP_SIZE] for i in range(0, len(functions), GROUP_SIZE)]
    with TemporaryFolder("objects") as folder:
        paths = [Path(folder) / f"{index}.o" for index in range(len(groups))]
        jobs = list(zip(groups, paths, strict=True))
        return list(_map(partial(_compile_group, target=target), jobs, workers))


def assembly(mod: tvm.IRModule, target: CpuTarget) -> str:
    """Return the assembly of all functions of ``mod``."""
    return str(_generate(list(mod.functions_items()), target).inspect_source("asm"))


def _map(function: Callable[[_Job], Any], jobs: Sequence[_Job], workers: int) -> Iterator[Any]:
    """Yield ``function(job)`` in order; a failure or Ctrl-C drops what has not started."""
    if workers == 1 or len(jobs) < 2:
        yield from map(function, jobs)
        return
    pool = ThreadPoolExecutor(min(workers, len(jobs)), thread_name_prefix="neocpu-codegen")
    try:
        yield from pool.map(function, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def _compile_group(job: _Job, target: CpuTarget) -> Any:
    group, path = job
    names = [str(var.name_hint) for var, _ in group]
    try:
        _generate(group, target).write_to_file(str(path))
    except Exception as error:
        if len(group) > 1:  # to say which
            for function in group:
                _compile_group(([function], path), target)
        raise NeoCPUError(
            f"cannot generate code for kernel '{names[0]}': {describe(error)}; "
            "please report this model"
        ) from error
    return tvm.runtime.load_static_library(str(path), names)


def _generate(group: Sequence[_NamedFunction], target: CpuTarget) -> Any:
    return tvm.tirx.build(tvm.IRModule(dict(group)), target.to_tvm(), pipeline=PIPELINE)
