"""The memory of a process that makes calls at once, measured while no other contender is there."""

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
class Held:
    """The memory of a process once every stream was used.

    Attributes
    ----------
    streams : int
        Calls that it makes at once.
    rss, pss : int
        Resident bytes, and the same with pages that other processes have too counted in part.
    """

    streams: int
    rss: int
    pss: int


def measure_held(
    contenders: Sequence[Contender],
    threads: int,
    inputs: Path,
    workspace: Path,
    on_progress: ProgressCallback = silent,
) -> dict[str, Held]:
    """Start contenders one after another; return what each holds, by its label.

    Processes that map the same artifact share its pages, which would make each of them seem small:
    so none is there beside another. One that fails is left out; it fails in the race too, which
    says why.

    Parameters
    ----------
    threads : int
        The threads of each contender, in all.
    inputs : Path
        A file that `neocpu.bench.engines.inputs_file.save_inputs` wrote.
    workspace : Path
        The folder of converted models.
    """
    found = {}
    for number, contender in enumerate(contenders):
        on_progress(Progress("memory", number, len(contenders), contender.label))
        with suppress(ContenderError):
            ready = converted(contender, workspace)
            with ContenderProcess(ready, threads, inputs) as process:
                process.run(1)
                memory = psutil.Process(process.pid).memory_full_info()
                found[contender.label] = Held(process.streams, memory.rss, memory.pss)
    return found
