"""A browser for the tests of pages: `python -m tests.chromium`.

An installed browser is used. Otherwise Debian's headless Chromium, and the libraries that it lacks
here, are unpacked under ``build/chromium`` without root: ``chromium`` there starts it, and
``.ready`` is written last.
"""

import platform
import shutil
import sys
from pathlib import Path

from tests.debian_packages import run, unpack

FOLDER = Path(__file__).parents[1] / "build" / "chromium"
COMMAND = FOLDER / "chromium"
INSTALLED = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
PACKAGE = "chromium-headless-shell"
STATUS = Path("/var/lib/dpkg/status")
START = """#!/bin/sh
export LD_LIBRARY_PATH={libraries}
export FONTCONFIG_FILE={folder}/fonts.conf
exec {program} "$@"
"""
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{root}/usr/share/fonts</dir><dir>/usr/share/fonts</dir>
<cachedir>{folder}/fonts</cachedir></fontconfig>
"""


def find() -> str | None:
    """Return the command that starts a browser; None where there is none."""
    known = (*map(shutil.which, INSTALLED), str(COMMAND) if (FOLDER / ".ready").exists() else None)
    return next(filter(None, known), None)


def main() -> None:
    """Install a browser unless there is one."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if find() is None:
        if shutil.which("apt-get") is None or not STATUS.is_file():
            sys.exit("tests of pages need Chromium, which is unpacked here on a Debian alone")
        get()
    (FOLDER / ".ready").touch()


def get() -> None:
    """Unpack a browser from the system's own sources, so that its libraries fit."""
    apt, root = FOLDER / "apt", FOLDER / "root"
    apt.mkdir(exist_ok=True)
    shutil.copyfile(STATUS, apt / "status")
    unpack(root, apt, [PACKAGE], {})
    shutil.rmtree(apt / "cache")
    triple = f"{platform.machine()}-linux-gnu"
    folders = (f"usr/lib/{triple}", f"lib/{triple}", f"usr/lib/{triple}/pulseaudio")
    libraries = ":".join(str(root / folder) for folder in folders)
    program = root / "usr" / "lib" / "chromium" / PACKAGE
    (FOLDER / "fonts.conf").write_text(FONTS.format(root=root, folder=FOLDER))
    COMMAND.write_text(START.format(libraries=libraries, folder=FOLDER, program=program))
    COMMAND.chmod(0o755)
    run(str(COMMAND), "--version")


if __name__ == "__main__":
    main()
