"""Time of every call inside a running artifact: ``python -m neocpu.bench.profile.call_times``.

The arguments are the artifact, the number of threads and the number of rounds; one line of JSON
comes out, see `measure`. The virtual machine calls an instrument before and after each of its
calls, and the tensors it hands over tell how many bytes a kernel moves.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from typing import Any, Final

import numpy as np

from neocpu.runtime.artifact import open_artifact
from neocpu.runtime.ffi_values import BUILTIN, DLTensor
from neocpu.runtime.library import open_library
from neocpu.runtime.session import Session
from neocpu.runtime.thread_pool import prepare_thread
from neocpu.tensor_spec import random_inputs

WARMUP: Final = 3


class Stopwatch:
    """An instrument of the virtual machine: what was called, with what, and for how long.

    Attributes
    ----------
    seconds : list of float
        Of each call since `reset`, in order.
    calls : list of (str, int, int)
        Name, bytes of weights and bytes of other tensors of each call, once `describing`.
    """

    def __init__(self, weights: np.ndarray[Any, Any]) -> None:
        self.seconds: list[float] = []
        self.calls: list[tuple[str, int, int]] = []
        self.describing = True
        self._weights = range(weights.ctypes.data, weights.ctypes.data + weights.nbytes)
        self._begin = 0.0

    def reset(self) -> None:
        """Forget the times."""
        self.seconds.clear()
        self.describing = False

    def __call__(self, _: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        """Take the time; called before and after."""
        if before:
            self._begin = time.perf_counter()
            return
        self.seconds.append(time.perf_counter() - self._begin)
        if self.describing:
            self.calls.append((name, *self._bytes(name, arguments)))

    def _bytes(self, name: str, arguments: tuple[Any, ...]) -> tuple[int, int]:
        """Return the bytes of the weights among a kernel's arguments, and of the others."""
        if name.startswith(BUILTIN):
            return 0, 0
        weights = others = 0
        for tensor in arguments:
            if not isinstance(tensor, DLTensor):
                continue
            size = tensor.array().nbytes
            if tensor.address in self._weights:
                weights += size
            else:
                others += size
        return weights, others


def measure(path: str, threads: int, rounds: int) -> dict[str, Any]:
    """Run an artifact on random inputs, first as it is and then with the instrument.

    Returns
    -------
    dict
        Median seconds of a run as it is (``"seconds"``) and with the instrument
        (``"instrumented"``), and ``"calls"``: of each, in order, the name, the median seconds, the
        bytes of weights it reads and of the other tensors it reads or writes.
    """
    with open_artifact(path) as artifact:
        prepare_thread(threads, os.sched_getaffinity(0))
        session = Session(artifact, open_library(artifact), hugepages=False)
        stopwatch = Stopwatch(np.frombuffer(artifact.weights, np.uint8))
        inputs = list(random_inputs(artifact.header.inputs, seed=0).values())

        def run() -> float:
            begin = time.perf_counter()
            session.run(inputs)
            return time.perf_counter() - begin

        for _ in range(WARMUP):
            run()
        gc.collect()
        gc.disable()
        plain = [run() for _ in range(rounds)]
        session.instrument(stopwatch)
        run()
        calls, instrumented, times = list(stopwatch.calls), [], []
        for _ in range(rounds):
            stopwatch.reset()
            instrumented.append(run())
            times.append(tuple(stopwatch.seconds))
    return {
        "seconds": statistics.median(plain),
        "instrumented": statistics.median(instrumented),
        "calls": [
            (name, statistics.median(seconds), weights, others)
            for (name, weights, others), *seconds in zip(calls, *times, strict=True)
        ],
    }


def main() -> None:
    """Print what `measure` returns."""
    path, threads, rounds = sys.argv[1:]
    print(json.dumps(measure(path, int(threads), int(rounds))))


if __name__ == "__main__":
    main()
