"""The ways in which each engine makes several calls at once, and the memory that each takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from neocpu.bench.engines.contenders import (
    OWN,
    Contender,
    ContenderError,
    ContenderProcess,
    converted,
)
from neocpu.bench.engines.engines import SESSIONS
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import plural

WAYS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    OWN: (("neocpu", "stream"),),
    ONNXRUNTIME: ((SESSIONS, "session"), (ONNXRUNTIME, "caller")),
    OPENVINO: ((OPENVINO, "stream"),),
    "ncnn": (("ncnn", "net"),),
}
"""The loaders of `CONCURRENT` for each engine, with the name of a simultaneous call in each."""


@dataclass(frozen=True, slots=True)
class Mode:
    peer: str  # the engine's name
    loader: str  # one of `neocpu.bench.engines.engines.CONCURRENT`
    noun: str  # the name of a stream in this mode, such as ``session``
    streams: int  # the number of simultaneous calls; 0 lets the engine choose

    @property
    def way(self) -> str:
        """The engine, and the plural of its noun: ``onnxruntime, sessions``."""
        return f"{self.peer}, {self.noun}s" if self.streams else f"{self.peer}, its own choice"

    @property
    def name(self) -> str:
        """The number of streams in words: ``2 sessions``."""
        return plural(self.streams, self.noun) if self.streams else "its own choice"

    @property
    def label(self) -> str:
        """The contender's label: ``onnxruntime, 2 sessions``."""
        return f"{self.peer}, {self.name}"

    def contender(self, path: Path) -> Contender:
        return Contender(self.label, self.loader, path, self.streams)


def modes_of(engine: str, counts: Sequence[int]) -> tuple[Mode, ...]:
    """Return the modes of an engine, for each of ``counts`` simultaneous calls.

    One caller of a session equals one session. OpenVINO also has a mode of its own choice.
    """
    chosen = (0, *counts) if engine == OPENVINO else counts
    return tuple(
        Mode(engine, loader, noun, streams)
        for loader, noun in WAYS[engine]
        for streams in chosen
        if (noun, streams) != ("caller", 1)
    )


def default_counts(threads: int) -> tuple[int, ...]:
    """Return the numbers of simultaneous calls to try: 1, 2, 4, … and one for each thread."""
    powers = (1 << power for power in range(threads.bit_length()))
    return tuple(sorted({*powers, threads}))


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    streams: int  # the number of simultaneous calls
    rss: int  # resident bytes; with shared pages in proportion: pss
    pss: int


def measure_memory(
    contenders: Sequence[Contender],
    threads: int,
    inputs: Path,
    workspace: Path,
    on_progress: ProgressCallback = silent,
) -> dict[str, ProcessMemory]:
    """Start contenders one by one, as they would share pages; return the memory by label.

    A contender that fails is left out; it fails in the race too, which reports the reason.
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
