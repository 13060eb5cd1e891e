"""The numbered phases from a rewritten Relax module to an executable, with a dump between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar
from tvm.relax import vm_build

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.kernel_table import table_source
from neocpu.building.parallel_codegen import ORIGIN, CodeGeneration, OneAtATime, assembly
from neocpu.building.program import Program, program_of
from neocpu.passes.lift_constants import lift_constants
from neocpu.passes.plan_memory import PlannedModule, plan_memory
from neocpu.passes.state_contract import state_contract
from neocpu.passes.view_results import view_results
from neocpu.relax_utils import bindings, is_op
from neocpu.runtime.artifact_file.header import Placement, layout_numbers
from neocpu.schedules.operators.normalization import group_norm, layer_norm
from neocpu.schedules.vocabulary.target import CpuTarget

MAX_FUSED: Final = 64
"""Operators of one fused function: scheduling one, and LLVM's time for it, grow with their square.
TVM's default is 256."""

DUMP_VARIABLE = "NEOCPU_DUMP_DIR"


def _layer_norm(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    return bb.call_te(layer_norm, *call.args, call.attrs.axes, call.attrs.epsilon)


def _group_norm(bb: relax.BlockBuilder, call: Call) -> relax.Expr:
    attrs = call.attrs
    return bb.call_te(group_norm, *call.args, attrs.num_groups, attrs.epsilon)


LEGALIZATIONS: Final = {"relax.nn.layer_norm": _layer_norm, "relax.nn.group_norm": _group_norm}
"""Operators that are not computed as TVM defines them."""


class Dump:
    """Writes what each phase produced to ``$NEOCPU_DUMP_DIR``, numbered; else does nothing."""

    def __init__(self, folder: str | None = None) -> None:
        folder = folder or os.environ.get(DUMP_VARIABLE)
        self._folder = Path(folder) if folder else None
        self._count = 0

    def __call__(self, phase: str, text: Callable[[], str], suffix: str = "txt") -> None:
        """Write ``text()`` as the next numbered file."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{self._count:02d}-{phase}.{suffix}").write_text(text())
        self._count += 1

    def module(self, phase: str, mod: tvm.IRModule) -> None:
        """Write an IR module, weights elided."""
        self(phase, lambda: str(on_deep_stack(mod.script, show_meta=False)), "py")


def lower(mod: tvm.IRModule, target: CpuTarget, dump: Dump) -> tvm.IRModule:
    """Turn the remaining Relax operators into functions, to be scheduled generically.

    Template calls are opaque to fusion: they carry their epilogues already.
    """
    with target.to_tvm(), tvm.transform.PassContext(config={"relax.FuseOps.max_depth": MAX_FUSED}):
        # 1. Operators become TE-made functions, chains of elementwise ones become one.
        mod = tvm.transform.Sequential(
            [
                relax.transform.LegalizeOps(LEGALIZATIONS),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
            ]
        )(mod)
        origins = _origins(mod)
        mod = tvm.transform.Sequential(
            [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()]
        )(mod)
    dump.module("fused", mod)
    # 2. Every function knows what of the model it computes.
    functions: dict[Any, Any] = {
        var: func.with_attr(ORIGIN, origins.get(str(var.name_hint), []))
        if isinstance(func, tirx.PrimFunc)
        else func
        for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _origins(mod: tvm.IRModule) -> dict[str, list[str]]:
    """Return the names of what each function computes, which the importer took from the model."""
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
    """Return the name of the function that a Relax expression calls."""
    if not isinstance(value, Call):
        return None
    callee = value.args[0] if is_op(value, "relax.call_tir") else value.op
    return str(callee.name_hint) if isinstance(callee, GlobalVar) else None


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Code, and the memory it works in.

    Attributes
    ----------
    executable : tvm.relax.VMExecutable
        Its ``main`` takes the inputs, the weights and the activations.
    program : Program
        What its ``main`` does.
    table : str
        Source of the table of its kernels.
    constants : tuple of array
        What ``main`` takes after the weights.
    activations : tuple of Placement
        Of each tensor between two kernels, its place in the arena.
    arena_bytes : int
        Size of the arena.
    target : CpuTarget
        What the code is for.
    """

    executable: Any
    program: Program
    table: str
    constants: tuple[NDArray[Any], ...]
    activations: tuple[Placement, ...]
    arena_bytes: int
    target: CpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class Building:
    """A module of which children generate the code.

    Attributes
    ----------
    builder : tvm.relax.ExecBuilder
        Holds ``main`` as the virtual machine's code, which calls the kernels.
    program : Program
        The same as a table.
    constants : tuple of array
        What ``main`` takes after the weights.
    kernels : CodeGeneration
    planned : PlannedModule
        The memory of what has a static shape.
    target : CpuTarget
    """

    builder: Any
    program: Program
    constants: tuple[NDArray[Any], ...]
    kernels: CodeGeneration
    planned: PlannedModule
    target: CpuTarget


def begin_build(
    mod: tvm.IRModule,
    target: CpuTarget,
    dump: Dump,
    generations: OneAtATime,
    workers: int = 1,
    row_counts: Sequence[int | None] = (),
) -> Building:
    """Plan memory, and have children generate code on ``workers`` CPUs, as one of ``generations``.

    With `finish_build` this is `tvm.compile`, but for the functions' code, which comes as several
    static libraries, and for the memory of what has a static shape.

    Raises
    ------
    NeoCPUError
        If the system has no process to give.
    """
    builder, program, constants, kernels, planned = on_deep_stack(
        _to_calls, mod, target, dump, row_counts
    )
    dump("assembly", lambda: on_deep_stack(assembly, kernels, target), "s")
    generation = generations.start(kernels, target, workers)
    return Building(builder, program, constants, generation, planned, target)


def finish_build(building: Building) -> Built:
    """Wait for the kernels' code, and link it with the virtual machine's.

    Raises
    ------
    UnsupportedError, NeoCPUError
        As `CodeGeneration.libraries`.
    """
    with building.kernels as kernels:
        first, *others = kernels.libraries() or [None]
        table = table_source(building.program.kernels, kernels.launches)
    target = building.target.to_tvm()
    linked = vm_build._ffi_api.VMLink(building.builder, target, first, others, {})
    planned = building.planned
    return Built(
        vm_build.VMExecutable(linked),
        building.program,
        table,
        building.constants,
        planned.activations,
        planned.arena_bytes,
        building.target,
    )


def call_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Return ``mod`` with calls of kernels that take their results as arguments, and with views."""
    passes = [
        relax.transform.RewriteDataflowReshape(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
    return tvm.transform.Sequential(passes)(view_results(mod))


def _to_calls(
    mod: tvm.IRModule, target: CpuTarget, dump: Dump, row_counts: Sequence[int | None]
) -> tuple[Any, Program, tuple[NDArray[Any], ...], tvm.IRModule, PlannedModule]:
    """Return ``main`` as the virtual machine's code and as a table, its constants and kernels."""
    to_machine = [
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.LowerAllocTensor(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
    with target.to_tvm():
        written = _written(mod)
        lifted, constants = lift_constants(call_kernels(mod))
        planned = plan_memory(lifted, target)
        program = program_of(planned.mod, written)
        dump.module("planned", planned.mod)
        layout = layout_numbers(planned.arena_bytes, planned.activations, row_counts)
        mod = state_contract(planned.mod, layout)
        mod = tvm.transform.Sequential(to_machine)(mod)
    builder = relax.ExecBuilder()
    mod = vm_build._vmcodegen(builder, mod)
    kernels = {var: func for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)}
    return builder, program, constants, tvm.IRModule(kernels, attrs=mod.attrs), planned


def _written(mod: tvm.IRModule) -> dict[str, int]:
    """Return how many tensors each kernel writes."""
    written: dict[str, int] = {}
    for binding in bindings(mod["main"]):
        if is_op(binding.value, "relax.call_tir"):
            kind = binding.value.ty
            count = len(kind.fields) if isinstance(kind, relax.TupleType) else 1
            written[str(binding.value.args[0].name_hint)] = count
    return written
