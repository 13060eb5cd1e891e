"""The virtual machine of one module. Everything here runs on the module's worker thread."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from neocpu.runtime.artifact import Artifact
from neocpu.runtime.denormals import flush_denormals
from neocpu.runtime.library import Library
from neocpu.runtime.memory import huge_pages
from neocpu.tensor_spec import TensorSpec

_INPUT_ALIGN: Final = 128
_CPU: Final = 1  # kDLCPU
_POOLED: Final = 2  # AllocatorType::kPooled
_SHARE_ALL_CORES: Final = -3  # ThreadGroup::kSpecifyThreadShareAllCore

AnyArray = np.ndarray[Any, Any]


class Session:
    """A VM with its weights and its memory bound, ready to run.

    The tensors between its kernels lie in one arena, made here and used by every run. Generated
    code assumes 64-byte aligned buffers, which numpy does not promise, so inputs are copied into
    buffers of our own; and outputs are copied out, so that they never alias.
    """

    __slots__ = ("_arguments", "_instrument", "_library", "_main", "_row_counts", "_staging")

    def __init__(
        self, artifact: Artifact, library: Library, threads: int, *, hugepages: bool
    ) -> None:
        import tvm_ffi

        flush_denormals()  # before the pool is made, whose threads inherit it
        configure_pool(threads)
        self._library = library
        header = artifact.header
        self._row_counts = header.row_counts or (None,) * len(header.outputs)
        self._staging = [_aligned(spec) for spec in header.inputs]
        arena = huge_pages(header.arena_bytes)
        arrays = [
            *self._staging,
            *artifact.weight_arrays(hugepages=hugepages),
            *(placement.view(arena) for placement in header.activations),
        ]
        # Only the versioned capsule can carry a read-only array; it lets the weights stay in the
        # read-only mapping of the file.
        self._arguments = [
            tvm_ffi.from_dlpack(array.__dlpack__(max_version=(1, 0))) for array in arrays
        ]
        vm = library.executable["vm_load_executable"]()
        vm["vm_initialization"](_CPU, 0, _POOLED)
        self._main = vm["main"]
        self._instrument = vm["set_instrument"]

    def run(self, inputs: Sequence[AnyArray]) -> tuple[AnyArray, ...]:
        """Run ``main`` once.

        Parameters
        ----------
        inputs : sequence of array
            In graph order, with the model's shapes; any strides and byte order.

        Returns
        -------
        tuple of array
            New arrays, in graph order, of those rows that count.
        """
        for buffer, value in zip(self._staging, inputs, strict=True):
            np.copyto(buffer, value)
        result = self._main(*self._arguments)
        tensors = (result,) if hasattr(result, "__dlpack__") else result
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        # Counts come behind the outputs, so the shorter list ends where they begin.
        return tuple(
            (array if count is None else array[: int(arrays[count][0])]).copy()
            for array, count in zip(arrays, self._row_counts, strict=False)
        )

    def instrument(self, callback: Callable[..., None]) -> None:
        """Have ``callback`` called before and after each call of the virtual machine from now on.

        Its arguments are the function, its name, whether it is about to be called, what it
        returned, and its arguments.
        """
        self._instrument(callback)


def configure_pool(threads: int) -> None:
    """Give the calling thread its own TVM pool of exactly ``threads`` threads, itself included.

    TVM's pool binds its threads, and the thread that launches it, to single cores when it is made;
    the second call and the last line take that back, so that all of them may run on all CPUs this
    process may use. (The environment variable that prevents it is process-wide: not ours to set.)
    """
    import tvm_ffi

    configure = tvm_ffi.get_global_func("runtime.config_threadpool")
    allowed = os.sched_getaffinity(0)
    cpus = [str(cpu) for cpu in sorted(allowed)]
    configure(_SHARE_ALL_CORES, threads, list(itertools.islice(itertools.cycle(cpus), threads)))
    if threads > 1:
        configure(_SHARE_ALL_CORES, threads, cpus)
    os.sched_setaffinity(0, allowed)
    assert tvm_ffi.get_global_func("runtime.NumThreads")() == threads


def _aligned(spec: TensorSpec) -> AnyArray:
    """Return an array of zeros that starts on a multiple of `_INPUT_ALIGN` bytes."""
    dtype = np.dtype(spec.dtype)
    size = int(np.prod(spec.shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(size + _INPUT_ALIGN, np.uint8)
    start = -raw.ctypes.data % _INPUT_ALIGN
    return np.ndarray(spec.shape, dtype, raw, start)
