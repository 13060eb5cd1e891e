"""Counting the instructions that an AArch64 program executes, without an AArch64 machine.

QEMU's user mode emulates the program; `qemu_counter.c`, a plugin of it, counts how often each block
of code is executed between two marks that the program sets. Counts are exact, and the same wherever
they are taken.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.foundation.temporary import TemporaryFolder

_log = logging.getLogger("neocpu")

PLUGIN_SOURCE: Final = Path(__file__).with_name("qemu_counter.c")
QEMU: Final = "qemu-aarch64"
INSTRUCTION_BYTES: Final = 4

#: Debian's package of each command that counting and modelling need.
TOOLS: Final[Mapping[str, str]] = {
    QEMU: "qemu-user",
    "llvm-mc": "llvm",
    "llvm-mca": "llvm",
    "cc": "gcc",
}


@dataclass(frozen=True, slots=True)
class Executed:
    """An instruction that was executed: its address, machine code and number of times."""

    address: int
    word: int
    times: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The instructions that a program executed between its marks, by address, and its output."""

    executed: tuple[Executed, ...]
    printed: str


def require_tools() -> None:
    """Refuse if a command is missing, and name the one that installs it."""
    missing = [command for command in TOOLS if shutil.which(command) is None]
    if missing:
        packages = dict.fromkeys(TOOLS[command] for command in missing)
        raise UsageError(
            f"counting instructions needs {', '.join(missing)}: "
            f"apt-get install -y --no-install-recommends {' '.join(packages)}"
        )


def build_counter(folder: Path) -> Path:
    """Compile the plugin into ``folder`` and return its path."""
    plugin = folder / "qemu_counter.so"
    run(["cc", "-O2", "-shared", "-fPIC", "-o", str(plugin), str(PLUGIN_SOURCE)])
    return plugin


def count(
    program: Sequence[str],
    plugin: Path,
    cpu: str,
    root: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Counted:
    """Run an AArch64 program and count what it executes between its marks.

    It sees QEMU's ``cpu``, and looks for libraries and absolute paths in ``root`` first.
    ``environment`` has further variables. A `NeoCPUError` says that it failed, or did not set both
    marks.
    """
    with TemporaryFolder("count") as folder:
        counts = Path(folder) / "counts"
        printed = run([*_emulator(plugin, counts, cpu, root, environment or {}), *program])
        if not counts.exists():
            raise NeoCPUError(f"'{shlex.join(program)}' ended without marking what to count")
        return Counted(parse_counts(counts.read_text()), printed)


def _emulator(
    plugin: Path, counts: Path, cpu: str, root: Path | None, environment: Mapping[str, str]
) -> list[str]:
    command = [QEMU, "-cpu", cpu, "-plugin", f"{plugin},out={counts}"]
    command += [] if root is None else ["-L", str(root)]
    for name, value in environment.items():
        command += ["-E", f"{name}={value}"]
    return command


def parse_counts(text: str) -> tuple[Executed, ...]:
    """Read what the plugin wrote: blocks, which may overlap, into instructions by address."""
    found: dict[int, Executed] = {}
    for line in text.splitlines():
        start, times, code = line.split()
        for index in range(0, len(code), 2 * INSTRUCTION_BYTES):
            address = int(start) + index // 2
            before = found[address].times if address in found else 0
            word = int(code[index : index + 2 * INSTRUCTION_BYTES], 16)
            found[address] = Executed(address, word, before + int(times))
    return tuple(found[address] for address in sorted(found))


def run(command: Sequence[str], stdin: str = "") -> str:
    """Run a command and return what it prints; if it fails, its last line is the error."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        _log.debug("failed: %s", shlex.join(command))
        raise NeoCPUError(f"{Path(command[0]).name} failed: {reason}")
    return done.stdout
