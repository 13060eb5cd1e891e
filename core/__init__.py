"""The runtime: a library in C11, and what is needed to build it."""

import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
"""Holds ``neocpu.h``, the interface, and ``src``."""
ARCHIVE: Final = "sources.zip"
"""Holds the same in a distribution that is to be small."""


def sources() -> dict[str, bytes]:
    """Return the files that the runtime is built from, by their paths."""
    if (ROOT / ARCHIVE).exists():
        with zipfile.ZipFile(ROOT / ARCHIVE) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    paths = (*ROOT.glob("*.[chS]"), *ROOT.glob("src/*.[ch]"))
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
