"""Building and running one PrimFunc in a test."""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, tirx

from neocpu.building.pipeline import LEGALIZATIONS
from neocpu.runtime.guarding import is_guarded
from neocpu.runtime.guarding.guarded_memory import EDGES, Workspaces, guarded
from neocpu.runtime.header import ARGUMENT_ALIGN
from neocpu.schedules import registry
from neocpu.schedules.estimates.loop_threads import kernel_tasks
from neocpu.schedules.tir import codegen
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import host_target, parse_target
from neocpu.search.measuring.kernel_calls import (
    Argument,
    Kernel,
    KernelPool,
    compile_kernels,
    lend_backend,
)

HOST = host_target()
# Loops are shared out among so many threads, if this machine has as many CPUs.
THREADS = 2
WORKSPACES = Workspaces()
# Targets whose code is generated, but not run, wherever the tests run.
FOREIGN = (
    parse_target("llvm -mcpu=haswell"),
    parse_target("llvm -mcpu=skylake-avx512"),
    parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
)


def float32(block: int) -> Format:
    """Return the format NCHW[block]c of float32."""
    return Format(DataLayout(block), "float32")


def run(func, inputs: Sequence[NDArray], shape: tuple[int, ...], dtype: str = "float32"):
    """Compile ``func`` for this host and return its last argument, an output of ``shape``."""
    (output,) = call(build(func), inputs, [unwritten(shape, dtype)])
    return output


def unwritten(shape: tuple[int, ...], dtype: str = "float32") -> NDArray:
    """Return an output of NaN, or with all bits set, so that unwritten elements show."""
    return np.full(shape, np.nan if dtype.startswith("float") else -1).astype(dtype)


def taking_any_alignment(func):
    """Return a lowered function with unaligned arguments, which can end exactly at a page."""

    def forget(attribute):
        if attribute.attr_key != "storage_alignment":
            return attribute
        one = tirx.const(1, "int32")
        return tirx.AttrStmt(attribute.node, attribute.attr_key, one, attribute.body)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AttrStmt, forget)))


def pipeline(change):
    """Return neocpu's pipeline, which changes each function once its buffers are flat."""
    lower, finalize, device = codegen._pipeline()

    @tirx.transform.prim_func_pass(opt_level=0, name="Change")
    class Change:
        def transform_function(self, func, mod, ctx):
            return change(func)

    return lower, lambda: tvm.transform.Sequential([Change(), finalize()]), device


EXACT = "neocpu, arguments of any alignment"
tirx.register_tir_pipeline(EXACT, lambda: pipeline(taking_any_alignment))


def build(func) -> Callable[..., Any]:
    """Compile ``func`` for this host; see `build_all`."""
    return build_all({"main": func})[0]


def build_all(functions: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """Compile functions for this host, to be called on the runtime's threads.

    Under ``NEOCPU_GUARD=1`` arguments can end exactly at a page, and kernels are in a library,
    because only a library's workspaces can be guarded.
    """
    if not is_guarded():
        return [runnable(each) for each in compile_kernels(functions, HOST, THREADS)]
    named = {name: each.with_attr("global_symbol", name) for name, each in functions.items()}
    module = load_guarded(tvm.tirx.build(tvm.IRModule(named), HOST.to_tvm(), pipeline=EXACT))
    return [
        runnable(Kernel.of(module[name], kernel_tasks(each, HOST, THREADS)))
        for name, each in functions.items()
    ]


def runnable(kernel: Kernel) -> Callable[..., Any]:
    """Return a function that calls a kernel with tensors."""

    def run(*tensors) -> None:
        arguments = [
            Argument(address=each.data_ptr(), shape=tuple(each.shape), dtype=str(each.dtype))
            for each in tensors
        ]
        pool().call(kernel, arguments)

    return run


@functools.cache
def pool() -> KernelPool:
    """Return the threads of all tests of this process."""
    return KernelPool(THREADS)


def load_guarded(built) -> Any:
    """Load a built module again as a library whose workspaces meet inaccessible pages."""
    lend_backend()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "kernel.so")
        built.export_library(path)
        loaded = tvm.runtime.load_module(path)
        lend_workspaces(path)
    return loaded


def lend_workspaces(path: str) -> None:
    """Have the kernels of a library that is loaded allocate in `WORKSPACES`."""
    code = ctypes.CDLL(path)
    for name, function in (
        ("__TVMBackendAllocWorkspace", WORKSPACES.allocate),
        ("__TVMBackendFreeWorkspace", WORKSPACES.release),
    ):
        try:
            variable = ctypes.c_void_p.in_dll(code, name)
        except ValueError:  # none of its kernels needs a workspace
            continue
        variable.value = ctypes.cast(function, ctypes.c_void_p).value
    # Kept open, it would be taken for the next file that gets its inode.
    _ctypes.dlclose(code._handle)


def call(
    kernel: Callable[..., Any],
    inputs: Sequence[NDArray],
    outputs: Sequence[NDArray],
    exact: bool | None = None,
) -> list[NDArray]:
    """Call a kernel on copies of its arguments and return the outputs.

    It is called twice: with arguments that end at inaccessible pages, and that begin after them.
    ``exact`` says whether they may start anywhere; by default, what `build` compiles for.
    """
    alignment = 1 if (is_guarded() if exact is None else exact) else ARGUMENT_ALIGN
    results = []
    for edge in EDGES:
        arguments = [
            guarded(np.ascontiguousarray(one), edge, alignment) for one in (*inputs, *outputs)
        ]
        for argument in arguments[: len(inputs)]:
            argument.make_read_only()
        arrays = [
            argument.array(one.shape, one.dtype)
            for argument, one in zip(arguments, (*inputs, *outputs), strict=True)
        ]
        WORKSPACES.edge = edge
        # Numpy cannot export bfloat16, and kernels do not check types.
        plain = (one.view(np.uint16) if one.dtype.kind == "V" else one for one in arrays)
        kernel(*map(tvm_ffi.from_dlpack, plain))
        strays = [argument.stray_write() for argument in arguments]
        assert not any(strays), f"written beside its arguments: {strays}"
        assert not (strays := WORKSPACES.take_strays()), f"beside workspaces: {strays}"
        results.append(arrays[len(inputs) :])
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes(), "depends on what lies beside the arguments"
    return results[0]


def compile_for(func, target: CpuTarget) -> str:
    """Return the assembly of ``func`` for ``target``."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.tirx.build(module, target.to_tvm(), pipeline=PIPELINE)
    return str(built.inspect_source("asm"))


def fuse(build: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Any, list[int]]:
    """Return the single fused PrimFunc and the order its inputs are passed in."""
    bb = relax.BlockBuilder()
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip(names, shapes, strict=True)
    ]
    with bb.function("main", inputs):
        with bb.dataflow():
            output = bb.emit_output(build(relax.op, *inputs))
        bb.emit_func_output(output)
    passes = [
        relax.transform.LegalizeOps(LEGALIZATIONS),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    module = tvm.transform.Sequential(passes)(bb.get())
    (func,) = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    order = [names.index(p.name) for p in func.params if p.name in names]
    return func, order


def normal(shape: tuple[int, ...], seed: int = 0) -> NDArray:
    """Standard normal float32 array."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check_first_and_last(
    check: Callable[..., None], template: Any, workload: Any, target: CpuTarget
) -> None:
    """Check the first scheme of a template on one thread, and the last one on three."""
    assert template.applies(workload, target)
    schemes = template.space(workload, target)
    assert len(set(schemes)) == len(schemes) > 0
    check(workload, schemes[0], target=target)
    check(workload, schemes[-1], threads=3, target=target)


def check_folds(
    check: Callable[..., None],
    template: Any,
    workload: Any,
    target: CpuTarget,
    blocks: tuple[int, int],
    refused: Sequence[tuple[int, int]],
) -> None:
    """Check that transforms from and to blocks fold into a kernel, and that others do not."""
    scheme = template.space(workload, target)[0]

    def fold(source: int, destination: int) -> Any:
        return registry.fold(workload, scheme, DataLayout(source), DataLayout(destination), target)

    folded = fold(*blocks)
    assert folded == replace(scheme, ic_bn=blocks[0], oc_bn=blocks[1])
    check(workload, folded)
    assert all(fold(*each) is None for each in refused)
