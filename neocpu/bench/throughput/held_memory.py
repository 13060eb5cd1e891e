"""Measure the memory of a process that makes several calls at once, without other contenders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from neocpu.bench.engines.contenders import (
    Contender,
    ContenderError,
    ContenderProcess,
    converted,
)
from neocpu.foundation.progress import Progress, ProgressCallback, silent


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of a process once every stream was used."""

    streams: int  # the number of simultaneous calls
    # Resident bytes, and the same with shared pages counted in proportion.
    rss: int
    pss: int


def measure_memory(
    contenders: Sequence[Contender],
    threads: int,
    inputs: Path,
    workspace: Path,
    on_progress: ProgressCallback = silent,
) -> dict[str, ProcessMemory]:
    """Start contenders one after another; return the memory of each, by its label.

    Processes that map the same artifact share its pages, which would make each seem small, so only
    one process exists at a time. A contender that fails is left out; it fails in the race too,
    which reports the reason.

    threads: the total threads of each contender.
    inputs: a file that `neocpu.bench.engines.inputs_file.save_inputs` wrote.
    workspace: the folder of converted models.
    """
    found = {}
    for number, contender in enumerate(contenders):
        on_progress(Progress("memory", number, len(contenders), contender.label))
        with suppress(ContenderError):
            ready = converted(contender, workspace)
            with ContenderProcess(ready, threads, inputs) as process:
                process.run(1)
                memory = psutil.Process(process.pid).memory_full_info()
                found[contender.label] = ProcessMemory(process.streams, memory.rss, memory.pss)
    return found
