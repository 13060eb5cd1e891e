"""Many threads calling one module: are outputs right, resources steady, and calls as fast?"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.results.sample_statistics import Ratio, ratio_of_medians
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.runtime.module import Module, load

LONGEST_SLICE: Final = 5.0
"""Seconds of one slice at most; what was called by then is waited for."""
SLICES: Final = 24
"""Into how many a shorter run is cut."""
WARMUP_SHARE: Final = 0.1
"""Part of the time whose rounds count for the outputs alone; one round at least."""
FEWEST_ROUNDS: Final = 3
"""Counted ones, however long they take."""
DIFFERENT_INPUTS: Final = 8
"""Callers take turns in using these, so that one that gets another's output notices."""

AnyArray = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class CallersRequest:
    """What to do with every artifact: ``callers`` threads, for ``seconds`` in all."""

    callers: int
    seconds: float
    threads: int


@dataclass(frozen=True, slots=True)
class Extremes:
    """The least and the most of what was sampled after every slice."""

    least: int
    most: int

    @property
    def spread(self) -> int:
        """How far they lie apart."""
        return self.most - self.least


@dataclass(frozen=True, slots=True)
class CallersReport:
    """What came of one artifact.

    Attributes
    ----------
    threads : int
        That the module runs on.
    alone, together : tuple of float
        Seconds per call by round, of one caller and of all of them.
    calls, different : int
        Calls in all, warm-up included, and those whose outputs were not bitwise those of a lone
        call.
    errors : tuple of str
        What calls raised, each message once.
    moved : int
        Times a caller's CPU affinity was found changed.
    memory : Extremes
        Resident bytes of the process.
    process_threads : Extremes
        Threads of the process, the callers included.
    """

    name: str
    callers: int
    threads: int
    alone: tuple[float, ...]
    together: tuple[float, ...]
    calls: int
    different: int
    errors: tuple[str, ...]
    moved: int
    memory: Extremes
    process_threads: Extremes

    @property
    def ratio(self) -> Ratio:
        """Throughput of all callers over that of one."""
        alone, together = (tuple((one,) for one in side) for side in (self.alone, self.together))
        return ratio_of_medians(alone, together)

    @property
    def sound(self) -> bool:
        """Whether every call gave the right outputs and left its caller's affinity alone."""
        return not (self.different or self.errors or self.moved)

    def __str__(self) -> str:
        return f"{self.name}: {self.calls} calls, {self.different} of them with other outputs"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; seconds per call, bytes."""
        return {**asdict(self), "model": self.name, "throughput_ratio": asdict(self.ratio)}


def measure_callers(
    artifacts: Sequence[str], request: CallersRequest, on_progress: ProgressCallback = silent
) -> Iterator[CallersReport | ModelFailure]:
    """Load and call each artifact; one that cannot be loaded is a failure, the others go on."""

    def measure(_: int, artifact: str) -> CallersReport:
        with load(Path(artifact), request.threads) as module:
            return call_from_threads(module, request.callers, request.seconds, on_progress)

    return measure_each(artifacts, measure)


def call_from_threads(
    module: Module, callers: int, seconds: float, on_progress: ProgressCallback = silent
) -> CallersReport:
    """Call ``module`` in slices, in turn from one thread and from ``callers`` threads.

    All threads live through the whole run, so that their number and the process's memory have no
    reason to change.
    """
    length = min(LONGEST_SLICE, seconds / SLICES)
    alone: list[float] = []
    together: list[float] = []
    samples: list[tuple[int, int]] = []
    crew = _Crew(module, callers)
    start = time.perf_counter()
    with crew:
        for number in itertools.count():
            elapsed = time.perf_counter() - start
            if elapsed >= seconds and len(alone) >= FEWEST_ROUNDS:
                break
            detail = f"{crew.calls} calls"
            on_progress(Progress(f"{callers} callers", int(elapsed), math.ceil(seconds), detail))
            counts = number > 0 and elapsed >= WARMUP_SHARE * seconds
            # In turn first and second: what the one leaves in caches is not always the other's.
            sides = [(1, alone), (callers, together)]
            for active, measured in sides if number % 2 else reversed(sides):
                per_call = crew.run_slice(active, length)
                if counts:
                    measured.append(per_call)
                    samples.append(_memory_and_threads())
    memory, threads = (Extremes(min(side), max(side)) for side in zip(*samples, strict=True))
    return CallersReport(
        name=module.metadata.name,
        callers=callers,
        threads=module.threads,
        alone=tuple(alone),
        together=tuple(together),
        calls=crew.calls,
        different=crew.different,
        errors=tuple(crew.errors),
        moved=crew.moved,
        memory=memory,
        process_threads=threads,
    )


class _Crew:
    """The calling threads: they wait for a slice, call until it is over, and wait again."""

    def __init__(self, module: Module, callers: int) -> None:
        self._module = module
        self._inputs = [
            list(random_inputs(module.inputs, seed).values()) for seed in range(DIFFERENT_INPUTS)
        ]
        self._expected = [_bytes(module(arrays)) for arrays in self._inputs]
        self._gate = threading.Barrier(callers + 1)
        self._active = 0
        self._deadline = 0.0
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"caller-{number}")
            for number in range(callers)
        ]
        self.calls = self.different = self.moved = 0
        self.errors: dict[str, None] = {}

    def __enter__(self) -> _Crew:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Whoever waits at the gate, now or later, goes home; a slice under way ends by itself.
        self._gate.abort()
        for thread in self._threads:
            thread.join()

    def run_slice(self, active: int, seconds: float) -> float:
        """Have ``active`` threads call for ``seconds``; return the seconds per call."""
        before = self.calls
        self._active = active
        start = time.perf_counter()
        self._deadline = start + seconds
        self._gate.wait()
        self._gate.wait()
        return (time.perf_counter() - start) / max(1, self.calls - before)

    def _serve(self, number: int) -> None:
        allowed = os.sched_getaffinity(0)
        with suppress(threading.BrokenBarrierError):
            while True:
                self._gate.wait()
                if number < self._active:
                    self._call_until_deadline(number % DIFFERENT_INPUTS)
                if os.sched_getaffinity(0) != allowed:
                    with self._lock:
                        self.moved += 1
                self._gate.wait()

    def _call_until_deadline(self, which: int) -> None:
        arrays, expected = self._inputs[which], self._expected[which]
        calls = different = 0
        error = ""
        try:
            while calls == 0 or time.perf_counter() < self._deadline:
                different += _bytes(self._module(arrays)) != expected
                calls += 1
        except Exception as problem:  # whatever a call raises is a result
            error = f"{type(problem).__name__}: {problem}"
        with self._lock:
            self.calls += calls
            self.different += different
            if error:
                self.errors[error] = None


def _bytes(outputs: AnyArray | tuple[AnyArray, ...]) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    """Return outputs in a form that is equal only if every bit is; a NaN equals itself."""
    arrays = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple((array.shape, array.tobytes()) for array in arrays)


def _memory_and_threads() -> tuple[int, int]:
    """Return the resident bytes and the threads of this process."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        found[name] = value
    return int(found["VmRSS"].split()[0]) << 10, int(found["Threads"])
