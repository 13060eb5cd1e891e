"""Find the number of streams and the plan with the fastest direct calls of an artifact."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.bench.engines.contenders import OWN, Contender, ContenderProcess
from neocpu.bench.engines.engine_session import save_inputs
from neocpu.bench.throughput.modes import default_counts
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.tensor_spec import TensorSpec, random_inputs
from neocpu.foundation.units import plural

FINALISTS: Final = 4  # modes tried again in turns, lest chance rank modes of about the same speed
# A factor on the fastest mode's time. Within it, each number of streams has a mode tried again.
NEAR: Final = 1.25
TURNS: Final = 5
TIE: Final = 1.05
"""A factor on the fastest mode's time. A server has as many instances as any mode within this limit
has streams. Calls on separate threads do not wait for each other when a request, or another user of
the machine, takes a CPU away. With 32 clients, ResNet-50 on a Zen 4 was served equally fast by two
instances of one thread and by one of two threads (33.7 and 33.6 requests a second), although direct
calls of the latter were faster. The 99th percentile of latencies was 1005 instead of 1102 ms."""


@dataclass(frozen=True, slots=True)
class CallMode:
    threads: int  # the total threads of all streams
    streams: int = 1  # the number of simultaneous calls, which share the threads
    rows: int = 1  # the rows of a call; a request asks for one of them

    @property
    def threads_each(self) -> int:
        return max(1, self.threads // self.streams)

    def contender(self, artifact: Path) -> Contender:
        """Return a contender in this mode. It times simultaneous calls jointly."""
        return Contender("direct", OWN, artifact, self.streams if self.streams > 1 else None)

    def __str__(self) -> str:
        streams = f"{plural(self.streams, 'stream')} of {plural(self.threads_each, 'thread')}"
        return f"{streams}, {plural(self.rows, 'row')} a call"


def fastest_calls(
    artifact: Path,
    plans: Mapping[int, Sequence[TensorSpec]],
    threads: int,
    folder: Path,
    on_progress: ProgressCallback = silent,
) -> tuple[CallMode, int]:
    """Try each plan of a set of batches on 1, 2, 4, … streams and one for each thread.

    The fastest few, and the fastest of each number of streams, are tried again in turns.
    Returns: instances for a server: the most streams of a mode that is about as fast.
    Raises ContenderError: the artifact does not run.
    """
    archives = {rows: folder / f"inputs-{rows}.npz" for rows in plans}
    for rows, archive in archives.items():
        save_inputs(archive, random_inputs(plans[rows], seed=0))
    modes = [CallMode(threads, one, rows) for rows in plans for one in default_counts(threads)]

    def started(mode: CallMode) -> ContenderProcess:
        contender = Contender(str(mode), OWN, artifact, mode.streams)
        return ContenderProcess(contender, threads, archives[mode.rows])

    once: dict[CallMode, float] = {}
    for number, mode in enumerate(modes):
        on_progress(Progress("best mode", number, len(modes)))
        with started(mode) as process:
            once[mode] = _seconds(mode, process)
    last = _finalists(once)
    times: dict[CallMode, list[float]] = {mode: [] for mode in last}
    with ExitStack() as stack:
        processes = {mode: stack.enter_context(started(mode)) for mode in last}
        for number in range(TURNS):
            on_progress(Progress("best mode, in turns", number, TURNS))
            for mode, process in processes.items():
                times[mode].append(_seconds(mode, process))
    typical = {mode: statistics.median(found) for mode, found in times.items()}
    best = min(last, key=lambda mode: typical[mode])
    return best, max(mode.streams for mode in last if typical[mode] <= TIE * typical[best])


def _finalists(once: Mapping[CallMode, float]) -> list[CallMode]:
    modes = sorted(once, key=once.__getitem__)
    of_streams = {mode.streams: mode for mode in reversed(modes)}
    near = {mode for mode in of_streams.values() if once[mode] <= NEAR * once[modes[0]]}
    return [mode for number, mode in enumerate(modes) if number < FINALISTS or mode in near]


def _seconds(mode: CallMode, process: ContenderProcess) -> float:
    """Return the seconds per row, measured over several calls."""
    (each,) = process.run(1, 1)
    return each / mode.rows
