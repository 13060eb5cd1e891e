"""The runtime's library for a given machine and C library."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.linker import zig
from wheels.backend import compile_core

GLIBC: Final = "manylinux_2"
MUSL: Final = "musllinux_1"
OLDEST: Final = {GLIBC: 17, MUSL: 2}
"""The minor version of each C library that zig targets by default, and the oldest wheel tag."""

_MACHINES: Final = {62: "x86_64", 183: "aarch64"}  # by ELF's numbers
_ASKED: Final = re.compile(rf"(?:({GLIBC}|{MUSL})_(\d+)_)?({'|'.join(_MACHINES.values())})")


@dataclass(frozen=True, slots=True)
class Platform:
    """A machine and its oldest C library, as in the tag of a wheel."""

    libc: str  # `GLIBC` or `MUSL`, with the major version
    minor: int
    machine: str  # ``x86_64`` or ``aarch64``

    def __str__(self) -> str:
        return f"{self.libc}_{self.minor}_{self.machine}"

    def has(self, needed: Platform) -> bool:
        """Return whether every system of this platform also belongs to ``needed``."""
        kinds = (self.libc, self.machine), (needed.libc, needed.machine)
        return kinds[0] == kinds[1] and self.minor >= needed.minor


def compile_library(asked: str, output: Path, compiler: str | None = None) -> Platform:
    """Compile the runtime's library and return the platform that it runs on.

    `asked`: a platform such as ``musllinux_1_2_aarch64``, which needs `zig` or a suitable
    ``compiler``; or a machine, for the system's compiler and the C library that its output needs.
    Raises SystemExit: there is no compiler, it fails, or its output is for another platform.
    """
    if (match := _ASKED.fullmatch(asked)) is None:
        raise SystemExit(
            f"no platform {asked!r}: name a machine, {' or '.join(_MACHINES.values())}, or such as "
            "manylinux_2_28_x86_64 or musllinux_1_2_aarch64"
        )
    libc, minor, machine = match.groups()
    command = shlex.split(compiler) if compiler else _find_compiler(libc, minor, machine)
    compile_core(output, command)
    needed = needs_of(output)
    wanted = Platform(libc or needed.libc, int(minor or needed.minor), machine)
    if not wanted.has(needed):
        raise SystemExit(
            f"what {shlex.join(command)} compiles is for {needed}, not for {asked}: name another "
            "compiler with --cc"
        )
    return wanted


def needs_of(library: Path) -> Platform:
    """Return the platform of a library of ours: its machine, and the oldest C library it runs on.

    The versions of glibc's symbols are among its strings. musl's symbols have none.
    """
    data = library.read_bytes()
    versions = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", data)]
    libc = GLIBC if versions else MUSL
    machine = _MACHINES[int.from_bytes(data[18:20], "little")]
    return Platform(libc, max([OLDEST[libc], *versions]), machine)


def _find_compiler(libc: str | None, minor: str | None, machine: str) -> tuple[str, ...]:
    """Return the system's compiler for a machine; for a given C library, zig's."""
    gnu = f"{machine}-linux-gnu-gcc"
    if machine == os.uname().machine:
        gnu = os.environ.get("CC") or "cc"
    if libc is None and shutil.which(shlex.split(gnu)[0]):
        return tuple(shlex.split(gnu))
    target = "musl" if libc == MUSL else f"gnu.2.{minor or OLDEST[GLIBC]}"
    if (command := zig("cc", f"{machine}-linux-{target}")) is None:
        raise SystemExit(
            f"no C compiler for {machine}-linux-{target}: pip install 'neocpu[cross]', which "
            "brings zig's, or name another with --cc"
        )
    return command
