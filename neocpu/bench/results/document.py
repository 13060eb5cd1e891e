"""The command, the machine and the versions of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass

from neocpu.foundation.machine.machine_info import MachineInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run of a benchmark: its command, machine and options."""

    command: str  # the command line
    machine: MachineInfo
    peers: tuple[str, ...]  # engines that neocpu was compared with
    threads: tuple[int, ...]
    rounds: int
    missing: tuple[str, ...] = ()  # requested engines that are not installed


def facts(run: Run) -> list[tuple[str, str]]:
    """Return the facts about a benchmark's run as names and texts."""
    machine = run.machine
    caches = ", ".join(f"{name} {_binary(size)}" for name, size in machine.caches.items())
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    missing = ("Not installed, so not compared", ", ".join(run.missing))
    return [
        ("Date", machine.date),
        ("CPU", f"{machine.cpu}, {machine.cpus} usable"),
        *([("Caches", caches)] if caches else []),
        ("Memory", _binary(machine.memory)),
        ("System", f"{machine.system}, Python {machine.python}"),
        ("Versions", versions),
        ("Threads", ", ".join(map(str, run.threads))),
        *([missing] if run.missing else []),
    ]


def _binary(size: int) -> str:
    """Return bytes as ``32 KiB``, ``1 MiB`` or ``23.4 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= scale:
            return f"{size / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size / 1024:g} KiB"
