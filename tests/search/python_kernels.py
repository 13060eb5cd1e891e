"""Kernels written in Python, which the runtime calls as it does compiled ones."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from neocpu.search.measuring.kernel_calls import Kernel

FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)
"""``nc_kernel_function``."""


def kernel_of(call: Callable[[Sequence[int]], int], tasks: tuple[int, ...] = ()) -> Kernel:
    """A kernel that calls a function with the addresses of its arguments' data."""
    return _kernel(lambda _, values, count, result: call(addresses(values, count)), tasks)


def then(kernel: Kernel, call: Callable[[Sequence[int]], None]) -> Kernel:
    """A kernel that calls another one, and then a function with the addresses of its arguments."""

    def both(_, values, count, result):
        status = FUNCTION(kernel.function)(kernel.handle, values, count, result)
        call(addresses(values, count))
        return status

    return _kernel(both, kernel.tasks)


def addresses(values: int, count: int) -> tuple[int, ...]:
    """Return where the data of each argument is.

    A value has 16 bytes: a kind, and the address of a tensor, which begins with its data's.
    """
    tensors = (ctypes.c_void_p.from_address(values + 16 * i + 8).value for i in range(count))
    return tuple(ctypes.c_void_p.from_address(tensor).value for tensor in tensors)


def _kernel(call, tasks: tuple[int, ...]) -> Kernel:
    function = FUNCTION(call)
    address = ctypes.cast(function, ctypes.c_void_p).value
    return Kernel(function=address, handle=None, tasks=tasks, owner=(function, call))
