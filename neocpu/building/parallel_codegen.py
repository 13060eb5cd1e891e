"""From scheduled functions to object files, on all CPUs, in children that may die of it.

The functions of a network do not call each other, so each small group of them is an LLVM module of
its own. Groups are compiled by forked children (`building.forked`): they hold the functions
already, share this process's memory, and TVM's passes written in Python run side by side. What
crashes or hangs a child is found by compiling its group function by function, and then compiled
with as little ado as possible: not scheduled, or with its loops as they stand.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx

from neocpu.building.forked import ForkedJobs, Limits
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget

logger = logging.getLogger(__name__)

GROUP_SIZE: Final = 8
"""Functions per LLVM module. Fewer are slower in all (each module is set up anew and repeats the
declarations), more leave a CPU idle at the end. It is the same on every machine, and so are then
the objects, whatever the number of CPUs."""

LIMITS: Final = Limits(cpu_seconds=60, seconds=600.0)
"""What a group may take. The slowest of the built-in networks' takes two seconds of a CPU."""

ORIGIN: Final = "neocpu.origin"
"""Attribute of a function: names of the model's tensors that it computes."""
_NAMED_ORIGINS = 3

# A global variable and its ``tirx.PrimFunc``; TVM is untyped.
_NamedFunction: TypeAlias = tuple[Any, Any]
# A module, and the target to build it for.
_Subject: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Functions that become one object file; ``plain`` ones by `_generate_plainly`."""

    functions: Sequence[_NamedFunction]
    path: Path
    plain: bool = False

    @property
    def names(self) -> list[str]:
        return [str(var.name_hint) for var, _ in self.functions]

    @property
    def launches(self) -> Path:
        """Where the iterations of the functions' parallel loops are noted, as JSON."""
        return self.path.with_suffix(".json")


class CodeGeneration:
    """Generates the machine code of every function of a module, in children, in a ``with`` block.

    Parameters
    ----------
    mod : tvm.IRModule
        ``PrimFunc`` only, each with its global symbol. Those that are not scheduled get the generic
        schedule.
    target : CpuTarget
        What to generate code for.
    workers : int
        Groups compiled at a time. The objects do not depend on it.

    Attributes
    ----------
    launches : dict of str to list of int
        Of each function, the iterations of its parallel loops, in turn; once `libraries` is called.

    Raises
    ------
    ArtifactError
        If there is no room for the objects, in the block too.
    """

    def __init__(self, mod: tvm.IRModule, target: CpuTarget, workers: int) -> None:
        functions = sorted(mod.functions_items(), key=lambda item: str(item[0].name_hint))
        groups = [functions[i : i + GROUP_SIZE] for i in range(0, len(functions), GROUP_SIZE)]
        self.launches: dict[str, list[int]] = {}
        self._target, self._workers = target, workers
        self._folder = TemporaryFolder("objects")
        folder = Path(self._folder.name)
        self._jobs = [_Job(group, folder / f"{index}.o") for index, group in enumerate(groups)]
        self._running = _in_children(self._jobs, target, workers, folder)

    def start(self) -> None:
        """Start the children.

        Raises
        ------
        NeoCPUError
            If the system has no process to give.
        """
        self._running.start()

    def wait(self) -> None:
        """Wait until the children leave the CPUs to others."""
        self._running.wait()

    def objects(self) -> list[bytes]:
        """Wait for all object files.

        Returns
        -------
        list of bytes
            Their content, in the order of the functions' names.

        Raises
        ------
        UnsupportedError
            If TVM or LLVM fails, crashes or does not end on a function, naming it.
        NeoCPUError
            If the system has no process to give.
        """
        done: list[_Job] = []
        for job, failure in zip(self._jobs, self._running.outcomes(), strict=True):
            if failure is None:
                done.append(job)
            else:
                done += _one_by_one(job, failure, self._target, self._workers)
        for job in done:
            self.launches |= json.loads(job.launches.read_text())
        return [job.path.read_bytes() for job in done]

    def __enter__(self) -> CodeGeneration:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the children, and delete what they wrote. May be repeated."""
        self._running.close()
        self._jobs.clear()
        self._folder.__exit__(kind, error, trace)


class OneAtATime(ExitStack):
    """Code generations of which one has the CPUs at a time, in a ``with`` block that ends all."""

    def __init__(self) -> None:
        super().__init__()
        self._last: CodeGeneration | None = None

    def start(self, mod: tvm.IRModule, target: CpuTarget, workers: int) -> CodeGeneration:
        """Generate code once the children before are done; see `CodeGeneration`.

        Raises
        ------
        NeoCPUError
            If the system has no process to give.
        """
        if self._last is not None:
            self._last.wait()
        self._last = self.enter_context(CodeGeneration(mod, target, workers))
        self._last.start()
        return self._last


def assembly(mod: tvm.IRModule, target: CpuTarget) -> str:
    """Return the assembly of all functions of ``mod``."""
    functions = list(mod.functions_items())
    return str(_generate(*_scheduled(functions, target)).inspect_source("asm"))


def _in_children(jobs: Sequence[_Job], target: CpuTarget, workers: int, folder: Path) -> ForkedJobs:
    def work(index: int) -> None:
        job = jobs[index]
        schedule = _as_they_stand if job.plain else _scheduled
        mod, how = schedule(job.functions, target)
        _generate(mod, how).write_to_file(str(job.path))
        job.launches.write_text(json.dumps(_launches(mod)))

    return ForkedJobs(work, len(jobs), workers, LIMITS, folder)


def _run(jobs: Sequence[_Job], target: CpuTarget, workers: int) -> list[str | None]:
    """Return what went wrong with each job, None if nothing did."""
    with closing(_in_children(jobs, target, workers, jobs[0].path.parent)) as running:
        running.start()
        return running.outcomes()


def _one_by_one(job: _Job, failure: str, target: CpuTarget, workers: int) -> list[_Job]:
    """Compile the functions of a group that failed each alone, and what fails again plainly."""
    alone = [
        _Job([function], job.path.with_name(f"{job.path.stem}-{index}.o"))
        for index, function in enumerate(job.functions)
    ]
    failures = _run(alone, target, workers) if len(alone) > 1 else [failure]
    for index, (single, reason) in enumerate(zip(alone, failures, strict=True)):
        if reason is None:
            continue
        (name,) = single.names
        alone[index] = _Job(single.functions, single.path, plain=True)
        (last,) = _run([alone[index]], target, 1)
        if last is not None:
            raise UnsupportedError(
                f"cannot generate code for kernel '{name}'{_origin(single)}: {reason}; "
                "please report this model"
            )
        logger.warning(
            "kernel '%s'%s is compiled without optimisation, and slow; with it: %s",
            name,
            _origin(single),
            reason,
        )
    return alone


def _origin(job: _Job) -> str:
    ((_, function),) = job.functions
    names = [str(name) for name in (function.attrs or {}).get(ORIGIN, ())]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_ORIGINS} more" if len(names) > _NAMED_ORIGINS else ""
    return f" (which makes {', '.join(map(repr, names[:_NAMED_ORIGINS]))}{more})"


def _generate(mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    return tirx.build(mod, target, pipeline=PIPELINE)


def _scheduled(functions: Sequence[_NamedFunction], target: CpuTarget) -> _Subject:
    scheduled = {var: schedule_function(function, target) for var, function in functions}
    return tvm.IRModule(scheduled), target.to_tvm()


def _as_they_stand(functions: Sequence[_NamedFunction], target: CpuTarget) -> _Subject:
    """Return what has no loop unrolled or vectorised, for a target without optimisation."""
    plain = {
        var: function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, _serial)))
        for var, function in functions
    }
    return tvm.IRModule(plain), tvm.target.Target({**target.to_dict(), "opt-level": 0})


def _launches(mod: tvm.IRModule) -> dict[str, list[int]]:
    """Return the iterations of each function's parallel loops, in turn.

    Those of a loop that is not of constant extent are unknown, 0; of loops in a loop all is said
    once.
    """
    launches: dict[str, list[int]] = {}
    for var, function in mod.functions_items():
        found = launches.setdefault(str(var.name_hint), [])

        def note(loop: tirx.For, found: list[int] = found) -> None:
            if int(loop.kind) == tirx.stmt.ForKind.PARALLEL:
                constant = isinstance(loop.extent, tirx.IntImm)
                found.append(int(loop.extent) if constant else 0)

        tvm_ffi.structural_walk(function.body, (tirx.For, note), order="pre")
    return launches


def _serial(loop: tirx.For) -> tirx.For:
    parallel = int(loop.kind) == tirx.stmt.ForKind.PARALLEL
    kind = tirx.stmt.ForKind.PARALLEL if parallel else tirx.stmt.ForKind.SERIAL
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, step=loop.step)
