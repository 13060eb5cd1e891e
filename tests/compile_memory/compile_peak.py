"""The most memory that a compilation takes, and the bound on it.

Only memory that the kernel cannot drop counts: private pages and pages of shared memory. Each
process counts its share of the latter (``Pss_Anon`` and ``Pss_Shmem`` of ``smaps_rollup``).
Children that generate code share most pages with their parent, so the largest size of each
(``ru_maxrss``) would count these pages several times. Pages of files do not count: libraries, the
model's weight store and the artifact are in the kernel's cache. The kernel drops them when memory
is short, and every process that maps them shares them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.frontend import models

FORMS: Final = 2.2
"""Copies of a model's weights that a compilation may hold."""

BASE: Final = 300e6
"""Bytes besides: 140 MB are TVM and LLVM before a model is read, 100 MB two children's code."""

_SECONDS: Final = 0.02
"""Time between two looks."""

_COMPILE: Final = """
import sys, neocpu
with neocpu.compile(sys.argv[1], only_databases=True):
    pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most memory that the compilation of a network took.

    - `network`: the network's name.
    - `weights`: the size of its weights in bytes.
    - `peak`: the most memory, in bytes.
    """

    network: str
    weights: int
    peak: int

    @property
    def bound(self) -> float:
        """The most that it may take, in bytes."""
        return FORMS * self.weights + BASE


def measure(network: str) -> Peak:
    """Compile a built-in network by estimates in a process of its own, and verify it."""
    weights = sum(len(tensor.raw_data) for tensor in models.build(network).graph.initializer)
    command = [sys.executable, "-c", _COMPILE, network]
    peak = 0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_held, _family(process.pid))))
            time.sleep(_SECONDS)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Peak(network=network, weights=weights, peak=peak)


def _family(pid: int) -> list[int]:
    """Return a process and those that it started, and these started in turn."""
    found = [pid]
    for each in found:  # which grows meanwhile
        try:
            for thread in os.listdir(f"/proc/{each}/task"):
                children = Path(f"/proc/{each}/task/{thread}/children").read_text()
                found.extend(map(int, children.split()))
        except OSError:  # it has ended
            continue
    return found


def _held(pid: int) -> int:
    """Return the bytes that a process holds; none of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    fields = [line.split() for line in lines]
    return sum(int(f[1]) * 1024 for f in fields if f[0] in ("Pss_Anon:", "Pss_Shmem:"))
