"""Numbers that LLVM cannot see, as extents of short loops that must stay loops.

LLVM fully unrolls loops of few iterations, and moves loop-invariant code out of the loops around
them. In a register tile's loop it would then keep weights and sums of several steps at once, for
which there are no registers.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from neocpu.schedules.tir.builder import llvm_definition

_NAME = "neocpu_opaque_number"
_DEFINITION = f"""
define i32 @{_NAME}(i32 %number) alwaysinline {{
  %same = call i32 asm "", "=r,0"(i32 %number) memory(none) nounwind
  ret i32 %same
}}
"""


def opaque_numbers() -> Any:
    """Return the frame that `opaque_number` needs around it."""
    return llvm_definition(_DEFINITION)


def opaque_number(number: int) -> Any:
    """Return a number that LLVM takes for an arbitrary 32-bit one."""
    return tirx.call_extern("int32", _NAME, tirx.const(number, "int32"))
