"""The packages that neocpu needs in one exact version: parts of another TVM crash on import."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from importlib import metadata

from neocpu.foundation.errors import DependencyError


def pinned() -> Iterator[tuple[str, str]]:
    """Yield their names and versions, or nothing if neocpu is not installed."""
    try:
        requirements = metadata.requires("neocpu")
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements or ():
        if match := re.fullmatch(r"([\w.-]+)==([\w.]+)", requirement):
            yield match[1], match[2]


def refuse_other_versions() -> None:
    """Check versions before anything is imported, which takes 5 ms."""
    for package, wanted in pinned():
        try:
            if metadata.version(package) == wanted:
                continue
        except metadata.PackageNotFoundError:
            pass
        # By name: neocpu-runtime lacks this module, and importing it takes 50 ms.
        requirements = importlib.import_module("neocpu.foundation.requirements")
        if found := requirements.find_misfits():  # a version such as 1.0+local is no misfit
            raise DependencyError(requirements.mended(found))
