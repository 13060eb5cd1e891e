"""A run of an artifact in time, read from the timeline that ``neocpu run --trace`` wrote."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from neocpu.foundation.errors import UsageError
from neocpu.foundation.given_json import given_json
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.plain_text import plain
from neocpu.runtime.described_calls import describe_calls
from neocpu.runtime.header import ArtifactHeader

MAX_BYTES: Final = 1 << 30
_CLOSE: Final = 500  # nanoseconds between tasks of one loop that are drawn as one

Span: TypeAlias = tuple[int, int, int]  # call, begin and end, in nanoseconds of the run
Pause: TypeAlias = tuple[int, int]  # begin and end


@dataclass(frozen=True, slots=True)
class ThreadTime:
    thread: int  # number of the thread; 0 made the run
    tasks: tuple[Span, ...]  # parts of parallel loops
    waits: tuple[Pause, ...]  # of thread 0, for others to end a loop; others wait whenever idle
    busy: int  # nanoseconds; thread 0 also spends time between kernels
    waiting: int

    def to_json(self) -> JsonObject:
        return {
            "thread": self.thread,
            "busy_ns": self.busy,
            "waiting_ns": self.waiting,
            "tasks": _flat(self.tasks),
            "waits": _flat(self.waits),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrace:
    """The run of median length of a timeline."""

    runs: int  # number of runs in the timeline
    length: int  # nanoseconds of this run, and of the extremes
    shortest: int
    longest: int
    kernels: tuple[Span, ...]  # calls, on the thread that made the run
    threads: tuple[ThreadTime, ...]  # all threads; the one that made the run is first

    def to_json(self) -> JsonObject:
        """Return the JSON form; spans are flat lists of their three numbers."""
        return {
            "runs": self.runs,
            "length_ns": self.length,
            "shortest_ns": self.shortest,
            "longest_ns": self.longest,
            "kernels": _flat(self.kernels),
            "threads": [each.to_json() for each in self.threads],
        }


_Event: TypeAlias = tuple[Mapping[str, Any], tuple[int, int]]
_Kernel: TypeAlias = tuple[int, int, int]  # begin, end, and the call's position
_Task: TypeAlias = tuple[int, int, int, int]  # begin and end of a loop's part, thread, loop
_Loop: TypeAlias = tuple[int, int]  # position of the loop's call, and the loop's number
_Part: TypeAlias = tuple[_Loop, int, int]  # begin and end of a part of a loop
_Some = TypeVar("_Some", _Kernel, _Task)


def read_trace(
    path: Path, artifact: Path, header: ArtifactHeader, every: ArtifactHeader
) -> RunTrace:
    """Read an artifact's timeline; `every`: header of the file, as it counts all signatures' calls.

    Raises UsageError: the file cannot be read, or is no timeline of a run of this artifact.
    """
    remedy = f"record one with: neocpu run {artifact} --repeat 20 --trace {path.name}"
    before = takewhile(lambda each: each.inputs != header.inputs, every.each)
    first = sum(len(each.calls) for each in before)
    with given_json(path, "--trace", "timeline", MAX_BYTES, remedy) as document:
        events = document["traceEvents"]
        found = [(event, _span(event)) for event in events if event["ph"] == "X"]
        difference = _difference([event for event, _ in found], every)
        kernels = sorted(_kernels(found, range(first, first + len(header.calls))))
        runs = sorted(span for event, span in found if event["cat"] == "run")
        runs = [run for run in runs if _within(kernels, run)]
        tasks = sorted(_tasks(found))
    if difference:
        raise UsageError(f"--trace {path} is of another artifact: {difference}; {remedy}")
    if not runs:
        raise UsageError(f"--trace {path} has no whole run; {remedy}")
    runs.sort(key=lambda run: run[1] - run[0])
    shortest, run, longest = runs[0], runs[(len(runs) - 1) // 2], runs[-1]
    kernels = _within(kernels, run)
    threads = tuple(_threads(kernels, _within(tasks, run), run))
    spans = tuple((call, begin - run[0], end - run[0]) for begin, end, call in kernels)
    length, least, most = (end - begin for begin, end in (run, shortest, longest))
    return RunTrace(
        runs=len(runs), length=length, shortest=least, longest=most, kernels=spans, threads=threads
    )


def _span(event: Mapping[str, Any]) -> tuple[int, int]:
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def _difference(events: Iterable[Mapping[str, Any]], header: ArtifactHeader) -> str:
    calls = tuple(describe_calls(header))
    for event in events:
        if event["cat"] != "kernel":
            continue
        found = event["args"]
        place, kernel = int(found["call"]), str(found["kernel"])
        if not 0 <= place < len(calls):
            return f"it has a call {place}, and this one makes {len(calls)}"
        known = calls[place]
        if kernel != known.kernel:
            return f"its call {place} is of {plain(kernel)}, and here it is of {known.kernel}"
        if (found["weight_bytes"], found["other_bytes"]) != (known.weights, known.others):
            return f"its call {place}, of {plain(kernel)}, has tensors of other sizes"
    return ""


def _kernels(found: Iterable[_Event], calls: range) -> Iterator[_Kernel]:
    for event, (begin, end) in found:
        if event["cat"] == "kernel" and (call := int(event["args"]["call"])) in calls:
            yield begin, end, call - calls.start


def _tasks(found: Iterable[_Event]) -> Iterator[_Task]:
    for event, (begin, end) in found:
        if event["cat"] == "task":
            yield begin, end, int(event["tid"]), int(event["args"]["loop"])


def _within(spans: Sequence[_Some], run: tuple[int, int]) -> list[_Some]:
    """Return the spans that lie in a run; they are sorted by their begin."""
    first, last = (bisect_left(spans, at, key=lambda span: span[0]) for at in run)
    return [span for span in spans[first:last] if span[1] <= run[1]]


def _threads(
    kernels: Sequence[_Kernel], tasks: Sequence[_Task], run: tuple[int, int]
) -> Iterator[ThreadTime]:
    """Yield each thread's time. Thread 0 waits while others finish a loop, else kernels compute."""
    starts = [begin for begin, _, _ in kernels]
    parts: dict[int, list[_Part]] = {0: []}
    begins: dict[_Loop, int] = {}
    ends: dict[_Loop, int] = {}
    for begin, end, thread, number in tasks:
        made = bisect_right(starts, begin) - 1
        if made >= 0 and end <= kernels[made][1]:  # other tasks copy inputs and outputs
            loop = (made, number)
            begins.setdefault(loop, begin)
            ends[loop] = max(end, ends.get(loop, 0))
            parts.setdefault(thread, []).append((loop, begin, end))
    own = {loop: end for loop, _, end in parts[0]}
    pauses = [(own.get(loop, begins[loop]), end) for loop, end in ends.items()]
    waiting = sum(end - begin for begin, end in pauses)
    computing = sum(end - begin for begin, end, _ in kernels) - waiting
    waits = tuple((b - run[0], e - run[0]) for b, e in sorted(pauses) if b < e)
    for thread, mine in sorted(parts.items()):
        busy = sum(end - begin for _, begin, end in mine)
        times = (busy, run[1] - run[0] - busy) if thread else (computing, waiting)
        spans = ((kernels[made][2], b - run[0], e - run[0]) for (made, _), b, e in _merged(mine))
        yield ThreadTime(thread, tuple(spans), () if thread else waits, *times)


def _merged(parts: Iterable[_Part]) -> list[_Part]:
    """Return a thread's parts of loops; parts of one loop with short gaps become one."""
    found: list[_Part] = []
    for loop, begin, end in parts:
        if found and found[-1][0] == loop and begin - found[-1][2] < _CLOSE:
            found[-1] = (loop, found[-1][1], end)
        else:
            found.append((loop, begin, end))
    return found


def _flat(spans: Iterable[tuple[int, ...]]) -> list[int]:
    return [number for span in spans for number in span]
