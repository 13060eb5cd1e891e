"""Time of every call inside a running artifact: ``python -m neocpu.plan.profiling.call_times``.

The arguments are the artifact, the number of threads and the number of rounds; one line of JSON
comes out, see `measure`. The runtime itself takes the times, as it does for ``neocpu run --trace``.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections import Counter
from typing import Final

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.plan.profiling.held_pages import resident_pages
from neocpu.runtime.module import load
from neocpu.runtime.timeline import Timeline, seconds_of_calls

WARMUP: Final = 3

MAX_EVENTS: Final = 1_000_000
"""Events of all rounds with a trace. Long loops get fewer rounds: their trace takes gigabytes."""


def measure(path: str, threads: int, rounds: int, number: int = 0) -> JsonObject:
    """Run an artifact on random inputs, first without a trace and then with one.

    number: the number of the shapes in a set of shapes; each of its plans has calls of its own.
    Returns: median seconds of a run without a trace (``"seconds"``), the least of these
        (``"fastest"``), the median with a trace (``"instrumented"``), the results of `times_of`,
        and that of `resident_pages` (``"pages"``).
    """
    with load(path, threads) as module:
        inputs = list(random_inputs(module.signatures[number].inputs, seed=0).values())
        counts = [len(each.calls) for each in module.metadata.each]
        own = slice(sum(counts[:number]), sum(counts[: number + 1]))

        def run() -> float:
            begin = time.perf_counter()
            module.run_plan(number, inputs)
            return time.perf_counter() - begin

        for _ in range(WARMUP):
            run()
        gc.collect()
        gc.disable()
        plain = [run() for _ in range(rounds)]
        module.start_trace()
        run()
        events = len(module.stop_trace().events)
        rounds = min(rounds, max(1, MAX_EVENTS // events))
        module.start_trace()
        instrumented = [run() for _ in range(rounds)]
        timeline = module.stop_trace()
        arena = max(each.arena_bytes for each in module.metadata.each)  # plans of a set share it
        pages = resident_pages(path, arena)
        found = times_of(timeline)
    return {
        "pages": pages,
        "seconds": statistics.median(plain),
        "fastest": min(plain),
        "instrumented": statistics.median(instrumented),
        **found,
        **{name: found[name][own] for name in ("calls", "times")},
    }


def times_of(timeline: Timeline) -> JsonObject:
    """Return the time that each call of a run takes, and the time between the calls.

    Returns: ``"calls"``: for each call, in order, its kernel, its median and its least seconds, the
        bytes of the weights that it reads, and of the other tensors that it reads or writes.
        ``"times"``: the number of times that a run makes each call; calls in a loop are made more
        than once. ``"between"``: median seconds that a run spends on anything else.
    """
    times = seconds_of_calls(timeline.events, len(timeline.calls))
    runs = [event.seconds for event in timeline.events if event.kind == "run"]
    made = Counter(event.call for event in timeline.events if event.kind == "kernel")
    between = [run - sum(calls) for run, *calls in zip(runs, *times, strict=True)]
    return {
        "calls": [
            (call.kernel, statistics.median(seconds), min(seconds), call.weights, call.others)
            for call, seconds in zip(timeline.calls, times, strict=True)
        ],
        "times": [max(1, round(made[i] / len(runs))) for i in range(len(timeline.calls))],
        "between": statistics.median(between),
    }


def main() -> None:
    """Print what `measure` returns."""
    path, *numbers = sys.argv[1:]
    print(json.dumps(measure(path, *map(int, numbers))))


if __name__ == "__main__":
    main()
