"""Debian's packages in a folder of our own: downloaded and unpacked without root, not installed."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def unpack(
    folder: Path, apt: Path, packages: Iterable[str], settings: Mapping[str, object]
) -> None:
    """Unpack packages and their dependencies into a folder.

    - `apt`: a folder for apt's own files. Its ``status`` lists the installed packages; without that
      file none is installed.
    - `settings`: further settings of apt.
    """
    for inner in ("lists/partial", "cache/archives/partial"):
        (apt / inner).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    every = {
        "APT::Sandbox::User": "",  # apt's own user may not be able to read this folder
        "Acquire::Languages": "none",
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        **settings,
    }
    options = [word for name, value in every.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", "-q", *options, "update")
    run("apt-get", "-q", *options, "autoclean")
    download = ("install", "--download-only", "--no-install-recommends")
    run("apt-get", "-qy", *options, *download, *packages)
    folder.mkdir(parents=True, exist_ok=True)
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", str(package), str(folder))


def run(*command: str) -> None:
    """Run a command; exit with its output if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(command)} failed with status {done.returncode}")
