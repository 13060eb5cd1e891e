"""The time of every parallel loop of a run: ``python -m neocpu.bench.scaling.loop_times``.

The arguments are the artifact, the number of rounds, and a number of threads; one line of JSON
comes out, see `measure`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, c_uint64
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from neocpu.bench.limits.measuring_process import measure_in_process
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.plan.profiling.call_times import MAX_EVENTS, WARMUP, times_of
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.artifact import read_header
from neocpu.runtime.guarding.kernel_calls import Kernel
from neocpu.runtime.module import Module, load
from neocpu.runtime.timeline import Timeline
from neocpu.schedules.estimates.loop_threads import OF_EXTENT
from neocpu.schedules.estimates.parallel_run import CallTime, LoopTime, RunTime

ROUNDS: Final = 20
FEWEST_ROUNDS: Final = 5
SHORTEST: Final = 1.5  # least seconds of all rounds: disturbances of short ones hit neighbours
LONGEST: Final = 20.0  # seconds above which there are only `FEWEST_ROUNDS`
RUNS: Final = 6  # of a round, which takes at most so many times as long as a run on one thread
TIMEOUT: Final = 600.0


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    seconds: float  # the time of a run as it is, on the number of threads asked for
    run: RunTime  # the parts of the time of a run on one thread


class _KernelTable(Structure):
    """``nc_kernel_table``, as far as it is read here."""

    _fields_ = (("magic", c_uint64), ("count", c_uint64), ("kernels", POINTER(Kernel)))


def kernel_loops(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the iterations of each kernel's parallel loops, from the code; 0 for unknown ones, and
    for those that depend on a call's sizes.
    """
    # The system's loader maps the file once more, but reads no weights.
    table = _KernelTable.in_dll(ctypes.CDLL(str(path)), "neocpu_kernel_table")
    kernels = table.kernels[: table.count]
    return {
        one.name.decode(): tuple(
            0 if loop & OF_EXTENT else loop for loop in one.launches[: one.launch_count]
        )
        for one in kernels
    }


def measure(path: Path, rounds: int, threads: int) -> JsonObject:
    """Run an artifact on random inputs, in turns on several threads and, traced, on one thread.

    Returns: ``"seconds"`` of a run on several threads, seconds ``"between"`` the calls on one, and
        the ``"calls"``: fields of `CallTime`; all means over the quickest quarter of the runs, the
        same for one thread: the quickest times of all parts add up to less than any run.
    """
    loops = kernel_loops(path)
    with load(path, 1) as one, load(path, threads) as several:
        inputs = [_aligned(each) for each in random_inputs(one.inputs, seed=0).values()]
        for module in (several, one):
            for _ in range(WARMUP):
                _run(module, inputs)
        gc.collect()
        gc.disable()
        alone, timeline = _traced(one, inputs)
        rounds = max(rounds, int(SHORTEST / (alone * RUNS)))
        rounds = min(rounds, max(FEWEST_ROUNDS, int(LONGEST / (alone * RUNS))))
        traced = min(rounds, max(1, MAX_EVENTS // len(timeline.events)))
        plain, callers, timelines = [], [], []
        for number in range(rounds):
            # The first run of each side brings its weights and feature maps back to the caches.
            _run(several, inputs)
            plain.append(_run(several, inputs))
            called, timeline = _traced(several, inputs)
            callers.append(called - _whole(timeline))
            if number < traced:
                _run(one, inputs)
                timelines.append(_traced(one, inputs)[1])
    # The Python part of a call does not count. Only traces separate it from the run.
    seconds = _quickest(plain) - _quickest(callers)
    timelines.sort(key=_whole)
    quickest = timelines[: _quarter(len(timelines))]
    return {"seconds": seconds, **_described(quickest, loops)}


def _run(module: Module, inputs: list[AnyArray]) -> float:
    begin = time.perf_counter()
    module(inputs)
    return time.perf_counter() - begin


def _traced(module: Module, inputs: list[AnyArray]) -> tuple[float, Timeline]:
    module.start_trace()
    seconds = _run(module, inputs)
    return seconds, module.stop_trace()


def _whole(timeline: Timeline) -> float:
    return next(event.seconds for event in timeline.events if event.kind == "run")


def _quarter(count: int) -> int:
    return math.ceil(count / 4)


def _quickest(seconds: Sequence[float]) -> float:
    """Return the mean of the quickest quarter, because disturbances only make runs longer."""
    return fmean(sorted(seconds)[: _quarter(len(seconds))])


def _aligned(array: AnyArray) -> AnyArray:
    """Return a copy that is read in place, because copying is not part of a kernel."""
    found = aligned_empty(array.shape, array.dtype)
    found[...] = array
    return found


def _described(timelines: Sequence[Timeline], loops: Mapping[str, Sequence[int]]) -> JsonObject:
    each = [times_of(timeline) for timeline in timelines]
    spent = [_loop_seconds(timeline) for timeline in timelines]
    calls = [
        CallTime(
            name=call.name,
            kernel=call.kernel,
            seconds=fmean(times["calls"][number][1] for times in each),
            loops=_loops(loops.get(call.kernel, ()), [run.get(number, {}) for run in spent]),
            weights=call.weights,
            others=call.others,
            times=each[0]["times"][number],
        )
        for number, call in enumerate(timelines[0].calls)
    ]
    between = fmean(map(_whole, timelines)) - math.fsum(call.seconds for call in calls)
    return {"calls": [asdict(call) for call in calls], "between": max(0.0, between)}


def _loop_seconds(timeline: Timeline) -> dict[int, dict[int, list[float]]]:
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event in timeline.events:
        if event.kind == "task":
            found[event.call][event.loop].append(event.seconds)
    return found


def _loops(
    iterations: Sequence[int], runs: Sequence[Mapping[int, Sequence[float]]]
) -> tuple[LoopTime, ...]:
    """Return a call's loops. A call that is repeated enters them repeatedly in the same order."""
    count = len(iterations)
    if count == 0 or not runs[0]:
        return ()
    found = []
    for place, extent in enumerate(iterations):
        seconds = [
            sum(sum(tasks) for loop, tasks in run.items() if loop % count == place) for run in runs
        ]
        entered = sum(len(tasks) for loop, tasks in runs[0].items() if loop % count == place)
        found.append(LoopTime(extent, fmean(seconds), entered))
    return tuple(found)


def measure_run(artifact: Path, threads: int, rounds: int = ROUNDS) -> MeasuredRun:
    """Run an artifact in a separate process: see `measure`.

    Raises ArtifactError: the artifact does not run.
    """
    measured = measure_in_process(
        "neocpu.bench.scaling.loop_times",
        (artifact, rounds, threads),
        ArtifactError,
        f"time {artifact.name}",
        TIMEOUT,
    )
    calls = tuple(map(_call, measured["calls"]))
    run = RunTime(calls, measured["between"], read_header(artifact).launches)
    return MeasuredRun(measured["seconds"], run)


def _call(measured: Mapping[str, Any]) -> CallTime:
    loops = tuple(LoopTime(**loop) for loop in measured["loops"])
    return CallTime(**{**measured, "loops": loops})


def main() -> None:
    path, rounds, threads = sys.argv[1:]
    print(json.dumps(measure(Path(path), int(rounds), int(threads))))


if __name__ == "__main__":
    main()
