"""The resources of a process: threads, mappings, descriptors, temporary files, memory."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

ENDING_SECONDS: Final = 20.0
"""The most seconds that ending threads may take: TVM's threads spin before they notice."""

MEMORY_SLACK: Final = 16 << 20
"""Bytes by which an allocator may grow over any number of rounds."""

_MAPS_SLACK: Final = 8  # the allocator's own come and go


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources of a process at one moment; ``files`` are neocpu's temporary files."""

    threads: int
    maps: int
    descriptors: int
    files: int
    resident: int

    @classmethod
    def of(cls, process: int | None = None) -> Footprint:
        """Read the footprint of a process, by default this one."""
        here = Path("/proc") / str(process or os.getpid())
        pages = int((here / "statm").read_text().split()[1])
        return cls(
            threads=len(os.listdir(here / "task")),
            maps=(here / "maps").read_text().count("\n"),
            descriptors=len(os.listdir(here / "fd")),
            files=temporary_files(),
            resident=pages * os.sysconf("SC_PAGE_SIZE"),
        )

    def growth_over(self, before: Footprint, memory: int = MEMORY_SLACK) -> list[str]:
        """Return a line for each resource that has grown."""
        slack = {"maps": _MAPS_SLACK, "resident": memory}
        pairs = ((f.name, getattr(before, f.name), getattr(self, f.name)) for f in fields(self))
        return [f"{name}: {a} -> {b}" for name, a, b in pairs if b > a + slack.get(name, 0)]


def temporary_files() -> int:
    """Count the files with neocpu's names in the folder for temporary files."""
    names = os.listdir(tempfile.gettempdir())
    return sum("neocpu" in name for name in names)


def check_flat(
    work: Callable[[int], object],
    rounds: int,
    *,
    warmup: int = 20,
    memory: int = MEMORY_SLACK,
    process: int | None = None,
) -> tuple[Footprint, Footprint]:
    """Do ``work(i)`` for some rounds, and check that no resource of a process has grown.

    `warmup`: rounds before the first measurement, in which caches and allocators fill. `memory`:
    the bytes by which resident memory may grow over all rounds. `process`: the process to measure;
    by default this one. The footprints before and after the rounds.
    """
    for number in range(warmup):
        work(number)
    before = _stable_footprint(process, None, memory)
    for number in range(rounds):
        work(warmup + number)
    after = _stable_footprint(process, before, memory)
    growth = after.growth_over(before, memory)
    assert not growth, f"after {rounds} rounds: {', '.join(growth)}"
    return before, after


def _stable_footprint(process: int | None, before: Footprint | None, memory: int) -> Footprint:
    """Return the footprint once it no longer exceeds ``before``, or once threads are stable.

    The wait is bounded by `ENDING_SECONDS`, and nothing is asserted about it.
    """
    deadline = time.monotonic() + ENDING_SECONDS
    gc.collect()
    last = Footprint.of(process)
    while time.monotonic() < deadline:
        if before is not None and not last.growth_over(before, memory):
            break
        time.sleep(0.2)
        now = Footprint.of(process)
        if before is None and now.threads == last.threads:
            return now
        last = now
    return last
