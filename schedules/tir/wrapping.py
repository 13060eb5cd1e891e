"""Arithmetic of 32-bit integers modulo 2^32, in vectors.

TVM's code generator promises LLVM that 32-bit sums and products never overflow. Where they may
overflow on purpose, they are functions in LLVM's own language, which are inlined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import llvm_definition

_NAME: Final = "neocpu_wrapping"
_OPERATIONS: Final = ("add", "sub", "mul")


def wrapping_arithmetic(lanes: int) -> Any:
    """Return the frame that `Wrapping` vectors of ``lanes`` integers need around them."""
    kind = f"<{lanes} x i32>"
    return llvm_definition(
        "\n".join(
            f"define {kind} @{_NAME}_{name}({kind} %a, {kind} %b) alwaysinline nounwind "
            f"memory(none) {{\n  %c = {name} {kind} %a, %b\n  ret {kind} %c\n}}"
            for name in _OPERATIONS
        )
    )


@dataclass(frozen=True, slots=True)
class Wrapping:
    """A vector of int32 whose sums, differences and multiples are modulo 2^32."""

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
        return Wrapping(tirx.call_extern(kind, f"{_NAME}_{operation}", self.value, other))
