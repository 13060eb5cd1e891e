"""Settings of a process of our own: a command, a child or a test."""

from __future__ import annotations

import gc
import os
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 50)
"""New objects per collection of the youngest generation, and collections of each generation per
collection of the next."""

_SHORTEST_SPIN: Final = "4"
"""The least that OpenBLAS takes: log2 of the cycles for which an idle thread looks for work."""


def collect_rarely() -> None:
    """Make the garbage collector search for cycles rarely.

    By default Python searches after every 700 new objects, also through TVM's and ONNX's modules,
    for a tenth of a compilation's time. TVM's objects are reference-counted and need no search.
    """
    gc.set_threshold(*_THRESHOLDS)


def wait_idly() -> None:
    """Make numpy's threads sleep between two products. Call this before numpy is imported.

    Otherwise they look for work for hundredths of a second, on CPUs that code generation needs.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", _SHORTEST_SPIN)


def end_quickly() -> None:
    """Keep the interpreter from a last search for cycles, which takes 0.25 s with TVM."""
    gc.freeze()
