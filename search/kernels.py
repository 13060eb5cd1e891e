"""Building candidates with TVM and timing them: what runs inside a measuring process.

Weights are read as cold as a network leaves them: between two runs of a layer at batch 1 every
other layer's weights pass through the caches, so each call here reads the weights at another place
of a pool larger than the last-level cache. Data and output stay where they are, for in the network
they have just been written or soon will be read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray

from neocpu.schedules import registry
from neocpu.schedules.codegen import PIPELINE
from neocpu.schedules.target import CpuTarget
from neocpu.search.measure import Request
from neocpu.search.worker import describe

POOL_BYTES = 128 << 20
ALIGNMENT = 64
# Length of one timed repeat: long against the clock's and the scheduler's grain.
REPEAT_SECONDS = 2e-3
Shape = tuple[tuple[int, ...], str]  # and dtype
WEIGHTS = 1  # position of the packed weights among a kernel's arguments


class Kernels:
    """Builds and times the candidates of one target and thread count."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self._target = target
        self._threads = threads
        self._pool: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._place = 0

    def build(self, requests: Sequence[Request]) -> list[Any]:
        """Compile ``requests``; return a function for each, or the message of what went wrong.

        All become one module, which compiles faster than one each; if that fails, each is compiled
        alone, to find out which of them it was.
        """
        lowered = [self._lower(request) for request in requests]
        good = [i for i, function in enumerate(lowered) if not isinstance(function, str)]
        try:
            compiled = self._compile([lowered[i] for i in good])
        except Exception:
            compiled = [self._compile_alone(lowered[i]) for i in good]
        built = dict(zip(good, compiled, strict=True))
        return [built.get(i, function) for i, function in enumerate(lowered)]

    def time(self, function: Any, request: Request, repeats: int) -> tuple[float, ...]:
        """Return the seconds per call of ``repeats`` repeats, after a warm-up."""
        if not len(self._pool):
            self._pool = _random_pool()
        shapes = registry.argument_shapes(request.workload, request.scheme)
        arguments = [_tensor(self._filled(_bytes(*shape)), *shape) for shape in shapes]

        def run(calls: int) -> float:
            turns = [self._with_cold_weights(arguments, shapes[WEIGHTS]) for _ in range(calls)]
            start = time.perf_counter()
            for turn in turns:
                function(*turn)
            return time.perf_counter() - start

        calls = max(1, math.ceil(REPEAT_SECONDS / run(1)))
        return tuple(round(run(calls) / calls, 9) for _ in range(repeats))  # to the nanosecond

    def _lower(self, request: Request) -> Any:
        try:
            return registry.lower(request.workload, request.scheme, self._target, self._threads)
        except Exception as error:
            return describe(error)

    def _compile(self, functions: list[Any]) -> list[Any]:
        if not functions:
            return []
        named = {f"f{i}": f.with_attr("global_symbol", f"f{i}") for i, f in enumerate(functions)}
        executable = tvm.compile(tvm.IRModule(named), self._target.to_tvm(), tir_pipeline=PIPELINE)
        # The first look-up generates the machine code, which must not wait for the measurement.
        return [executable[name] for name in named]

    def _compile_alone(self, function: Any) -> Any:
        try:
            return self._compile([function])[0]
        except Exception as error:
            return describe(error)

    def _filled(self, size: int) -> NDArray[np.uint8]:
        buffer = _aligned(size)
        buffer[:] = np.resize(self._pool[: min(size, len(self._pool))], size)
        return buffer

    def _with_cold_weights(self, arguments: list[Any], shape: Shape) -> list[Any]:
        size = _bytes(*shape)
        if size > len(self._pool):
            return arguments  # they do not fit the caches in any case
        if self._place + size > len(self._pool):
            self._place = 0
        weights = _tensor(self._pool[self._place : self._place + size], *shape)
        self._place += -(-size // ALIGNMENT) * ALIGNMENT
        return [*arguments[:WEIGHTS], weights, *arguments[WEIGHTS + 1 :]]


def _random_pool() -> NDArray[np.uint8]:
    """Normal float32 numbers: no denormals, which would be slow, and no zeros."""
    block = np.random.default_rng(0).standard_normal(1 << 18, dtype=np.float32)
    pool = _aligned(POOL_BYTES)
    pool.view(np.float32)[:] = np.resize(block, POOL_BYTES // 4)
    return pool


def _aligned(size: int) -> NDArray[np.uint8]:
    raw = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _tensor(buffer: NDArray[np.uint8], shape: tuple[int, ...], dtype: str) -> Any:
    return tvm_ffi.from_dlpack(buffer.view(dtype).reshape(shape))
