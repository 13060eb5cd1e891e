"""A machine that is new: a minimal Debian in a temporary folder, the clone, and a user's commands.

It gets this machine's network, sources of Debian's packages and pip settings. Mounts and processes
are in namespaces of their own, so that none outlives this script.
"""

from __future__ import annotations

import ast
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parents[2]
#: The README's words, and Debian's package of `python3 -m venv`.
PACKAGES: Final = ("python3", "python3-venv", "gcc", "g++", "make")
#: Programs that make a Debian, the better one first. Servers of unreleased suites may be some weeks
#: out of date; their packages are signed nevertheless.
BOOTSTRAPS: Final = {
    "mmdebstrap": ("--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"'),
    "debootstrap": ("--variant=minbase",),
}
USER: Final = "stranger"
HOME: Final = Path("home", USER)
CLONE: Final = HOME / "neocpu"
#: The variables of this machine by which its network is reached.
NETWORK: Final = frozenset(f"{name}_proxy" for name in ("http", "https", "ftp", "all", "no"))
#: Setting of pip that a fresh machine has not.
CACHE: Final = "PIP_CACHE_DIR"
#: Own mounts and processes; all end with the first process, which ends with this script.
ISOLATED: Final = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
#: Attempts, one a second, to remove a folder into which killed processes still write.
REMOVALS: Final = 10


def run_on_a_new_one(
    bootstrap: tuple[str, ...], suite: str, commands: Sequence[str]
) -> tuple[int, str]:
    """Make a machine and have its user run commands in the clone, until one fails.

    Their status is returned, and what they left in the clone if it is 0.
    """
    with temporary_folder() as machine:
        run(*ISOLATED, *bootstrap, suite, str(machine), *debian_sources(bootstrap[0], suite))
        set_up(machine)
        settings = pip_settings()
        script = "\n".join(("set -e", *mounts(machine, settings), login(machine, commands)))
        done = subprocess.run(
            [*ISOLATED, "sh", "-c", script], env=environment(settings), check=False
        )
        return done.returncode, left_behind(machine) if done.returncode == 0 else ""


def find_bootstrap(more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the beginning of the command that makes a Debian with ``more`` packages, or exit."""
    if os.geteuid() != 0:
        sys.exit("fresh: only root can make a machine of its own: sudo make fresh")
    for tool, options in BOOTSTRAPS.items():
        if shutil.which(tool):
            return tool, *options, f"--include={','.join((*PACKAGES, *more))}"
    sys.exit("fresh: needs mmdebstrap: apt-get install -y --no-install-recommends mmdebstrap")


def head() -> str:
    """Return the last commit, which is tested without uncommitted changes."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h %s"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def debian_sources(tool: str, suite: str) -> list[str]:
    """Return the sources of packages: those of this machine if it is a Debian.

    Another suite comes from the same server.
    """
    files = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
    source = next((path for path in files if path.is_file() and path.stat().st_size), None)
    release = platform.freedesktop_os_release()
    if source is None or release.get("ID") != "debian":
        return []
    if tool == "mmdebstrap" and release.get("VERSION_CODENAME") == suite:
        return [str(source)]
    lines = [line.partition("#")[0] for line in source.read_text().splitlines()]
    words = " ".join(lines).split()
    return [word for word in words if word.startswith("http") and "security" not in word][:1]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for the machine, and remove it afterwards."""
    # Not in /tmp, which may be memory.
    parent = os.environ.get("TMPDIR", "/var/tmp")
    folder = Path(tempfile.mkdtemp(prefix="fresh-neocpu-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for _ in range(REMOVALS):
            if subprocess.run(["rm", "-rf", "--one-file-system", folder]).returncode == 0:
                break
            time.sleep(1)
        signal.signal(signal.SIGINT, interrupt)


def set_up(machine: Path) -> None:
    """Give the machine the network's addresses, its user and the clone."""
    for name in ("resolv.conf", "hosts"):
        (machine / "etc" / name).unlink(missing_ok=True)
        shutil.copy(f"/etc/{name}", machine / "etc")
    run("chroot", str(machine), "useradd", "--create-home", "--shell=/bin/sh", USER)
    run("git", "clone", "-q", "--depth=1", f"file://{ROOT}", str(machine / CLONE))
    run("chroot", str(machine), "chown", "-R", f"{USER}:{USER}", f"/{CLONE}")


def pip_settings() -> dict[str, str]:
    """Return pip's settings here, from files and variables alike, as variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        if name.startswith("global."):
            variable = f"PIP_{name.removeprefix('global.').upper().replace('-', '_')}"
            # Lists have lines in a file, words in a variable.
            found[variable] = " ".join(str(ast.literal_eval(value)).split())
    found |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    found.pop(CACHE, None)
    return found


def places(settings: Mapping[str, str]) -> list[Path]:
    """Return the files and folders of this machine that pip's settings name."""
    found = []
    for word in " ".join(settings.values()).split():
        path = Path(urlsplit(word).path)
        if word.startswith("file://") and path.parent != Path("/"):
            path = path.parent  # of an index, whose files may lie beside it
        if word.startswith(("/", "file://")) and path.exists():
            found.append(path)
    return list(dict.fromkeys(found))


def mounts(machine: Path, settings: Mapping[str, str]) -> list[str]:
    """Return the commands that mount system folders and the places in pip's settings."""
    commands: list[tuple[str | Path, ...]] = [
        ("mount", "-t", "proc", "proc", machine / "proc"),
        ("mount", "-t", "sysfs", "-o", "ro", "sysfs", machine / "sys"),
        ("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", machine / "dev"),
        ("mkdir", machine / "dev/shm", machine / "dev/pts"),
        ("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", machine / "dev/shm"),
        ("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=666", "pts", machine / "dev/pts"),
        ("ln", "-s", "pts/ptmx", machine / "dev/ptmx"),
        ("ln", "-s", "/proc/self/fd", machine / "dev/fd"),
        *(
            ("ln", "-s", f"/proc/self/fd/{number}", machine / "dev" / name)
            for number, name in enumerate(("stdin", "stdout", "stderr"))
        ),
    ]
    for path in (*(Path("/dev", name) for name in DEVICES), *places(settings)):
        inside = machine / path.relative_to("/")
        commands.append(("mkdir", "-p", inside if path.is_dir() else inside.parent))
        if not path.is_dir():
            commands.append(("touch", inside))
        commands.append(("mount", "--bind", path, inside))
        if not path.is_relative_to("/dev"):
            commands.append(("mount", "-o", "remount,bind,ro", inside))
    return [shlex.join(map(str, command)) for command in commands]


def login(machine: Path, commands: Sequence[str]) -> str:
    """Return the command by which the user runs others in the clone."""
    work = " && ".join((f"cd /{CLONE}", *commands))
    chroot = shutil.which("chroot") or "chroot"  # which is not where users look
    user = [chroot, f"--userspec={USER}:{USER}", str(machine), "sh", "-c", work]
    # The shell stays as the first process: it waits for orphans, as every machine's first does.
    return f"{shlex.join(user)}\nexit $?"


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the user."""
    network = {name: value for name, value in os.environ.items() if name.lower() in NETWORK}
    user = {"HOME": f"/{HOME}", "USER": USER, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return {**user, "LANG": "C.UTF-8", **settings, **network}


def left_behind(machine: Path) -> str:
    """Return the new and changed files in the clone, by git."""
    clone = str(machine / CLONE)
    command = ["git", "-c", f"safe.directory={clone}", "-C", clone, "status", "--porcelain"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def run(*command: str) -> None:
    """Run a command; one that fails has said why."""
    if status := subprocess.run(command, check=False).returncode:
        sys.exit(f"fresh: {shlex.join(command)} failed with status {status}")
