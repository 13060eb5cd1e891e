"""The numbered phases from a rewritten Relax module to an executable, with a dump between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax import vm_build

from neocpu.parallel_codegen import assembly, compile_objects
from neocpu.passes.plan_memory import plan_memory
from neocpu.passes.state_contract import state_contract
from neocpu.runtime.header import Placement, layout_numbers
from neocpu.schedules.elementwise import schedule_function
from neocpu.schedules.target import CpuTarget

DUMP_VARIABLE = "NEOCPU_DUMP_DIR"


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
        self(phase, lambda: str(mod.script(show_meta=False)), "py")


def lower(mod: tvm.IRModule, target: CpuTarget, dump: Dump) -> tvm.IRModule:
    """Turn the remaining Relax operators into scheduled functions.

    Template calls are opaque to fusion: they carry their epilogues already.
    """
    with target.to_tvm():
        # 1. Operators become TE-made functions, chains of elementwise ones become one.
        mod = tvm.transform.Sequential(
            [
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(),
            ]
        )(mod)
    dump.module("fused", mod)
    # 2. Every function no template scheduled gets the generic schedule.
    functions: dict[Any, Any] = {
        var: schedule_function(func, target) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions_items()
    }
    mod = tvm.IRModule(functions, attrs=mod.attrs)
    dump.module("scheduled", mod)
    return mod


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Code, and the memory it works in.

    Attributes
    ----------
    executable : tvm.relax.VMExecutable
        Its ``main`` takes the inputs, the weights and the activations.
    activations : tuple of Placement
        Of each tensor between two kernels, its place in the arena.
    arena_bytes : int
        Size of the arena.
    """

    executable: Any
    activations: tuple[Placement, ...]
    arena_bytes: int


def build(
    mod: tvm.IRModule,
    target: CpuTarget,
    dump: Dump,
    workers: int = 1,
    row_counts: Sequence[int | None] = (),
) -> Built:
    """Plan memory, generate code on ``workers`` CPUs.

    What `tvm.compile` does, but for the functions' code, which comes as several static libraries,
    and for the memory of what has a static shape.

    Raises
    ------
    NeoCPUError
        As `compile_objects`.
    """
    to_calls = [
        relax.transform.RewriteDataflowReshape(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]
    to_machine = [
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.LowerAllocTensor(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
    with target.to_tvm():
        planned = plan_memory(tvm.transform.Sequential(to_calls)(mod), target)
        dump.module("planned", planned.mod)
        layout = layout_numbers(planned.arena_bytes, planned.activations, row_counts)
        mod = state_contract(planned.mod, layout)
        mod = tvm.transform.Sequential(to_machine)(mod)
    builder = relax.ExecBuilder()
    mod = vm_build._vmcodegen(builder, mod)
    kernels = {var: func for var, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)}
    mod = tvm.IRModule(kernels, attrs=mod.attrs)
    dump("assembly", lambda: assembly(mod, target), "s")
    first, *others = compile_objects(mod, target, workers) or [None]
    linked = vm_build._ffi_api.VMLink(builder, target.to_tvm(), first, others, {})
    return Built(vm_build.VMExecutable(linked), planned.activations, planned.arena_bytes)
