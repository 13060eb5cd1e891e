"""An AArch64 system to run what was compiled for one: `python -m tests.arm.sysroot [PACKAGE...]`.

Under ``build/arm`` it makes, without touching the system's own packages::

    sysroot/     Debian's Python 3.11 and C++ runtime for arm64, with numpy and this checkout's
                 neocpu, its library compiled for it; PACKAGEs from PyPI too
    .ready       written last

``qemu-aarch64-static -L build/arm/sysroot`` runs programs in it. A command that the tests need and
that is missing is installed for root on a Debian; otherwise the script prints what to type.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.debian_packages import run, unpack
from tests.experiments.instructions.instruction_count import TOOLS as COUNTING_TOOLS
from wheels.backend import CORE, LIBRARY, compile_core

ROOT = Path(__file__).parents[2]
ARM = ROOT / "build" / "arm"
SYSROOT = ARM / "sysroot"
SITE = SYSROOT / "usr" / "lib" / "python3" / "dist-packages"
PYTHON = SYSROOT / "usr" / "bin" / "python3.11"
QEMU = "qemu-aarch64-static"
CROSS = "aarch64-linux-gnu-gcc"
# Debian package that has a command, for every command that these tests need.
TOOLS = {
    **COUNTING_TOOLS,
    QEMU: "qemu-user-static",
    CROSS: "gcc-aarch64-linux-gnu",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# One release, whatever this system is: the wheels below are for its Python.
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian bookworm main\n"
PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")
# pip takes tags literally: a wheel for an older system must be asked for by name.
TAGS = ("_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014")


def main(packages: list[str]) -> None:
    """Make the system, or add packages from PyPI to the existing one."""
    if packages:
        install(*packages)
        return
    (ARM / ".ready").unlink(missing_ok=True)
    require_tools()
    extract_debian()
    install("numpy")
    stage_neocpu()
    (ARM / ".ready").touch()


def require_tools() -> None:
    """Install the commands that are missing, or say how."""
    absent = (package for command, package in TOOLS.items() if shutil.which(command) is None)
    missing = list(dict.fromkeys(absent))
    if not KEYRING.is_file():
        missing.append("debian-archive-keyring")
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-qy", "--no-install-recommends", *missing)
    else:
        sys.exit(f"tests of ARM code need: apt-get install -y {' '.join(missing)} (as root)")


def extract_debian() -> None:
    """Download Debian's arm64 packages with apt, in folders of its own, and unpack them."""
    apt = ARM / "apt"
    apt.mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(SOURCE)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
    }
    unpack(SYSROOT, apt, PACKAGES, settings)


def install(*requirements: str) -> None:
    """Install wheels from PyPI for the system's Python."""
    platforms = (word for tag in TAGS for word in ("--platform", f"manylinux{tag}_aarch64"))
    run(
        *(sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(SITE)),
        *("--no-deps", "--only-binary", ":all:", "--python-version", "3.11"),
        *(*platforms, *requirements),
    )


def stage_neocpu() -> None:
    """Let the system's Python import this checkout: links where an installation has packages.

    The library beside the sources is for this machine, so the package that has one is a folder.
    """
    package = SITE / "neocpu"
    rooms = (ROOT / folder for folder in ("foundation", "schedules", "search", "tuning_db"))
    link(package, (*rooms, *(ROOT / "neocpu").iterdir()), {"core"})
    library = package / "core" / LIBRARY
    link(library.parent, (path for path in CORE.iterdir() if path.name != LIBRARY), {LIBRARY})
    compile_core(library, [CROSS])


def link(folder: Path, sources: Iterable[Path], others: Collection[str]) -> None:
    """Make a folder of exactly these links; it may also have ``others`` that are no links."""
    folder.mkdir(exist_ok=True)
    wanted = {source.name: source for source in sources}
    present = {path.name for path in folder.iterdir()} - set(others)
    for name in present - wanted.keys():
        (folder / name).unlink()
    for name in wanted.keys() - present:
        (folder / name).symlink_to(wanted[name])


if __name__ == "__main__":
    main(sys.argv[1:])
