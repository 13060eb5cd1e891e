"""The machine of a benchmark, and the load of other programs during it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import psutil

from neocpu.foundation.host import CACHES, data_caches, usable_cpus

PACKAGES: Final = (
    "neocpu",
    "apache-tvm",
    "apache-tvm-ffi",
    "onnx",
    "onnxruntime",
    "openvino",
    "ncnn",
    "pnnx",
)
"""Distributions whose versions affect a result."""

MAX_OTHER_CPUS: Final = 0.1
"""A measurement is disturbed if other programs keep more CPUs busy than this."""

MAX_STOLEN_SHARE: Final = 0.02
"""A measurement is disturbed if the hypervisor takes a larger share of the CPUs' time."""

SHORTEST: Final = 0.5
"""The shortest time, in seconds, for the system's counters, which tick in hundredths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """The machine and the date (ISO 8601, UTC) of a measurement; memory and caches in bytes."""

    cpu: str
    cpus: int
    caches: Mapping[str, int]
    memory: int
    system: str
    python: str
    versions: Mapping[str, str]
    date: str


def describe() -> MachineInfo:
    """Return the facts about this machine, without importing any engine."""
    return MachineInfo(
        cpu=_cpu_name(),
        cpus=usable_cpus(),
        caches=caches(),
        memory=psutil.virtual_memory().total,
        system=platform.platform(),
        python=platform.python_version(),
        versions=_versions(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def caches(folder: Path = CACHES) -> dict[str, int]:
    """Return the bytes of each known data cache, shared ones in full: ``{"L1d": 32768}``."""
    return {
        f"L{cache.level}" + ("d" if cache.kind == "Data" else ""): cache.size
        for cache in data_caches(folder)
        if cache is not None
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    for line in cpuinfo.read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Processor"):
            return value.strip()
    return platform.machine()


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """The CPUs that other programs kept busy on average, and the stolen share of the CPUs' time."""

    cpus: float
    stolen: float

    @property
    def disturbing(self) -> bool:
        return self.cpus > MAX_OTHER_CPUS or self.stolen > MAX_STOLEN_SHARE

    def __str__(self) -> str:
        return f"other programs used {self.cpus:.1f} CPUs, the hypervisor took {self.stolen:.0%}"


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds of the whole machine since its start: busy, idle and stolen by the hypervisor."""

    busy: float
    idle: float
    stolen: float

    @classmethod
    def now(cls) -> CpuTime:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        stolen = getattr(times, "steal", 0.0)
        # A guest's time is part of the user's.
        counted = ("user", "nice", "system", "irq", "softirq")
        return cls(sum(getattr(times, name, 0.0) for name in counted), idle, stolen)

    def other_load(self, later: CpuTime, own_seconds: float) -> OtherLoad:
        """Return the load until ``later``, without ``own_seconds`` of our own processes."""
        busy, idle = later.busy - self.busy, later.idle - self.idle
        stolen = later.stolen - self.stolen
        total = busy + idle + stolen
        wall = total / (os.cpu_count() or 1)
        if wall < SHORTEST:
            return OtherLoad(0.0, 0.0)
        return OtherLoad(max(0.0, busy - own_seconds) / wall, stolen / total)


def own_cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
