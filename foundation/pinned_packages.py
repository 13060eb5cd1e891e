"""The packages that neocpu needs in one exact version: another TVM's parts crash when imported."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from importlib import metadata

from neocpu.foundation.errors import DependencyError


def pinned() -> Iterator[tuple[str, str]]:
    """Yield their names and versions; none where neocpu is not installed."""
    try:
        requirements = metadata.requires("neocpu")
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements or ():
        if match := re.fullmatch(r"([\w.-]+)==([\w.]+)", requirement):
            yield match[1], match[2]


def refuse_other_versions() -> None:
    """Check versions before anything is imported, for 5 ms.

    Raises
    ------
    DependencyError
        Naming what is installed in another version, and what mends it.
    """
    for package, wanted in pinned():
        try:
            if metadata.version(package) == wanted:
                continue
        except metadata.PackageNotFoundError:
            pass
        # By name: it is not of neocpu-runtime, and takes 50 ms more.
        requirements = importlib.import_module("neocpu.foundation.requirements")
        if found := requirements.find_misfits():  # none of a version such as 1.0+local
            raise DependencyError(requirements.mended(found))
