"""An AArch64 system to run what was compiled for one: `python -m tests.arm.sysroot [PACKAGE...]`.

Under ``build/arm`` it makes, without touching the system's own packages::

    sysroot/     Debian's Python 3.11 and C++ runtime for arm64, with numpy and this checkout's
                 neocpu; PACKAGEs from PyPI too
    libraries/   TVM's two runtime libraries and their versions
    .ready       written last

``qemu-aarch64-static -L build/arm/sysroot`` runs programs in it. A command that the tests need and
that is missing is installed if this is root on a Debian; else what to type is printed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from neocpu.bench.instructions.instruction_count import TOOLS as COUNTING_TOOLS
from neocpu.runtime.native import WHEEL_LIBRARIES
from wheels.libraries import download, wheels_for

ROOT = Path(__file__).parents[2]
ARM = ROOT / "build" / "arm"
SYSROOT = ARM / "sysroot"
LIBRARIES = ARM / "libraries"
SITE = SYSROOT / "usr" / "lib" / "python3" / "dist-packages"
PYTHON = SYSROOT / "usr" / "bin" / "python3.11"
QEMU = "qemu-aarch64-static"
# Debian package that has a command, for every command that these tests need.
TOOLS = {
    **COUNTING_TOOLS,
    QEMU: "qemu-user-static",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# One release, whatever this system is: the wheels below are for its Python.
SOURCE = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian bookworm main\n"
PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")


def main(packages: list[str]) -> None:
    """Make the system; with packages, add these from PyPI to one that is there."""
    if packages:
        install(*packages)
        return
    (ARM / ".ready").unlink(missing_ok=True)
    require_tools()
    extract_debian()
    install("numpy")
    take_libraries()
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
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(SOURCE)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",  # nobody else may be able to read this folder
        "Acquire::Languages": "none",
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", "-q", *options, "update")
    run("apt-get", "-q", *options, "autoclean")
    run(
        *("apt-get", "-qy", *options, "install", "--download-only", "--no-install-recommends"),
        *PACKAGES,
    )
    SYSROOT.mkdir(exist_ok=True)
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", str(package), str(SYSROOT))


def install(*requirements: str, into: Path = SITE) -> None:
    """Install wheels from PyPI, or files, for the system's Python."""
    run(
        *(sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(into)),
        *(*wheels_for("aarch64"), *requirements),
    )


def take_libraries() -> None:
    """Download TVM's libraries; the system's Python finds them as if TVM's wheels were installed.

    The wheels themselves are not: what runs compiled modules must not need the compiler.
    """
    download("aarch64", LIBRARIES)
    versions = json.loads((LIBRARIES / "versions.json").read_text())
    for package, library in WHEEL_LIBRARIES.items():
        (SITE / library).parent.mkdir(parents=True, exist_ok=True)
        (SITE / library).unlink(missing_ok=True)
        (SITE / library).symlink_to(LIBRARIES / Path(library).name)
        for old in SITE.glob(f"{package.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(old)
        (SITE / f"{package.replace('-', '_')}-{versions[package]}.dist-info").mkdir()


def stage_neocpu() -> None:
    """Let the system's Python import this checkout: links where an installation has packages."""
    package = SITE / "neocpu"
    package.mkdir(exist_ok=True)
    rooms = (ROOT / folder for folder in ("foundation", "schedules", "search", "tuning_db"))
    sources = {source.name: source for source in (*rooms, *(ROOT / "neocpu").iterdir())}
    present = {link.name for link in package.iterdir()}
    for name in present - sources.keys():
        (package / name).unlink()
    for name in sources.keys() - present:
        (package / name).symlink_to(sources[name])


def run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(command)} failed with status {done.returncode}")


if __name__ == "__main__":
    main(sys.argv[1:])
