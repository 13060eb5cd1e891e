"""The resources of this host: CPUs, caches and memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
"""The folder in which the system describes the first CPU's caches."""

MAX_THREADS: Final = 1024
"""More threads than any machine has cores. A larger pool would bring a machine down."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache as one CPU sees it, with the bytes that it may share with others."""

    level: int
    kind: str  # Data, Instruction or Unified
    size: int
    sharers: int  # CPUs; 0 if the system does not say


def data_caches(folder: Path = CACHES) -> tuple[Cache | None, ...]:
    """Return the first CPU's data caches; None for one that the system does not describe."""
    found = (_cache(index) for index in sorted(folder.glob("index*")))
    return tuple(cache for cache in found if cache is None or cache.kind != "Instruction")


def _cache(index: Path) -> Cache | None:
    try:
        kind = (index / "type").read_text().strip()
        level = int((index / "level").read_text())
        size = int((index / "size").read_text().strip().rstrip("K")) << 10
    except (OSError, ValueError):
        return None
    try:
        sharers = _cpu_count((index / "shared_cpu_list").read_text().strip())
    except (OSError, ValueError):
        sharers = 0
    return Cache(level, kind, size, sharers)


def _cpu_count(text: str) -> int:
    """Return how many CPUs a list such as ``0-3,8`` names."""
    ranges = (part.partition("-") for part in text.split(","))
    return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


def peak_memory(process: int | str = "self") -> int:
    """Return the peak memory of a process in bytes; 0 for one that has ended.

    This is not getrusage's figure, which includes the memory of the process's parent.
    """
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def usable_cpus(
    cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Return how many CPUs this process may keep busy.

    That is its affinity, further limited by the CPU quota of its control groups (versions 1 and
    2). A fractional quota is rounded down: threads beyond it spin, and get the group throttled.
    """
    cpus = len(os.sched_getaffinity(0))
    quotas = _on_cgroup_path(cgroups, membership, "cpu", _folder_quota)
    return max(1, int(min([cpus, *quotas])))


def usable_memory(
    cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Return the bytes of memory this process may use: all, or the limit of its control groups."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = _on_cgroup_path(cgroups, membership, "memory", _folder_memory)
    return min([installed, *map(int, limits)])


def usable_cores(topology: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return how many cores this process may keep busy, at one thread per core."""
    cores = {_core(topology / f"cpu{cpu}", cpu) for cpu in os.sched_getaffinity(0)}
    return min(len(cores), usable_cpus())


def _core(folder: Path, cpu: int) -> str:
    try:
        return (folder / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)  # the system does not say: assume its own core


def _on_cgroup_path(
    root: Path, membership: Path, controller: str, read: Callable[[Path], list[float]]
) -> list[float]:
    """Return a controller's limits (version 1 or 2) from our control group up to the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root]
        elif controller in controllers.split(","):
            mounts = [root / controller, root / controllers]
        else:
            continue
        for mount in mounts:
            # In a container the path may be the host's and the mount our group: read every ancestor
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents):
                limits += read(folder)
                if folder == mount:
                    break
    return limits


def _folder_quota(folder: Path) -> list[float]:
    """Return the quota of one control group in CPUs as a list of one, or an empty list."""
    try:
        if (v2 := folder / "cpu.max").exists():
            quota, period = v2.read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return [int(quota) / int(period)] if quota not in ("max", "-1") else []
    except (OSError, ValueError):
        return []


def _folder_memory(folder: Path) -> list[float]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (folder / name).read_text().strip()
            return [] if text == "max" else [int(text)]
        except (OSError, ValueError):
            continue
    return []
