"""Numbers that LLVM does not know: extents of short loops that are to stay loops.

LLVM unrolls loops of few iterations altogether, and moves what does not change in them out of the
loops around. Of a register tile's loop it then holds weights and sums of several steps at a time,
for which there are no registers.
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
    """Return the frame that `opaque_number` stands in."""
    return llvm_definition(_DEFINITION)


def opaque_number(number: int) -> Any:
    """Return a number that LLVM takes for any of 32 bits."""
    return tirx.call_extern("int32", _NAME, tirx.const(number, "int32"))
