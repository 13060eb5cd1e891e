"""The ways in which each engine makes several calls at once. Its fastest one counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from neocpu.bench.engines.concurrent_engines import SESSIONS
from neocpu.bench.engines.contenders import OWN, Contender
from neocpu.foundation.peers import ONNXRUNTIME, OPENVINO
from neocpu.foundation.units import plural

WAYS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        OWN: (("neocpu", "stream"),),
        ONNXRUNTIME: ((SESSIONS, "session"), (ONNXRUNTIME, "caller")),
        OPENVINO: ((OPENVINO, "stream"),),
        "ncnn": (("ncnn", "net"),),
    }
)
"""The loaders of `CONCURRENT` for each engine, with the name of a simultaneous call in each."""


@dataclass(frozen=True, slots=True)
class Mode:
    """An engine that makes a number of calls at once."""

    peer: str  # the engine's name
    loader: str  # one of `neocpu.bench.engines.concurrent_engines.CONCURRENT`
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
        """Return a contender that runs the artifact or model at ``path`` in this mode."""
        return Contender(self.label, self.loader, path, self.streams)


def modes_of(engine: str, counts: Sequence[int]) -> tuple[Mode, ...]:
    """Return the modes of an engine, for each of ``counts`` simultaneous calls.

    One caller of a session is left out, because it equals one session. OpenVINO has an additional
    mode with its own choice.
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
