"""Compilation of scheduled functions to machine code: TVM's pipeline with a few changes.

Accumulators stay in registers. TVM allocates a temporary of 1 KiB or more, or of scope ``local``,
from a workspace on the heap, which costs a call and a return per register tile and stores that LLVM
cannot remove. If it is on the stack, LLVM promotes the accumulators to registers and the memory
disappears.

Arguments are not checked. TVM checks every extent, stride and type of every argument at every call,
which is three quarters of a DenseNet's machine code and half of LLVM's time. The loader has checked
the inputs and the weights, and memory planning made the rest.

Maxima and minima of floats propagate NaN, as every reference does. TVM compiles them to ``a > b ? a
: b``, one instruction that gives ``b`` if either is NaN, so that ``max(x, 0)`` would hide it.

Hand-written loop nests keep the shapes of their buffers. TVM would shrink them to the region that
it finds accessed. If data decide how many rows of a buffer a task uses, it finds no bound and makes
the buffer a hundred times as large; it would also remove the padding that keeps rows from sharing
cache lines.

A temporary that is read by another name has memory of its own. TVM lets a temporary take the place
of one that it is computed from if both have one size and each element depends only on its own
place; but TVM does not see reads by other names, and would overwrite elements before they are read.

Rewrites for NEON instructions are in `neocpu.schedules.tir.neon`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir import SBlockRealize
from tvm.s_tir.pipeline import default_s_tir_pipeline, finalize_device_passes, finalize_host_passes

from neocpu.schedules.tir import neon
from neocpu.schedules.tir.reductions import JoinByHalves

#: Name of the pipeline, for ``tvm.compile(..., tir_pipeline=PIPELINE)`` and ``tirx.build``.
PIPELINE = "neocpu"
# This is larger than any register file and far smaller than a thread's stack.
MAX_STACK_ELEMENTS = 4096
# TVM's name for "leave this allocation alone"; code generation then puts it on the stack.
_ON_STACK = "disable_lower_builtin"


def each_function(change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Any:
    """Return the pass that changes every ``PrimFunc`` of a module."""

    def transform(func: tirx.PrimFunc, mod: tvm.IRModule, ctx: Any) -> tirx.PrimFunc:
        return change(func)

    return tirx.transform.prim_func_pass(transform, opt_level=0, name=change.__name__)


def _keep_accumulators_on_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Keep small allocations of scope ``local`` on the stack."""
    return _mapped(func, tirx.AllocBuffer, _mark)


def _without_entry_point(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Give no function a second name; TVM also names a module's only one ``main``."""
    return func.without_attr("tirx.is_entry_func")


def propagate_nan(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make ``max`` and ``min`` of floats NaN if either operand is.

    A constant becomes the first operand, which costs nothing: if two operands do not compare, the
    second is the result. Without a constant, the first operand is selected explicitly if it is NaN.
    NEON has an instruction for this.
    """
    propagating = _maximum if neon.is_target_of(func) else _propagating
    return _mapped(func, (tirx.Max, tirx.Min), propagating)


def _for_neon(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Take factors of multiply-adds from vector lanes, and clip floats as integers, on NEON."""
    if not neon.is_target_of(func):
        return func
    return func.with_body(neon.clip_as_integers(neon.multiply_by_lane(func.body)))


def _mapped(func: tirx.PrimFunc, kinds: Any, change: Callable[[Any], Any]) -> tirx.PrimFunc:
    body = tvm_ffi.structural_map(func.body, (kinds, change))
    return func if body.same_as(func.body) else func.with_body(body)


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
    # Written out three times, nested maxima would triple at each level.
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
    """TVM's lowering, except that hand-written loop nests keep the shapes of their buffers."""

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
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
    if not _is_written_down(func):
        return ()
    return (_COMPACTION, _SHARING) if _may_lose_reads(func) else (_COMPACTION,)


def _is_written_down(func: Any) -> bool:
    body = func.body if isinstance(func, tirx.PrimFunc) else None
    return isinstance(body, SBlockRealize) and not body.block.alloc_buffers


def _may_lose_reads(func: tirx.PrimFunc) -> bool:
    """Return whether a temporary is read by another name, and another one has its size."""
    sizes: dict[Any, tuple[str, int]] = {}
    owners: dict[Any, Any] = {}
    read: set[Any] = set()

    def allocate(alloc: Any) -> None:
        shape = alloc.buffer.shape
        constant = all(isinstance(extent, tirx.IntImm) for extent in shape)
        # TVM takes sizes that calls choose for equal.
        count = math.prod(int(extent) for extent in shape) if constant else 0
        sizes[alloc.buffer] = (str(alloc.buffer.dtype), count)

    def declare(declaration: Any) -> None:
        (source,) = declaration.data.args  # of the call for a buffer's address
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
            each_function(_without_entry_point),
            each_function(_keep_accumulators_on_stack),
            JoinByHalves(),
            finalize_host_passes(),
            each_function(_for_neon),
            each_function(propagate_nan),  # last: simplification would take ``x == x`` for true
        ]
        return tvm.transform.Sequential(passes)

    return Lower(), finalize, finalize_device_passes


tirx.register_tir_pipeline(PIPELINE, _pipeline)
