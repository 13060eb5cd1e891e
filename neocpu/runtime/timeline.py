"""The timeline of a model's runs, their calls of kernels, and the tasks of these calls."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from neocpu.foundation.files import replacing
from neocpu.foundation.json_codec import JsonObject
from neocpu.runtime.described_calls import DescribedCall

Kind: TypeAlias = Literal["run", "kernel", "task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """A run, a call of a kernel or a task, with its times.

    `begin` and `end`: nanoseconds of `time.monotonic_ns`. `run`: number of the run, from 0. `call`:
    position of the call among `Timeline.calls`; -1 for a run. `loop`, `task`: numbers of the call's
    parallel loop and of its part; -1 for a run or a call. `thread`: 0 is the thread that made the
    run.
    """

    begin: int
    end: int
    run: int
    call: int
    loop: int
    task: int
    thread: int

    @property
    def kind(self) -> Kind:
        return "run" if self.call < 0 else "kernel" if self.task < 0 else "task"

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) * 1e-9


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a model between `Module.start_trace` and `Module.stop_trace`.

    `events`: events in the order in which they began. One that contains others comes before them.
    """

    name: str
    calls: tuple[DescribedCall, ...]
    events: tuple[TraceEvent, ...]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline for a viewer such as https://ui.perfetto.dev or chrome://tracing.

        It is JSON in Chrome's trace event format, with microseconds since the first event. Raises
        UsageError and ArtifactError: the folder is missing or read-only, or the disk is full.
        """
        with replacing(Path(path), option="--trace") as file:
            # Written one by one: a million events in one piece would take a gigabyte of memory.
            file.write(b'{"displayTimeUnit":"ns","traceEvents":[')
            for number, event in enumerate(self._chrome_events()):
                text = json.dumps(event, separators=(",", ":"))
                file.write(f"{',' if number else ''}\n{text}".encode())
            file.write(b"\n]}\n")

    def _chrome_events(self) -> Iterator[JsonObject]:
        yield _label("process_name", 0, name=self.name)
        for thread in sorted({event.thread for event in self.events}):
            name = f"thread {thread}" if thread else "caller"
            yield _label("thread_name", thread, name=name)
            yield _label("thread_sort_index", thread, sort_index=thread)
        start = self.events[0].begin if self.events else 0
        for event in self.events:
            yield {
                "name": f"run {event.run}" if event.call < 0 else self.calls[event.call].name,
                "cat": event.kind,
                "ph": "X",
                "ts": (event.begin - start) / 1000,
                "dur": (event.end - event.begin) / 1000,
                "pid": 0,
                "tid": event.thread,
                "args": self._arguments(event),
            }

    def _arguments(self, event: TraceEvent) -> JsonObject:
        if event.kind == "run":
            return {}
        if event.kind == "task":
            return {"loop": event.loop, "task": event.task}
        call = self.calls[event.call]
        return {
            "kernel": call.kernel,
            "call": event.call,
            "weight_bytes": call.weights,
            "other_bytes": call.others,
        }


def seconds_of_calls(events: Sequence[TraceEvent], calls: int) -> list[list[float]]:
    """Return the seconds of each of ``calls`` calls in each run, summed over repetitions.

    Calls of one launch begin at once. Each gets a share of its time, by the time of its tasks.
    """
    first = min((event.run for event in events), default=0)
    runs = max((event.run + 1 for event in events), default=0) - first
    seconds = [[0.0] * runs for _ in range(calls)]
    launches: dict[tuple[int, int], list[TraceEvent]] = defaultdict(list)
    busy: Counter[tuple[int, int]] = Counter()
    for event in events:
        if event.kind == "kernel":
            launches[event.run, event.begin].append(event)
        elif event.kind == "task":
            busy[event.run, event.call] += event.end - event.begin
    for (run, _), made in launches.items():
        longest = max(event.seconds for event in made)
        parts = [busy[run, event.call] if len(made) > 1 else 1 for event in made]
        for event, part in zip(made, parts, strict=True):
            seconds[event.call][run - first] += longest * part / max(1, sum(parts))
    return seconds


def _label(kind: str, thread: int, **arguments: Any) -> JsonObject:
    return {"name": kind, "ph": "M", "pid": 0, "tid": thread, "args": arguments}
