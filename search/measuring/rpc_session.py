"""A session on one of a fleet's servers: what runs in the process that talks to it.

A call to a server that hangs never returns, so each session is a child process of its own.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import tvm
from tvm import rpc

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import Array
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import MACHINES, CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.buffers import (
    POOL_BYTES,
    Shape,
    Turns,
    aligned_size_of,
    pool_bytes,
    size_of,
)
from neocpu.search.measuring.candidate_builds import OWN_CACHES, WEIGHTS, checked, repeated
from neocpu.search.measuring.measuring_process import Candidate, Ended
from neocpu.search.measuring.rpc_tracker import Lease

Answer = TypeVar("Answer")
Run: TypeAlias = Callable[[Sequence[Any], Sequence[int], int, int], float]


class Session:
    """Times and checks candidates on a server: a `Builder` of `measuring_process.py`."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self._own_caches = OWN_CACHES * target.l2 * threads
        self._session: Any = None
        self._pool: Any = None
        self._turns = Turns()
        self._libraries: list[Any] = []

    def connect(self, lease: Lease) -> str | None:
        """Connect to a server; return its machine, as in ``x86_64``, if it tells."""
        self._session = rpc.connect(lease.address.host, lease.address.port, lease.key)
        self._pool = None
        self._libraries.clear()
        try:
            triple = str(self._session.get_function("target.llvm_get_system_triple")())
        except Exception:  # a server with TVM's runtime only, or the C++ server
            return None
        machine = triple.split("-", 1)[0]
        return MACHINES.get(machine, machine)

    def time(self, candidate: Candidate, repeats: int, best: float) -> Any:
        """Return the seconds per call of repeats, or `Ended`."""
        return self._guarded(lambda: repeated(self._load(candidate), repeats, best))

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> Any:
        """Return the seconds per call of each of the candidates, timed in turns, or `Ended`."""

        def times() -> list[tuple[float, ...]]:
            runs = [self._load(candidate) for candidate in candidates]
            turns = [[repeated(run, 1, math.inf)[0] for run in runs] for _ in range(rounds)]
            return list(zip(*turns, strict=True))

        return self._guarded(times)

    def check(self, candidate: Candidate) -> Any:
        """Run once on random data; return what is wrong with the answer, None, or `Ended`."""

        def run(arrays: Sequence[Array]) -> Array:
            tensors = [tvm.runtime.tensor(array, self._session.cpu()) for array in arrays]
            library = self._library(candidate)
            self._runner(candidate, library)(tensors, [0] * len(tensors), 1, 0)
            output: Array = tensors[-1].numpy()
            return output

        return self._guarded(lambda: checked(run, candidate.request))

    def _load(self, candidate: Candidate) -> Callable[[int], float]:
        workload, scheme = candidate.request.workload, candidate.request.scheme
        library = self._library(candidate)
        shapes = registry.argument_shapes(workload, scheme)
        run = self._runner(candidate, library)
        if isinstance(workload, Conv2dWorkload):
            return self._with_cold_weights(library, run, shapes)
        return self._in_turns(library, run, shapes)

    def _runner(self, candidate: Candidate, library: Any) -> Run:
        function = library["run"]
        tasks = candidate.tasks

        def run(tensors: Sequence[Any], strides: Sequence[int], calls: int, turn: int) -> float:
            return float(function(*tensors, *strides, *tasks, len(tasks), calls, turn))

        return run

    def _with_cold_weights(
        self, library: Any, run: Run, shapes: Sequence[Shape]
    ) -> Callable[[int], float]:
        """Take the weights from a pool that no cache holds, as the local measurer does."""
        arguments = [self._filled(library, shape) for shape in shapes]
        stride = aligned_size_of(shapes[WEIGHTS])
        size = pool_bytes(stride, POOL_BYTES)
        places = size // stride
        if self._pool is None or size_of((self._pool.shape, "float32")) < size:
            self._pool = self._filled(library, _floats(size))
        arguments[WEIGHTS] = self._pool
        strides = [stride if index == WEIGHTS else 0 for index in range(len(shapes))]

        def seconds(calls: int) -> float:
            turn = self._turns.take(calls, stride, places)
            return _per_call(run(arguments, strides, calls, turn), calls)

        return seconds

    def _in_turns(self, library: Any, run: Run, shapes: Sequence[Shape]) -> Callable[[int], float]:
        """Let feature maps take turns between places that the cores' own caches do not hold."""
        strides = [aligned_size_of(shape) for shape in shapes]
        places = ceil_div(self._own_caches, sum(strides))
        arguments = [self._filled(library, _floats(places * stride)) for stride in strides]
        turns = Turns()

        def seconds(calls: int) -> float:
            turn = turns.take(calls, sum(strides), places)
            return _per_call(run(arguments, strides, calls, turn), calls)

        return seconds

    def _library(self, candidate: Candidate) -> Any:
        self._session.upload(str(candidate.library))
        library = self._session.load_module(candidate.library.name)
        self._session.remove(candidate.library.name)  # the code stays mapped
        self._libraries.append(library)
        return library

    def _filled(self, library: Any, shape: Shape) -> Any:
        tensor = tvm.runtime.empty(*shape, self._session.cpu())
        library["fill"](tensor)
        return tensor

    def _guarded(self, job: Callable[[], Answer]) -> Answer | Ended:
        start = time.monotonic()
        try:
            return job()
        except Exception:
            if self._lives():
                raise
            return Ended(time.monotonic() - start)
        finally:
            self._end_threads()

    def _end_threads(self) -> None:
        """End the threads of all libraries, which the server keeps as long as the session."""
        with contextlib.suppress(Exception):  # they end with the session
            while self._libraries:
                self._libraries.pop()["end"]()

    def _lives(self) -> bool:
        try:
            # Not called: it would start TVM's threads, which bind the process to a CPU.
            self._session.get_function("runtime.NumThreads")
        except Exception:
            return False
        return True


def _floats(size: int) -> Shape:
    return (size // bytes_of("float32"),), "float32"


def _per_call(seconds: float, calls: int) -> float:
    return round(seconds / calls, 9)  # to the nanosecond
