"""Functions in LLVM's own language, which are inlined: wrapping arithmetic, opaque numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import llvm_definition

_WRAPPING: Final = "neocpu_wrapping"
_OPERATIONS: Final = ("add", "sub", "mul")


def wrapping_arithmetic(lanes: int) -> Any:
    """Return the frame that `Wrapping` vectors of ``lanes`` integers need around them."""
    kind = f"<{lanes} x i32>"
    return llvm_definition(
        "\n".join(
            f"define {kind} @{_WRAPPING}_{name}({kind} %a, {kind} %b) alwaysinline nounwind "
            f"memory(none) {{\n  %c = {name} {kind} %a, %b\n  ret {kind} %c\n}}"
            for name in _OPERATIONS
        )
    )


@dataclass(frozen=True, slots=True)
class Wrapping:
    """A vector of int32 whose sums, differences and multiples are modulo 2^32. TVM's code generator
    promises LLVM that its own 32-bit sums and products never overflow.
    """

    value: Any

    def __add__(self, other: Wrapping) -> Wrapping:
        return self._with("add", other.value)

    def __sub__(self, other: Wrapping) -> Wrapping:
        return self._with("sub", other.value)

    def __mul__(self, factor: int) -> Wrapping:
        signed = (factor + (1 << 31)) % (1 << 32) - (1 << 31)
        lanes = int(self.value.ty.dtype.lanes)
        return self._with("mul", T.broadcast(tirx.const(signed, "int32"), lanes))

    def _with(self, operation: str, other: Any) -> Wrapping:
        kind = str(self.value.ty.dtype)
        return Wrapping(tirx.call_extern(kind, f"{_WRAPPING}_{operation}", self.value, other))


_OPAQUE = "neocpu_opaque_number"
_DEFINITION = f"""
define i32 @{_OPAQUE}(i32 %number) alwaysinline {{
  %same = call i32 asm "", "=r,0"(i32 %number) memory(none) nounwind
  ret i32 %same
}}
"""


def opaque_numbers() -> Any:
    """Return the frame that `opaque_number` needs around it."""
    return llvm_definition(_DEFINITION)


def opaque_number(number: Any) -> Any:
    """Return a number that LLVM takes for an arbitrary 32-bit one: the extent of a short loop.

    LLVM fully unrolls loops of few iterations, and moves loop-invariant code out of the loops
    around them. In a register tile's loop it would then keep weights and sums of several steps at
    once, for which there are no registers.
    """
    known = tirx.const(number, "int32") if isinstance(number, int) else number
    return tirx.call_extern("int32", _OPAQUE, known)
