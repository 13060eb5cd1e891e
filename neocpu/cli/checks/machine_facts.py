"""Facts about a machine for a bug report: versions, CPU, limits, memory and compilers.

Nothing here identifies the machine: no name of it or of a user, no path, no variable's value.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import neocpu
from neocpu.foundation.host import data_caches, usable_cores, usable_cpus, usable_memory
from neocpu.foundation.instruction_sets import TILES_REFUSED, host_features, refused_features
from neocpu.foundation.machine.cpu_identity import host_cpu
from neocpu.foundation.units import plural

DISTRIBUTIONS: Final = ("neocpu", "neocpu-runtime")
BESIDE: Final = ("torch", "tensorflow-cpu")
"""Packages that ours do not require, but that affect a process which imports them."""
COMPILERS: Final = ("g++", "clang++", "ld")
COMPILER_TIMEOUT: Final = 20.0
VARIABLES: Final = re.compile(r"(NEOCPU|TVM|OMP|KMP|GOMP|MALLOC|LD)_\w+|CXX|TMPDIR|PYTHON\w+")
"""Variables that affect neocpu. Only the names of those that are set are reported, not values."""

_SYSTEM: Final = Path("/sys")


def facts() -> dict[str, str]:
    """Return all facts by name; a fact that cannot be found out says so."""
    return {name: _fact(find) for name, find in FACTS.items()}


def _fact(find: Callable[[], str]) -> str:
    try:
        return find()
    except Exception as error:  # reports of broken machines are needed most
        return f"not to be found out: {type(error).__name__}"


def python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def system() -> str:
    libc = " ".join(platform.libc_ver()).strip() or "C library unknown"
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown distribution")
    except OSError:
        name = "unknown distribution"
    return f"{platform.system()} {platform.release()}, {platform.machine()}, {name}, {libc}"


def packages() -> str:
    """Return the versions of the installed packages that we use or may use."""
    found = {name: _version(name) for name in (*_required(), *BESIDE)}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def _required() -> Iterable[str]:
    """Return the packages that ours require, also in extras, each once."""
    lines = [
        line for ours in DISTRIBUTIONS if _version(ours) for line in metadata.requires(ours) or ()
    ]
    return dict.fromkeys(re.split(r"[^\w.-]", line)[0] for line in lines)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def cpu() -> str:
    """Return the CPU's names, and whether it is virtual."""
    text = Path("/proc/cpuinfo").read_text()
    named = re.search(r"(?m)^model name\s*:\s*(.+)$", text)
    guest = re.search(r"(?m)^flags\s*:.*\bhypervisor\b", text)
    names = [named[1] if named else platform.machine(), host_cpu() or "unknown to LLVM"]
    return ", ".join([*names, *(["virtual"] if guest else [])])


def instruction_sets() -> str:
    named = " ".join(sorted(host_features())) or "none that matters"
    refused = ", ".join(sorted(refused_features()))
    return f"{named}; not {refused}: {TILES_REFUSED}" if refused else named


def caches() -> str:
    found = [cache for cache in data_caches() if cache is not None]
    return ", ".join(
        f"L{cache.level} {cache.size >> 10} KiB"
        + (f" shared by {cache.sharers}" if cache.sharers > 1 else "")
        for cache in found
    )


def cpus() -> str:
    """Return the numbers of CPUs that are present, allowed and usable, and of cores and nodes."""
    allowed, usable = len(os.sched_getaffinity(0)), usable_cpus()
    quota = f"control groups leave {usable}" if usable < allowed else "no quota below that"
    nodes = len([*_SYSTEM.glob("devices/system/node/node[0-9]*")]) or 1
    present = os.cpu_count()
    return (
        f"{present} present, affinity allows {allowed}, {quota}; "
        f"{plural(usable_cores(), 'core')}, {plural(nodes, 'memory node')}"
    )


def control_groups() -> str:
    v2 = (_SYSTEM / "fs/cgroup/cgroup.controllers").exists()
    return "version 2" if v2 else "version 1" if (_SYSTEM / "fs/cgroup/cpu").exists() else "none"


def clock() -> str:
    governor = _SYSTEM / "devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return f"governor {governor.read_text().strip()}" if governor.exists() else "not visible here"


def memory() -> str:
    total, free = (_meminfo()[name] for name in ("MemTotal", "MemAvailable"))
    return (
        f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} available, "
        f"{usable_memory() / 2**30:.1f} allowed; pages of {os.sysconf('SC_PAGE_SIZE') >> 10} KiB"
    )


def huge_pages() -> str:
    setting = _SYSTEM / "kernel/mm/transparent_hugepage/enabled"
    chosen = re.search(r"\[(\w+)\]", setting.read_text()) if setting.exists() else None
    found = _meminfo()
    return (
        f"transparent: {chosen[1] if chosen else 'never'}; "
        f"{found.get('HugePages_Free', 0)} of {found.get('HugePages_Total', 0)} reserved ones free"
    )


def _meminfo() -> Mapping[str, int]:
    rows = re.findall(r"(?m)^([\w()]+):\s+(\d+)( kB)?$", Path("/proc/meminfo").read_text())
    return {name: int(count) << (10 if unit else 0) for name, count, unit in rows}


def compilers() -> str:
    return "; ".join(map(_compiler, filter(shutil.which, COMPILERS))) or "none"


def _compiler(name: str) -> str:
    done = subprocess.run(
        [name, "--version"], capture_output=True, text=True, check=False, timeout=COMPILER_TIMEOUT
    )
    return done.stdout.partition("\n")[0] or f"{name} of unknown version"


def variables() -> str:
    """Return the names of variables that are set, without their values."""
    return ", ".join(sorted(filter(VARIABLES.fullmatch, os.environ))) or "none of ours"


FACTS: Final[Mapping[str, Callable[[], str]]] = {
    "neocpu": lambda: neocpu.__version__,
    "python": python,
    "system": system,
    "packages": packages,
    "CPU": cpu,
    "instruction sets": instruction_sets,
    "caches": caches,
    "CPUs": cpus,
    "control groups": control_groups,
    "clock": clock,
    "memory": memory,
    "huge pages": huge_pages,
    "compilers": compilers,
    "variables set": variables,
}


LEAST: Final = 4  # length of a replaced variable's value; shorter ones are numbers and switches

_FOLDER: Final = "/…"
# Absolute paths, also after a compiler's -I or -L, and relative paths that begin with dots.
_PATH: Final = re.compile(
    r"""(?:(?<![\w.])|(?<=\s-[IL]))\.{0,2}(?:/[^\s/'",;:()]+)*/([^\s/'",;:()]+)"""
)
_LOGIN: Final = re.compile(r"(?<=://)[^\s/@]+@")


def without_secrets(text: str) -> str:
    """Return a text with only the last parts of paths, and without names of users and the host."""
    known = _replaced(_LOGIN.sub("", text), dict.fromkeys(_folders(), _FOLDER))
    return _nameless(_PATH.sub(r"…/\1", known))


def without_values(text: str) -> str:
    """Do as `without_secrets`, with ``/…`` or ``$NAME`` for values of environment variables."""
    values: dict[str, str] = {}
    for name, value in os.environ.items():
        for part in {value, *value.split(os.pathsep)}:
            values.setdefault(part, _FOLDER if part.startswith("/") else f"${name}")
    known = {value: name for value, name in values.items() if len(value) >= LEAST}
    return without_secrets(_replaced(text, known))


def _folders() -> Iterable[str]:
    own = Path(neocpu.__file__).parent
    home, here = os.path.expanduser("~"), os.getcwd()
    found = (home, here, sys.prefix, sys.base_prefix, str(own), tempfile.gettempdir())
    return (folder for folder in found if len(folder) > 1)


def _replaced(text: str, others: Mapping[str, str]) -> str:
    """Replace whole words, the longest first, in one pass: replacements are not replaced again."""
    if not others:
        return text
    longest = sorted(others, key=len, reverse=True)
    return re.sub("|".join(map(_whole, longest)), lambda found: others[found[0]], text)


def _whole(word: str) -> str:
    """Return a pattern that matches a text where it is no part of a longer word."""
    before, after = (r"\w" if end.isalnum() else "(?!)" for end in (word[0], word[-1]))
    return f"(?<!{before}){re.escape(word)}(?!{after})"


def _nameless(text: str) -> str:
    host = socket.gethostname()
    names = {name: "<host>" for name in (host, host.partition(".")[0])}
    for find in (getpass.getuser, lambda: Path.home().name):
        try:
            names[find()] = "<user>"
        except (KeyError, OSError, RuntimeError):  # the system does not know the user
            continue
    return _replaced(text, {name: other for name, other in names.items() if name})
