"""An emulated AArch64 system: its Python, and what programs read of the board's CPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import UsageError

CPU: Final = "cortex-a72"
"""The CPU's name, which is the same in QEMU, LLVM and neocpu."""

CORES: Final = 4
_PART: Final = """\
processor\t: {core}
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

"""
# The caches of a Raspberry Pi 4: level, kind, size, and the cores that share one.
_CACHES: Final = ((1, "Data", "32K", "{core}"), (1, "Instruction", "48K", "{core}"))
_L2: Final = (2, "Unified", "1024K", f"0-{CORES - 1}")


@dataclass(frozen=True, slots=True)
class ArmSystem:
    """An AArch64 system's Python, and the root where programs look for files (QEMU's ``-L``)."""

    python: Path
    root: Path


def open_system(sysroot: Path, folder: Path) -> ArmSystem:
    """Return the system in ``sysroot`` with the CPU of a board, described in ``folder``.

    QEMU would show the host's ``/proc/cpuinfo`` and ``/sys``, which do not describe the board.
    """
    python = next(iter(sorted(sysroot.glob("usr/bin/python3.*"))), None)
    if python is None or not _find(sysroot, "neocpu"):
        raise UsageError(
            f"no AArch64 system in {sysroot}: make one by 'make build/arm/.ready', or name it by "
            "--sysroot"
        )
    for entry in sysroot.resolve().iterdir():
        if entry.name not in ("proc", "sys"):
            (folder / entry.name).symlink_to(entry)
    _describe_cpu(folder)
    return ArmSystem(python, folder)


def guest_program() -> Path:
    return Path(__file__).with_name("arm_guest.py")


def _find(sysroot: Path, package: str) -> bool:
    return any(sysroot.glob(f"usr/lib/python3*/*/{package}"))


def _describe_cpu(root: Path) -> None:
    cores = root / "sys" / "devices" / "system" / "cpu"
    cores.mkdir(parents=True)
    for name in ("possible", "present", "online"):
        (cores / name).write_text(f"0-{CORES - 1}\n")
    (root / "proc").mkdir()
    (root / "proc" / "cpuinfo").write_text("".join(_PART.format(core=i) for i in range(CORES)))
    for core in range(CORES):
        for index, (level, kind, size, shared) in enumerate((*_CACHES, _L2)):
            cache = cores / f"cpu{core}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            values = {
                "level": str(level),
                "type": kind,
                "size": size,
                "shared_cpu_list": shared.format(core=core),
            }
            for name, value in values.items():
                (cache / name).write_text(f"{value}\n")
