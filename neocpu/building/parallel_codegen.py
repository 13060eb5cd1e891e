"""Compile scheduled functions to object files, on all CPUs, in child processes that may crash.

The functions of a network do not call each other, so each is an LLVM module of its own, and its
code may be cached (`building.object_cache`). Forked children (`building.forked`) compile the
others, and run TVM's passes written in Python side by side. A function that crashes or hangs a
child is compiled again as simply as possible, with its loops as they stand.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import GlobalVar

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.forked import ForkedJobs, Limits
from neocpu.building.object_cache import ORIGIN, SYMBOL, KernelCode, ObjectCache, anonymous, key_of
from neocpu.building.program import buffer_bytes
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.schedules import registry
from neocpu.schedules.estimates.kernel_work import CLASSES, KernelWork, LoopWork
from neocpu.schedules.estimates.loop_threads import parallel_loops
from neocpu.schedules.estimates.shortcomings import AS_IT_STANDS, Shortcoming, shortcomings
from neocpu.schedules.estimates.work_count import count_work
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.tir.any_size import with_truncated_quotients
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measuring_process import describe

logger = logging.getLogger(__name__)

LIMITS: Final = Limits(cpu_seconds=60, seconds=600.0)
"""Limits of one function. The slowest one of the built-in networks takes one CPU second."""

_NAMED_ORIGINS = 3

NOTHING_COUNTED: Final[Mapping[str, tirx.PrimFunc]] = {}

_PLAINLY: Final = Shortcoming(kind=AS_IT_STANDS, detail="TVM or LLVM fails at it otherwise")

# A module, and the target to build it for.
_ModuleForTarget: TypeAlias = tuple[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A function to compile to an object file; by `_as_it_stands` if it is ``plain``."""

    name: str  # name for messages
    function: Any  # function from `anonymous`
    origins: tuple[str, ...]  # names of the model's tensors that it computes
    path: Path
    counted: Any = None  # the scheduled function whose work is counted, if not its own
    plain: bool = False

    @property
    def notes(self) -> Path:
        return self.path.with_suffix(".json")

    def code(self) -> KernelCode:
        launches, work, doubt, lacks = json.loads(self.notes.read_text())
        if doubt:
            text = "kernel '%s'%s is predicted to move its tensors and nothing else: %s"
            logger.warning(text, self.name, _origin(self), doubt)
        nests = tuple(map(LoopWork.of_json, work))
        found = tuple(map(Shortcoming.of_json, lacks))
        return KernelCode.of(self.function, self.path.read_bytes(), launches, nests, found)


class CodeGeneration:
    """The machine code of every function of a module, made by children within a ``with`` block.

    `counted`: functions, by name, whose work is counted in place of those of any size. Raises
    ArtifactError, also within the block, if there is no room for the objects.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        target: CpuTarget,
        workers: int,
        cache: ObjectCache | None = None,
        counted: Mapping[str, tirx.PrimFunc] = NOTHING_COUNTED,
    ) -> None:
        self._target, self._workers, self._cache = target, workers, cache
        self._keys: dict[str, str] = {}  # by name
        self._codes: dict[str, KernelCode] = {}  # by key
        self._jobs: dict[str, _Job] = {}
        self._folder = TemporaryFolder("objects")
        for var, function in mod.functions_items():
            name = str(var.name_hint)
            self._add(name, function, counted.get(name))
        # Costliest first, so that no CPU is idle for long at the end.
        jobs = list(self._jobs.values())
        on_deep_stack(lambda: jobs.sort(key=lambda job: (-_cost(job.function), job.name)))
        self._jobs = {self._keys[job.name]: job for job in jobs}
        self._running = _in_children(jobs, target, workers, Path(self._folder.name))

    def _add(self, name: str, function: Any, counted: Any) -> None:
        nameless = anonymous(function)
        key = self._keys[name] = key_of(nameless, self._target)
        if key in self._codes or key in self._jobs:
            return
        found = self._cache.find(key) if self._cache is not None else None
        if found is not None:
            self._codes[key] = found
            return
        origins = tuple(map(str, (function.attrs or {}).get(ORIGIN, ())))
        path = Path(self._folder.name) / f"{len(self._jobs)}.o"
        self._jobs[key] = _Job(name, nameless, origins, path, counted)

    def start(self) -> None:
        self._running.start()

    def wait(self) -> None:
        """Wait until the children leave the CPUs free."""
        self._running.wait()

    def codes(self) -> dict[str, KernelCode]:
        """Wait for the code of all functions; return it sorted by name.

        Raises UnsupportedError if TVM or LLVM fails, crashes or does not end on a function.
        """
        outcomes = self._running.outcomes()
        for (key, job), failure in zip(self._jobs.items(), outcomes, strict=True):
            if failure is None:
                self._codes[key] = job.code()
                if self._cache is not None:
                    self._cache.keep(key, self._codes[key])
            else:
                self._codes[key] = _plainly(job, failure, self._target).code()
        if self._cache is not None:
            self._cache.trim()
        return {name: self._codes[key] for name, key in sorted(self._keys.items())}

    def __enter__(self) -> CodeGeneration:
        return self

    def __exit__(self, *exception: Any) -> None:
        """End the children, and delete their files. May be repeated."""
        self._running.close()
        self._jobs.clear()
        self._folder.__exit__(*exception)


class OneAtATime(ExitStack):
    """Code generations that take turns on the CPUs, in a ``with`` block that ends them all."""

    def __init__(self, cache: ObjectCache | None = None) -> None:
        super().__init__()
        self._cache = cache
        self._last: CodeGeneration | None = None

    def start(
        self,
        mod: tvm.IRModule,
        target: CpuTarget,
        workers: int,
        counted: Mapping[str, tirx.PrimFunc] = NOTHING_COUNTED,
    ) -> CodeGeneration:
        """Start a generation once the children of the last one are done; see `CodeGeneration`."""
        if self._last is not None:
            self._last.wait()
        generation = CodeGeneration(mod, target, workers, self._cache, counted)
        self._last = self.enter_context(generation)
        self._last.start()
        return self._last

    def outline(self, recipe: str) -> tirx.PrimFunc | None:
        return None if self._cache is None else self._cache.outline(recipe)

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        # Templates that are not ours may change without a new version of neocpu.
        if self._cache is None or not registry.is_ours():
            return make()
        return self._cache.kept(key, make)


def assembly(mod: tvm.IRModule, target: CpuTarget) -> str:
    """Return the assembly of all functions of ``mod``."""
    scheduled = {var: schedule_function(f, target) for var, f in mod.functions_items()}
    return str(_generate(tvm.IRModule(scheduled), target.to_tvm()).inspect_source("asm"))


def _in_children(jobs: Sequence[_Job], target: CpuTarget, workers: int, folder: Path) -> ForkedJobs:
    return ForkedJobs(lambda index: _do(jobs[index], target), len(jobs), workers, LIMITS, folder)


def _do(job: _Job, target: CpuTarget) -> None:
    schedule = _as_it_stands if job.plain else _scheduled
    mod, how = schedule(job.function, target)
    _generate(mod, how).write_to_file(str(job.path))
    launches = parallel_loops(mod[SYMBOL])
    counted = mod[SYMBOL] if job.counted is None else schedule_function(job.counted, target)
    work, lacks, doubt = _loops_of(counted, parallel_loops(counted), target)
    found = (_PLAINLY,) if job.plain else lacks
    notes = [launches, [nest.to_json() for nest in work], doubt, [each.to_json() for each in found]]
    job.notes.write_text(json.dumps(notes))


def _loops_of(
    function: Any, launches: Sequence[int], target: CpuTarget
) -> tuple[KernelWork, tuple[Shortcoming, ...], str]:
    """Return the work and the shortcomings of a function's loops, and why they are unknown."""
    try:
        work = count_work(function, target)
        return work, shortcomings(function, work), ""
    except Exception as error:  # a failed prediction is no reason to fail the compilation
        # Unknown work counts as moving the function's tensors.
        size = float(sum(buffer_bytes(parameter.ty) for parameter in function.params))
        tasks, cycles = float(max(1, *launches, 1)), (0.0,) * len(CLASSES)
        return (
            (
                LoopWork(
                    tasks=tasks,
                    forks=len(launches),
                    cycles=cycles,
                    size=size,
                    from_l2=size,
                    again=0.0,
                ),
            ),
            (),
            describe(error),
        )


def _plainly(job: _Job, reason: str, target: CpuTarget) -> _Job:
    """Compile a failed function without optimisation, and warn of it."""
    plain = replace(job, plain=True)
    with closing(_in_children([plain], target, 1, job.path.parent)) as running:
        running.start()
        (last,) = running.outcomes()
    if last is not None:
        raise UnsupportedError(
            f"cannot generate code for kernel '{job.name}'{_origin(job)}: {last}; "
            "please report this model"
        )
    logger.warning(
        "kernel '%s'%s is compiled without optimisation, and slow; with it: %s",
        job.name,
        _origin(job),
        reason,
    )
    return plain


def _origin(job: _Job) -> str:
    names = job.origins
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_ORIGINS} more" if len(names) > _NAMED_ORIGINS else ""
    return f" (which makes {', '.join(map(repr, names[:_NAMED_ORIGINS]))}{more})"


def _generate(mod: tvm.IRModule, target: tvm.target.Target) -> Any:
    return tirx.build(mod, target, pipeline=PIPELINE)


def _scheduled(function: Any, target: CpuTarget) -> _ModuleForTarget:
    scheduled = with_truncated_quotients(schedule_function(function, target))
    return tvm.IRModule({GlobalVar(SYMBOL): scheduled}), target.to_tvm()


def _as_it_stands(function: Any, target: CpuTarget) -> _ModuleForTarget:
    """Return a function without unrolled or vectorised loops, and an unoptimising target."""
    plain = function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, _serial)))
    how = tvm.target.Target({**target.to_dict(), "opt-level": 0})
    return tvm.IRModule({GlobalVar(SYMBOL): plain}), how


def _cost(function: Any) -> int:
    found: list[Any] = []
    kinds = (tirx.For, tirx.BufferStore)
    tvm_ffi.structural_walk(function.body, (kinds, found.append), order="pre")
    return len(found)


def _serial(loop: tirx.For) -> tirx.For:
    parallel = int(loop.kind) == tirx.stmt.ForKind.PARALLEL
    kind = tirx.stmt.ForKind.PARALLEL if parallel else tirx.stmt.ForKind.SERIAL
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, step=loop.step)
