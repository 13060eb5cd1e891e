"""The table in which the code of an artifact names its kernels, as source to be linked with them.

A runtime believes nothing of a header that this table contradicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neocpu.building.program import Kernel
from neocpu.foundation.dtypes import DTYPES

SYMBOL: Final = "neocpu_kernel_table"
"""Name of the table."""

_HOOKS: Final = ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")
"""Of the runtime's functions, behind ``__TVMBackend``: generated code has a variable for each that
it calls."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel with its machine code.

    Attributes
    ----------
    kernel : Kernel
    launches : tuple of int
        The iterations of its parallel loops, in turn, or into how many tasks to cut them where
        that is fewer; 0 for unknown ones.
    code : bytes
        An object file, in which it has the name that all functions have whose code is generated.
    """

    kernel: Kernel
    launches: tuple[int, ...]
    code: bytes


def table_source(compiled: Sequence[CompiledKernel]) -> str:
    """Return the source, for compilers of C and of C++ that have included ``kernel_table.h``.

    Parameters
    ----------
    compiled : sequence of CompiledKernel
        In the order of their names.
    """
    kernels = [each.kernel for each in compiled]
    lines = ["#ifdef __cplusplus", 'extern "C" {', "#endif"]
    lines += [f"extern void *__TVMBackend{hook} __attribute__((weak));" for hook in _HOOKS]
    lines += [f"extern nc_kernel_function __tvm_ffi_{kernel.name};" for kernel in kernels]
    sizes, types, iterations = _Numbers(), _Numbers(), _Numbers()
    rows = []
    for each in compiled:
        kernel, loops = each.kernel, each.launches
        codes = [DTYPES[name].code << 8 | DTYPES[name].bits for name in kernel.types]
        rows.append(
            f'  {{"{kernel.name}", __tvm_ffi_{kernel.name}, sizes + {sizes.add(kernel.sizes)}, '
            f"types + {types.add(codes)}, launches + {iterations.add(loops)}, "
            f"{len(kernel.sizes)}, {kernel.results}, {len(loops)}}},"
        )
    lines.append(f"static const uint64_t sizes[] = {{{sizes}}};")
    lines.append(f"static const uint16_t types[] = {{{types}}};")
    lines.append(f"static const uint32_t launches[] = {{{iterations}}};")
    # One more than there are: C has no empty arrays.
    lines += ["static const nc_kernel kernels[] = {", *rows, "  {0, 0, 0, 0, 0, 0, 0, 0}};"]
    hooks = ", ".join(f"&__TVMBackend{hook}" for hook in _HOOKS)
    lines += [
        f"extern const nc_kernel_table {SYMBOL};",
        f"const nc_kernel_table {SYMBOL} = {{",
        f"  NC_KERNEL_TABLE_MAGIC, {len(kernels)}, kernels, {hooks}}};",
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


class _Numbers:
    """The elements of an array that several share."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def add(self, numbers: Iterable[int]) -> int:
        """Append numbers; return where they begin."""
        start = len(self._numbers)
        self._numbers += numbers
        return start

    def __str__(self) -> str:
        return ", ".join(map(str, self._numbers or [0]))
