"""From scheduled functions to machine code: TVM's pipeline with a few changes.

Accumulators are kept in registers: TVM allocates a temporary of 1 KiB or more, or of scope
``local``, from a workspace on the heap: a call and a return per register tile, and stores LLVM
cannot remove. On the stack, LLVM promotes the accumulators to registers and the memory disappears.

Arguments are not checked: TVM compares every extent, stride and type of every argument at every
call, three quarters of a DenseNet's machine code and half of LLVM's time. The loader has checked
the inputs and the weights, and memory planning made the rest.

Maxima and minima of floats propagate NaN, as every reference does: TVM makes ``a > b ? a : b`` of
them, one instruction that gives ``b`` if either is NaN, so that ``max(x, 0)`` would hide it.

Loop nests that are written down have their buffers in the shapes that they ask for: TVM would fit
them to the region that it finds is accessed. Where data decide how many rows of a buffer a task
uses, it finds no bound, and makes a hundred times as many; and it takes away what keeps rows from
the same cache lines.

A temporary that is read by another name has memory of its own. TVM lets a temporary take the place
of one that it is computed from where both are of one size and each element depends on its own place
alone; but it sees no reads by other names, and so would overwrite what is still to be read.

What NEON has instructions for is in `neocpu.schedules.tir.neon`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir import SBlockRealize
from tvm.s_tir.pipeline import default_s_tir_pipeline, finalize_device_passes, finalize_host_passes

from neocpu.schedules.tir import neon
from neocpu.schedules.tir.halving import JoinByHalves

#: Name of the pipeline, for ``tvm.compile(..., tir_pipeline=PIPELINE)`` and ``tirx.build``.
PIPELINE = "neocpu"
# Larger than any register file, far smaller than a thread's stack.
MAX_STACK_ELEMENTS = 4096
# TVM's name for "leave this allocation alone"; code generation then puts it on the stack.
_ON_STACK = "disable_lower_builtin"


@tirx.transform.prim_func_pass(opt_level=0, name="KeepAccumulatorsOnStack")
class KeepAccumulatorsOnStack:
    """Mark the small allocations of scope ``local`` so that they stay on the stack."""

    def transform_function(
        self, func: tirx.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        """Return ``func`` with its accumulators marked."""
        body = tvm_ffi.structural_map(func.body, (tirx.AllocBuffer, _mark))
        return func if body.same_as(func.body) else func.with_body(body)


@tirx.transform.prim_func_pass(opt_level=0, name="NoEntryPoint")
class NoEntryPoint:
    """Give no function a second name: TVM calls one that is alone in its module ``main`` too."""

    def transform_function(
        self, func: tirx.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        """Return ``func`` without the mark."""
        return func.without_attr("tirx.is_entry_func")


@tirx.transform.prim_func_pass(opt_level=0, name="PropagateNaN")
class PropagateNaN:
    """Make ``max`` and ``min`` of floats NaN where either operand is.

    A constant goes first, which costs nothing: of two operands that do not compare the second one
    is the result. Without a constant, the first one must be chosen where it is NaN. NEON has an
    instruction that does.
    """

    def transform_function(
        self, func: tirx.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        """Return ``func`` with every maximum and minimum of floats rewritten."""
        propagating = _maximum if neon.is_target_of(func) else _propagating
        body = tvm_ffi.structural_map(func.body, ((tirx.Max, tirx.Min), propagating))
        return func if body.same_as(func.body) else func.with_body(body)


@tirx.transform.prim_func_pass(opt_level=0, name="MultiplyByLane")
class MultiplyByLane:
    """On NEON, take factors of multiply-adds from lanes of vectors; see `tir.neon`."""

    def transform_function(
        self, func: tirx.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        """Return ``func`` with whole vectors loaded of what is broadcast from them."""
        if not neon.is_target_of(func):
            return func
        return func.with_body(neon.multiply_by_lane(func.body))


@tirx.transform.prim_func_pass(opt_level=0, name="ClipAsIntegers")
class ClipAsIntegers:
    """On NEON, clip floats by a maximum of integers; see `neocpu.schedules.tir.neon`."""

    def transform_function(
        self, func: tirx.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext
    ) -> tirx.PrimFunc:
        """Return ``func`` with the second half of every clip done as integers."""
        return func.with_body(neon.clip_as_integers(func.body)) if neon.is_target_of(func) else func


def _maximum(extremum: Any) -> Any:
    if not str(extremum.ty.dtype).startswith("float"):
        return extremum
    name = "llvm.maximum" if isinstance(extremum, tirx.Max) else "llvm.minimum"
    return tirx.call_llvm_pure_intrin(extremum.ty.dtype, name, extremum.a, extremum.b)


def _propagating(extremum: Any) -> Any:
    kind, first, second = type(extremum), extremum.a, extremum.b
    if not str(extremum.ty.dtype).startswith("float"):
        return extremum
    if _is_constant(second) or isinstance(second, Var):
        first, second = second, first
    if _is_constant(first):
        return kind(first, second)

    def chosen(value: Any) -> Any:
        return tirx.Select(tirx.EQ(value, value), kind(value, second), value)

    if isinstance(first, Var | TensorLoad):
        return chosen(first)
    # Written out three times, one within the other, maxima would triple at each level.
    name = Var("t", first.ty)
    return tirx.Let(name, first, chosen(name))


def _is_constant(value: Any) -> bool:
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return isinstance(value, tirx.FloatImm)


def _mark(alloc: Any) -> Any:
    buffer = alloc.buffer
    constant = all(isinstance(extent, tirx.IntImm) for extent in buffer.shape)
    if buffer.scope() != "local" or not constant:
        return alloc
    if math.prod(int(extent) for extent in buffer.shape) > MAX_STACK_ELEMENTS:
        return alloc
    return tirx.AllocBuffer(
        buffer, {**dict(alloc.annotations), _ON_STACK: tirx.IntImm("int32", 1)}, alloc.span
    )


_COMPACTION, _SHARING = "s_tir.CompactBufferAllocation", "tirx.StorageRewrite"


@tvm.transform.module_pass(opt_level=0, name="Lower")
class Lower:
    """TVM's lowering, but for the shapes of buffers in loop nests that are written down."""

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Return ``mod`` with every function lowered."""
        lower = default_s_tir_pipeline()[0]
        kinds: dict[tuple[str, ...], dict[Any, Any]] = {}
        for name, func in mod.functions.items():
            kinds.setdefault(_harmful_passes(func), {})[name] = func
        if not any(kinds):
            return lower(mod)
        lowered = tvm.IRModule(attrs=mod.attrs)
        for harmful, functions in kinds.items():
            disabled = [*ctx.disabled_pass, *harmful]
            with tvm.transform.PassContext(
                ctx.opt_level, ctx.required_pass, disabled, ctx.instruments, ctx.config
            ):
                lowered.update(lower(tvm.IRModule(functions, attrs=mod.attrs)))
        return lowered


def _harmful_passes(func: Any) -> tuple[str, ...]:
    """Return the names of TVM's passes that a function is lowered without."""
    if not _is_written_down(func):
        return ()
    return (_COMPACTION, _SHARING) if _may_lose_reads(func) else (_COMPACTION,)


def _is_written_down(func: Any) -> bool:
    """Whether a function allocates in its loops, and no schedule moved its stages into them."""
    body = func.body if isinstance(func, tirx.PrimFunc) else None
    return isinstance(body, SBlockRealize) and not body.block.alloc_buffers


def _may_lose_reads(func: tirx.PrimFunc) -> bool:
    """Whether a temporary is read by another name, and another temporary is of its size."""
    sizes: dict[Any, tuple[str, int]] = {}
    owners: dict[Any, Any] = {}
    read: set[Any] = set()

    def allocate(alloc: Any) -> None:
        count = math.prod(int(extent) for extent in alloc.buffer.shape)
        sizes[alloc.buffer] = (str(alloc.buffer.dtype), count)

    def declare(declaration: Any) -> None:
        (source,) = declaration.data.args  # of the call that returns a buffer's address
        owner = owners.get(source, source)
        if owner in sizes:
            owners[declaration.buffer] = owner

    def load(value: Any) -> None:
        if value.source in owners:
            read.add(owners[value.source])

    names = ((tirx.AllocBuffer, allocate), (tirx.DeclBuffer, declare))
    tvm_ffi.structural_walk(func.body, names, order="pre")
    if owners:
        tvm_ffi.structural_walk(func.body, (TensorLoad, load))
    counts = Counter(sizes.values())
    return any(counts[sizes[owner]] > 1 for owner in read)


def _pipeline() -> tuple[Any, Any, Any]:
    def finalize() -> Any:
        passes = [
            tirx.transform.SkipAssert(),
            NoEntryPoint(),
            KeepAccumulatorsOnStack(),
            JoinByHalves(),
            finalize_host_passes(),
            MultiplyByLane(),
            ClipAsIntegers(),
            PropagateNaN(),  # last: simplification would take ``x == x`` for true
        ]
        return tvm.transform.Sequential(passes)

    return Lower(), finalize, finalize_device_passes


tirx.register_tir_pipeline(PIPELINE, _pipeline)
