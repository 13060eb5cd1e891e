"""Find the C++ compiler that links for a machine, this host's or another."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
from typing import Final

from neocpu.foundation.errors import UsageError
from neocpu.foundation.python_child import module_command

_NATIVE_COMPILERS: Final = ("g++", "c++", "clang++", "gcc", "cc", "clang")
_CROSS_COMPILERS: Final = {
    "aarch64": ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc"),
    "x86_64": ("x86_64-linux-gnu-g++", "x86_64-linux-gnu-gcc"),
}


def find_linker(machine: str, cxx: str | None = None) -> tuple[str, ...]:
    """Return the command that links shared objects for ``machine``.

    It is ``cxx``, else ``$CXX`` or a usual name for this host's machine, and the GNU cross compiler
    or PyPI's ``ziglang`` for another.
    """
    native = machine == os.uname().machine
    if wanted := (cxx or (os.environ.get("CXX", "") if native else "")).strip():
        command = _words(wanted)
        if shutil.which(command[0]) is None:
            raise UsageError(f"C++ compiler '{command[0]}' not found: install it or change CXX")
        return command
    for name in _NATIVE_COMPILERS if native else _CROSS_COMPILERS.get(machine, ()):
        if found := shutil.which(name):
            return (found,)
    if native:
        raise UsageError(
            "no C++ compiler to link the artifact with: install g++ (Debian: apt install g++) or "
            "set CXX"
        )
    if (of_zig := zig("c++", f"{machine}-linux-gnu.2.28")) is not None:
        return of_zig
    raise UsageError(
        f"no C++ compiler to link for {machine}: install g++-{machine.replace('_', '-')}-linux-gnu "
        "(Debian's name) or pip install 'neocpu[cross]', which brings ziglang"
    )


def zig(language: str, target: str) -> tuple[str, ...] | None:
    """Return ``ziglang``'s compiler of ``cc`` or ``c++`` for a target; None if not installed.

    A target is a machine and a C library: ``aarch64-linux-musl``, ``x86_64-linux-gnu.2.17``.
    """
    if importlib.util.find_spec("ziglang") is None:
        return None
    return tuple(module_command("ziglang", language, "-target", target))


def cause(said: str) -> str:
    """Return the line of a compiler's output that tells best why it failed."""
    lines = said.strip().splitlines() or ["no message"]
    errors = [line for line in lines if "error" in line and not line.startswith("collect2:")]
    return errors[0] if errors else lines[-1]


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"C++ compiler {command!r}: {str(error).lower()}; check CXX") from None
