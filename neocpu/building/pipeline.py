"""The numbered phases from a rewritten Relax module to object code, with a dump after each."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.legalizations import LEGALIZATIONS
from neocpu.building.object_cache import ORIGIN
from neocpu.building.parallel_codegen import CodeGeneration, OneAtATime, assembly
from neocpu.building.program import CompiledKernel, Program, program_of
from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import replacing
from neocpu.foundation.machine.machines import MACHINES
from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.ir.expressions import is_op
from neocpu.ir.uses import bindings
from neocpu.lowering.hoist_loops import hoist_loops
from neocpu.lowering.lift_constants import lift_constants
from neocpu.lowering.memory.launching import launch_jointly
from neocpu.lowering.memory.plan_memory import Steps, plan_memory
from neocpu.lowering.reshape_views import join_reshapes, view_results
from neocpu.lowering.values import StoredPlace, with_names
from neocpu.runtime.header_parts import Placement
from neocpu.schedules.estimates.kernel_work import KernelWork
from neocpu.schedules.estimates.loop_threads import MANY_THREADS, piece_of, worthwhile_tasks
from neocpu.schedules.estimates.parallel_run import Piece
from neocpu.schedules.estimates.shortcomings import Shortcoming
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.serving.freed_memory import return_freed_memory

MAX_FUSED: Final = 64
"""Operators of a fused function: compile time grows with their square (TVM's default is 256)."""

DUMP_VARIABLE = "NEOCPU_DUMP_DIR"


class Dump:
    """Writes the result of each phase to ``$NEOCPU_DUMP_DIR``, in nested folders ``parts``."""

    def __init__(self, *parts: str) -> None:
        folder = os.environ.get(DUMP_VARIABLE)
        self._folder = Path(folder, *parts) if folder else None
        self._count = 0

    def __call__(self, phase: str, text: Callable[[], str], suffix: str = "txt") -> None:
        if self._folder is None:
            return
        path, content = self._folder / f"{self._count:02d}-{phase}.{suffix}", text()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fix = f"choose another {DUMP_VARIABLE}"
            raise UsageError(f"cannot write {path}: {error.strerror}; {fix}") from error
        with replacing(path, lasting=False, option=DUMP_VARIABLE) as file:
            file.write(content.encode())
        self._count += 1

    def module(self, phase: str, mod: tvm.IRModule) -> None:
        self(phase, lambda: str(on_deep_stack(mod.script, show_meta=False)), "py")


def lower(
    mod: tvm.IRModule, target: CpuTarget, dump: Dump, names: Collection[str] = ()
) -> tvm.IRModule:
    """Turn the remaining Relax operators into functions, which get the generic schedule later.

    Fusion does not look into template calls: they include their epilogues already. `names` are
    variables of ``main`` whose names survive where fusion leaves their values.
    """
    with target.to_tvm(), tvm.transform.PassContext(config={"relax.FuseOps.max_depth": MAX_FUSED}):
        # 1. Operators become functions made by TE, and chains of elementwise ones become one.
        mod = tvm.transform.Sequential(
            [
                relax.transform.DeadCodeElimination(),  # leftovers of layers that read integers
                relax.transform.LegalizeOps(LEGALIZATIONS),
                relax.transform.AnnotateTIROpPattern(),
            ]
        )(mod)
        fused = relax.transform.FuseOps()(mod)
        mod = with_names(fused, mod, names) if names else fused
        origins = _origins(mod)
        mod = tvm.transform.Sequential(
            [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()]
        )(mod)
        mod = join_reshapes(mod)
    dump.module("fused", mod)
    # 2. Every function gets the names of the model's tensors that it computes.
    functions: dict[Any, Any] = {
        var: func.with_attr(ORIGIN, origins.get(str(var.name_hint), []))
        if isinstance(func, tirx.PrimFunc)
        else func
        for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _origins(mod: tvm.IRModule) -> dict[str, list[str]]:
    """Return the names of the tensors that each function computes, as imported from the model."""
    origins: dict[str, list[str]] = {}
    for caller, func in mod.functions_items():
        if not isinstance(func, relax.Function):
            continue
        for binding in bindings(func):
            called = _callee(binding.value)
            name = caller.name_hint if caller.name_hint != "main" else called
            if name is not None:
                origins.setdefault(name, []).append(str(binding.var.name))
    return origins


def _callee(value: Any) -> str | None:
    if not isinstance(value, Call):
        return None
    callee = value.args[0] if is_op(value, "relax.call_tir") else value.op
    return str(callee.name_hint) if isinstance(callee, GlobalVar) else None


@dataclass(frozen=True, slots=True, eq=False)
class CallPlan:
    """The calls of a model, and the memory they work in."""

    program: Program
    constants: tuple[NDArray[Any], ...]  # weights that follow those of the model
    activations: tuple[Placement, ...]  # place in the arena of each tensor between two kernels
    arena_bytes: int
    starts: tuple[int, ...]  # the first byte of each tensor that lies in no other, in order
    places: Mapping[str, StoredPlace]  # places of the requested variables that are left


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Code that is not linked yet, and its plan."""

    kernels: tuple[CompiledKernel, ...]  # in the order of their names
    work: Mapping[str, KernelWork]
    lacks: Mapping[str, tuple[Shortcoming, ...]]
    planned: CallPlan
    target: CpuTarget  # CPU that the code is for


@dataclass(frozen=True, slots=True, eq=False)
class _Unplaced:
    mod: tvm.IRModule
    constants: tuple[NDArray[Any], ...]  # see `CallPlan`
    written: Mapping[str, int]  # the number of tensors that each kernel writes
    names: Collection[str]  # variables whose places are requested


@dataclass(frozen=True, slots=True, eq=False)
class Building:
    """A module whose code is being generated by child processes."""

    kernels: CodeGeneration
    unplaced: _Unplaced
    planned: CallPlan
    target: CpuTarget


def begin_build(
    mod: tvm.IRModule,
    target: CpuTarget,
    dump: Dump,
    generations: OneAtATime,
    workers: int = 1,
    names: Collection[str] = (),
) -> Building:
    """Plan memory, and let ``workers`` children generate code, as one of ``generations``."""
    unplaced, kernels, planned = on_deep_stack(_plan, mod, target, dump, names)
    dump("assembly", lambda: on_deep_stack(assembly, kernels, target), "s")
    return Building(generations.start(kernels, target, workers), unplaced, planned, target)


def finish_build(building: Building, threads: int = 1) -> Built:
    """Wait for the code; loops that threads slow down use fewer, or are launched jointly."""
    with building.kernels as generation:
        codes = generation.codes()
    kernels = tuple(
        CompiledKernel(
            kernel, worthwhile_tasks(code.work, code.launches, building.target, threads), code.code
        )
        for kernel, code in zip(building.planned.program.kernels, codes.values(), strict=True)
    )
    work = {name: code.work for name, code in codes.items()}
    planned = on_deep_stack(_launch_jointly, building, kernels, work, threads)
    lacks = {name: code.lacks for name, code in codes.items()}
    return Built(kernels, work, lacks, planned, building.target)


def _launch_jointly(
    building: Building,
    kernels: Sequence[CompiledKernel],
    work: Mapping[str, KernelWork],
    threads: int,
) -> CallPlan:
    """Return the plan with calls launched jointly where that is known to pay."""
    machine, unplaced = MACHINES.get(building.target.mcpu), building.unplaced
    before = building.planned
    if machine is None or threads < MANY_THREADS:
        return before
    loops = {each.kernel.name: each.launches for each in kernels}

    def piece(name: str) -> Piece | None:
        return piece_of(work[name], loops[name], building.target, threads)

    found = launch_jointly(
        unplaced.mod, unplaced.written, piece, machine, threads, before.arena_bytes
    )
    if found is None:
        return before
    with building.target.to_tvm():
        planned, _ = _placed(replace(unplaced, mod=found.mod), building.target, found.launches)
    # Another order may need copies of other tensors, by kernels that were not compiled.
    return planned if planned.program.kernels == before.program.kernels else before


def call_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Return ``mod`` with kernels called on their results as arguments, and with views."""
    passes = [
        relax.transform.RewriteDataflowReshape(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
    return tvm.transform.Sequential(passes)(view_results(mod))


def plan_separately(
    mod: tvm.IRModule, target: CpuTarget
) -> tuple[dict[str, tirx.PrimFunc], CallPlan]:
    """Return a lowered module's kernels, and its calls, whose tensors share no memory."""
    _, kernels, planned = on_deep_stack(_plan, mod, target, Dump(), (), separate=True)
    return {str(var.name_hint): func for var, func in kernels.functions_items()}, planned


def _plan(
    mod: tvm.IRModule,
    target: CpuTarget,
    dump: Dump,
    names: Collection[str],
    *,
    separate: bool = False,
) -> tuple[_Unplaced, tvm.IRModule, CallPlan]:
    with target.to_tvm():
        mod = hoist_loops(mod)
        written = _written(mod)
        lifted, constants = lift_constants(call_kernels(mod))
        unplaced = _Unplaced(lifted, constants, written, names)
        planned, placed = _placed(unplaced, target, separate=separate)
        dump.module("planned", placed)
        named = relax.transform.AttachGlobalSymbol()(placed)
    kernels = {
        var: func for var, func in named.functions_items() if isinstance(func, tirx.PrimFunc)
    }
    return unplaced, tvm.IRModule(kernels, attrs=named.attrs), planned


def _placed(
    unplaced: _Unplaced,
    target: CpuTarget,
    launches: Sequence[Steps] = (),
    *,
    separate: bool = False,
) -> tuple[CallPlan, tvm.IRModule]:
    written = unplaced.written
    placed = plan_memory(unplaced.mod, target, written, unplaced.names, launches, separate=separate)
    program = program_of(placed, written)
    planned = CallPlan(
        program=program,
        constants=unplaced.constants,
        activations=placed.activations,
        arena_bytes=placed.arena_bytes,
        starts=placed.starts,
        places=placed.places,
    )
    return planned, placed.mod


def _written(mod: tvm.IRModule) -> dict[str, int]:
    written: dict[str, int] = {}
    for binding in bindings(mod["main"]):
        if is_op(binding.value, "relax.call_tir"):
            kind = binding.value.ty
            count = len(kind.fields) if isinstance(kind, relax.TupleType) else 1
            written[str(binding.value.args[0].name_hint)] = count
    return written


# TVM keeps the functions under construction on one stack for all threads of the process.
BUILDING: Final = threading.Lock()


class PhaseClock:
    """Times the phases and reports the start of each."""

    def __init__(self, report: ProgressCallback) -> None:
        self.report = report
        self.seconds: dict[str, float] = {}
        self._last = ""

    @contextmanager
    def phase(self, name: str, *, alone: bool = True) -> Iterator[None]:
        """Add the block's time to a phase's; if ``alone``, no other thread builds meanwhile."""
        if name != self._last:  # a phase may be resumed
            self._last = name
            self.report(Progress(name))
        with BUILDING if alone else nullcontext():
            start = time.perf_counter()
            yield
            return_freed_memory()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
