"""The runtime: a library in C11, and what is needed to build it."""

import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
"""Holds ``neocpu.h``, the interface, and ``src``."""
LIBRARY: Final = ROOT / "libneocpu.so"
"""The library, compiled for this machine."""
ARCHIVE: Final = "sources.tar.xz"
"""Holds the same in a distribution that is to be small."""


def sources() -> dict[str, bytes]:
    """Return the files that the runtime is built from, by their paths."""
    if (ROOT / ARCHIVE).exists():
        with tarfile.open(ROOT / ARCHIVE) as archive:
            files = ((member.name, archive.extractfile(member)) for member in archive)
            return {name: file.read() for name, file in files if file is not None}
    paths = (*ROOT.glob("*.[chS]"), *ROOT.glob("src/*.[ch]"))
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
