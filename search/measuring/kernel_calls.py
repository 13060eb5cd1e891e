"""Calls of single kernels on the threads that run artifacts: those of ``core/``.

TVM compiles a kernel. The runtime cuts its parallel loops into tasks, shares them out among its own
threads and lends it scratch memory, as it does for the kernels of an artifact.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_void_p,
)
from dataclasses import dataclass
from typing import Any, Final

import tvm
import tvm_ffi
from numpy.typing import NDArray

from neocpu.core import LIBRARY
from neocpu.foundation.closing import Closing
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import NeoCPUError
from neocpu.schedules.estimates.loop_threads import kernel_tasks
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget

ALIGNMENT: Final = 64
"""The alignment of every argument, in bytes. Compiled code relies on it."""

_BACKEND: Final = ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")
"""The runtime's functions that kernels call; their names begin with ``__TVMBackend``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A tensor that a kernel takes, at one place or at several in turn."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    stride: int = 0  # bytes from one place to the next
    places: int = 1

    @classmethod
    def of(cls, array: NDArray[Any]) -> Argument:
        """Return an array of `aligned_copy`, which must live as long as the calls."""
        assert array.flags.c_contiguous
        assert array.ctypes.data % ALIGNMENT == 0
        return cls(address=array.ctypes.data, shape=array.shape, dtype=str(array.dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that can be called."""

    function: int  # address of a function with the signature of ``nc_kernel_function``
    handle: int | None  # first argument of the function
    # The iterations of each parallel loop, or a smaller number of tasks that it is cut into.
    tasks: tuple[int, ...]
    owner: Any  # object that keeps the code loaded

    @classmethod
    def of(cls, function: tvm_ffi.Function, tasks: Sequence[int]) -> Kernel:
        """Return a function of a module that was loaded after `lend_backend`."""
        call = ctypes.cast(_ffi().TVMFFIFunctionCall, c_void_p).value
        assert call is not None
        return cls(function=call, handle=function.__chandle__(), tasks=tuple(tasks), owner=function)


class _Argument(ctypes.Structure):
    """``nc_argument``."""

    _fields_ = (
        ("data", c_void_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("stride", c_size_t),
        ("places", c_size_t),
    )


class _Calls(ctypes.Structure):
    """``nc_kernel_calls``."""

    _fields_ = (
        ("function", c_void_p),
        ("self", c_void_p),
        ("arguments", POINTER(_Argument)),
        ("argument_count", c_size_t),
        ("launches", POINTER(c_uint32)),
        ("launch_count", c_size_t),
    )


class KernelPool(Closing):
    """The runtime's threads for kernels that are called one at a time. The calling thread is one of
    the ``threads``. Like an artifact's, a pool has no more threads than this process has CPUs.
    Raises NeoCPUError if a thread cannot be started.
    """

    def __init__(self, threads: int) -> None:
        self._core = _core()
        self._address = c_void_p()
        count = min(threads, len(os.sched_getaffinity(0)))
        self._check(self._core.neocpu_pool_start(count, 0, byref(self._address)))

    def call(
        self, kernel: Kernel, arguments: Sequence[Argument], calls: int = 1, first: int = 0
    ) -> float:
        """Call a kernel and return the total seconds of all calls. `first` is the number of the
        place that the first call takes of each argument. Raises NeoCPUError if the kernel fails.
        """
        loops, seconds = kernel.tasks, c_double()
        given = _Calls(
            function=kernel.function,
            self=kernel.handle,
            arguments=(_Argument * len(arguments))(*map(_described, arguments)),
            argument_count=len(arguments),
            launches=(c_uint32 * len(loops))(*loops),
            launch_count=len(loops),
        )
        self._check(
            self._core.neocpu_call_kernel(self._address, byref(given), first, calls, byref(seconds))
        )
        return seconds.value

    def close(self) -> None:
        self._core.neocpu_pool_free(self._address)
        self._address = c_void_p()

    def _check(self, status: int) -> None:
        if status:
            raise NeoCPUError(self._core.neocpu_error().decode(errors="replace"))


def compile_kernels(
    functions: Mapping[str, Any], target: CpuTarget, threads: int, pipeline: str = PIPELINE
) -> list[Kernel]:
    """Compile scheduled functions as one module, which is faster; `pipeline` is a name of TVM's."""
    lend_backend()
    named = {name: each.with_attr("global_symbol", name) for name, each in functions.items()}
    module = tvm.tirx.build(tvm.IRModule(named), target.to_tvm(), pipeline=pipeline)
    # The first look-up generates the machine code, which must not wait for the measurement.
    return [
        Kernel.of(module[name], kernel_tasks(function, target, threads))
        for name, function in functions.items()
    ]


@functools.cache
def lend_backend() -> None:
    """Make modules that TVM loads from now on call the runtime's threads in place of TVM's: those
    of a `KernelPool`, otherwise the calling thread.
    """
    addresses = [c_void_p() for _ in _BACKEND]
    _core().neocpu_lend_backend(*map(byref, addresses))
    for name, address in zip(_BACKEND, addresses, strict=True):
        status = _ffi().TVMFFIEnvModRegisterContextSymbol(f"__TVMBackend{name}".encode(), address)
        assert status == 0, name


@functools.cache
def _core() -> Any:
    loaded = ctypes.CDLL(str(LIBRARY))
    loaded.neocpu_pool_start.argtypes = (c_int, c_int, POINTER(c_void_p))
    loaded.neocpu_pool_free.argtypes = (c_void_p,)
    loaded.neocpu_pool_free.restype = None
    loaded.neocpu_call_kernel.argtypes = (
        c_void_p,
        POINTER(_Calls),
        c_size_t,
        c_size_t,
        POINTER(c_double),
    )
    loaded.neocpu_lend_backend.argtypes = (POINTER(c_void_p),) * 3
    loaded.neocpu_lend_backend.restype = None
    loaded.neocpu_error.restype = c_char_p
    return loaded


@functools.cache
def _ffi() -> Any:
    loaded = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    loaded.TVMFFIEnvModRegisterContextSymbol.argtypes = (c_char_p, c_void_p)
    return loaded


def _described(argument: Argument) -> _Argument:
    dtype = DTYPES[argument.dtype]
    return _Argument(
        data=argument.address,
        shape=(c_int64 * len(argument.shape))(*argument.shape),
        rank=len(argument.shape),
        code=dtype.code,
        bits=dtype.bits,
        stride=argument.stride,
        places=argument.places,
    )
