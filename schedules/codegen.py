"""From scheduled functions to machine code: TVM's pipeline with two changes.

Accumulators are kept in registers: TVM allocates a temporary of 1 KiB or more, or of scope
``local``, from a workspace on the heap: a call and a return per register tile, and stores LLVM
cannot remove. On the stack, LLVM promotes the accumulators to registers and the memory disappears.

Arguments are not checked: TVM compares every extent, stride and type of every argument at every
call, three quarters of a DenseNet's machine code and half of LLVM's time. The loader has checked
the inputs and the weights, and memory planning made the rest.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline, finalize_device_passes, finalize_host_passes

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


def _pipeline() -> tuple[Any, Any, Any]:
    def finalize() -> Any:
        passes = [tirx.transform.SkipAssert(), KeepAccumulatorsOnStack(), finalize_host_passes()]
        return tvm.transform.Sequential(passes)

    return default_s_tir_pipeline()[0], finalize, finalize_device_passes


tirx.register_tir_pipeline(PIPELINE, _pipeline)
