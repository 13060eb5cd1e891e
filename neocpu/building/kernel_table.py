"""The table in which an artifact's code names its kernels, as source to be linked with them.

A runtime rejects a header that contradicts this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neocpu.building.program import Kernel
from neocpu.foundation.dtypes import DTYPES

SYMBOL: Final = "neocpu_kernel_table"
"""The symbol of the table."""

_HOOKS: Final = ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")
"""Functions of the runtime, without the prefix ``__TVMBackend``. Generated code has a variable for
each function that it calls."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel with its machine code."""

    kernel: Kernel
    # The iterations of its parallel loops, in turn, or the number of tasks to cut them into where
    # that is smaller; 0 for unknown ones.
    launches: tuple[int, ...]
    code: bytes  # object file, in which the kernel has the name common to all generated functions


def table_source(compiled: Sequence[CompiledKernel]) -> str:
    """Return the source, for C and C++ compilers that have included ``kernel_table.h``."""
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
    # One row more than there are kernels, because C has no empty arrays.
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
    """The elements of an array that several rows share."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def add(self, numbers: Iterable[int]) -> int:
        """Append numbers; return the position of the first."""
        start = len(self._numbers)
        self._numbers += numbers
        return start

    def __str__(self) -> str:
        return ", ".join(map(str, self._numbers or [0]))
