"""The models of a server: names, versions and files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from neocpu.foundation.errors import UsageError

FIRST_VERSION: Final = "1"
Stamp: TypeAlias = tuple[int, int, int, int]
"""Data that differ between a file and one that replaces it."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model to serve."""

    name: str  # in URLs: letters, digits, ``.``, ``_`` and ``-``
    path: Path  # of the artifact
    version: str = FIRST_VERSION  # a positive number

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is no name for a model: use letters, digits, '.', '_' and '-', at "
                "most 128 and a letter or digit first"
            )
        if not _VERSION.fullmatch(self.version):
            raise UsageError(
                f"{self.version!r} is no version of model '{self.name}': use a number from 1"
            )


def stamp_of(path: Path) -> Stamp | None:
    """Return data that tell a file apart from one that replaces it; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def entries(paths: Sequence[Path], names: Sequence[str]) -> tuple[ModelEntry, ...]:
    """Return the models of a command line, named ``NAME[:VERSION]`` or like their files."""
    if names and len(names) != len(paths):
        raise UsageError(
            f"--name is given {len(names)} times for {len(paths)} files: one for each, in order"
        )
    made = []
    for path, text in zip(paths, names or [path.stem for path in paths], strict=True):
        name, colon, version = text.partition(":")
        made.append(ModelEntry(name, path, version if colon else FIRST_VERSION))
    return unique(made)


def unique(models: Iterable[ModelEntry]) -> tuple[ModelEntry, ...]:
    """Return the models after checking that they are distinct."""
    found: dict[tuple[str, str], ModelEntry] = {}
    spelling: dict[str, str] = {}
    for model in models:
        known = spelling.setdefault(model.name.casefold(), model.name)
        if known != model.name:
            raise UsageError(f"'{known}' and '{model.name}' differ only in case: rename one")
        if (model.name, model.version) in found:
            raise UsageError(
                f"two files are model '{model.name}' version {model.version}: give them different "
                "names or versions, as in --name net:1 --name net:2"
            )
        found[model.name, model.version] = model
    if not found:
        raise UsageError("there is no model to serve: name an artifact")
    return tuple(found.values())
