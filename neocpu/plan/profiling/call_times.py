"""Time of every call inside a running artifact: ``python -m neocpu.plan.profiling.call_times``.

The arguments are the artifact, the number of threads and the number of rounds; one line of JSON
comes out, see `measure`. The runtime itself takes the times, as it does for ``neocpu run --trace``.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.runtime.artifact import ArtifactFile
from neocpu.runtime.module import load
from neocpu.runtime.timeline import Timeline, seconds_of_calls

_HUGE: Final = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Private_Hugetlb")
_SIZE: Final = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A range of addresses, as ``/proc/PID/smaps`` describes it."""

    file: tuple[int, int]  # device and inode; zeros where the range maps no file
    start: int  # first byte in the file
    size: int
    resident: int  # the bytes that are in memory
    huge: int  # the bytes that are in huge pages
    wants_huge: bool  # whether the process asked for huge pages

    def holds(self, file: tuple[int, int], part: range) -> bool:
        return self.file == file and self.start < part.stop and part.start < self.start + self.size


def resident_pages(artifact: str, arena_bytes: int) -> JsonObject:
    """Return how much of the weights and arena of an artifact that ran is in this process's memory.

    Returns: ``"weights"`` and ``"arena"``, unless they look like other memory, each with its
        ``"mapped"`` and ``"resident"`` bytes, and the ``"huge"`` ones in huge pages.
    """
    try:
        mappings = parse_smaps(Path("/proc/self/smaps").read_text())
    except (OSError, ValueError, LookupError):
        return {}  # a kernel without them
    file, weights = _weights_in(Path(artifact))
    # The arena asks for huge pages. Little else does, and nothing else has its size.
    arenas = [
        one
        for one in mappings
        if one.wants_huge and not any(one.file) and one.size >= arena_bytes > 0
    ]
    found = {
        "weights": [one for one in mappings if weights and one.holds(file, weights)],
        "arena": sorted(arenas, key=lambda one: one.size)[:1],
    }
    return {name: _sums(some) for name, some in found.items() if some}


def parse_smaps(text: str) -> tuple[Mapping, ...]:
    found = []
    for block in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)[1:]:
        head, _, rest = block.partition("\n")
        addresses, _, offset, device, inode, *_ = head.split()
        start, end = (int(word, 16) for word in addresses.split("-"))
        major, minor = (int(word, 16) for word in device.split(":"))
        sizes = {name: int(size) << 10 for name, size in _SIZE.findall(rest)}
        found.append(
            Mapping(
                file=(os.makedev(major, minor), int(inode)),
                start=int(offset, 16),
                size=end - start,
                resident=sizes["Rss"],
                huge=sum(size for name, size in sizes.items() if name in _HUGE),
                wants_huge=" hg" in rest,
            )
        )
    return tuple(found)


def _weights_in(artifact: Path) -> tuple[tuple[int, int], range]:
    opened = ArtifactFile(artifact)
    loaded = opened.loadable or opened.variants[0]
    start = loaded.offset + loaded.code_bytes
    status = os.fstat(opened.fd)
    return (status.st_dev, status.st_ino), range(start, start + loaded.weight_bytes)


def _sums(mappings: list[Mapping]) -> dict[str, int]:
    return {
        "mapped": sum(one.size for one in mappings),
        "resident": sum(one.resident for one in mappings),
        "huge": sum(one.huge for one in mappings),
    }


WARMUP: Final = 3

MAX_EVENTS: Final = 1_000_000  # of all rounds with a trace, which takes gigabytes


def measure(path: str, threads: int, rounds: int, number: int = 0) -> JsonObject:
    """Run an artifact on random inputs, first without a trace and then with one.

    number: the number of the shapes in a set of shapes; each of its plans has calls of its own.
    Returns: median seconds without a trace (``"seconds"``), the least (``"fastest"``), the median
        with one (``"instrumented"``), the results of `times_of` and `resident_pages` (``"pages"``).
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

    Returns: ``"calls"``: for each call, in order, its kernel, its median and its least seconds, and
        the bytes of weights and of other tensors; ``"times"``: how often a run makes each, more
        than once in loops; ``"between"``: median seconds that a run spends on anything else.
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
    path, *numbers = sys.argv[1:]
    print(json.dumps(measure(path, *map(int, numbers))))


if __name__ == "__main__":
    main()
