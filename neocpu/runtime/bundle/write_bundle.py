"""Write a bundle: a folder with a model and the C source that runs it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import string
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from neocpu import core
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.foundation.files import HUGE_PAGE
from neocpu.runtime.artifact import ArtifactFile
from neocpu.runtime.header import ArtifactHeader

NATIVE: Final = Path(__file__).parent / "native"
"""The files that every bundle holds besides the model and the runtime."""

_BUILT: Final = frozenset(("neocpu_run", "neocpu_run.o", "embedded.o", "libneocpu.a", "build"))
"""The files that building a bundle makes in it."""

_MAKEFILE_NAME: Final = re.compile(r"[\w.+-]+", re.ASCII)
"""File names that makefiles can spell."""

_LICENCE: Final = "LICENSE"
_README: Final = "README.txt"
_HEADER: Final = "neocpu.h"
_BUILD_FILE: Final = "Makefile"


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A file of a bundle: its path in the folder, and its bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was written."""

    folder: Path
    model: str  # the name of the model's file in the folder
    machines: tuple[str, ...]  # ``x86_64``, ``aarch64``, or both for a fat file
    files: tuple[BundledFile, ...]
    weight_bytes: int  # in the model's file, for all variants

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def write_bundle(
    artifact: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    static: bool = False,
    replace: bool = False,
) -> Bundle:
    """Write a folder with a model and all it takes to run it. It appears whole or not at all.

    `folder`: a new or empty one, or a bundle if ``replace``. `static`: whether the makefile builds
    one program that contains the model. Raises ArtifactError: the artifact is damaged or foreign;
    UsageError: ``folder`` holds something else, or cannot be written.
    """
    artifact, folder = Path(artifact), Path(folder)
    source = ArtifactFile(artifact)
    source.check_weights()
    variants = source.variants
    if artifact.name in {name.partition("/")[0] for name in _sources()} | _BUILT:
        raise UsageError(f"{artifact} has the name of another file of the bundle: rename it")
    if not _MAKEFILE_NAME.fullmatch(artifact.name):
        raise UsageError(
            f"{artifact} has a name that makefiles cannot spell: use letters, digits and _ . + -"
        )
    _check_folder(folder, replace=replace)
    try:
        parent = folder.absolute().parent
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=parent) as temporary:
            made = Path(temporary) / "new"
            _fill(made, artifact, variants[0].header, static=static)
            _move_into_place(made, folder, Path(temporary) / "old")
    except OSError as error:
        raise _write_error(folder, error) from error
    files = [
        BundledFile(str(path.relative_to(folder)), path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    files.sort(key=lambda file: (-file.size, file.path))
    machines = tuple(dict.fromkeys(each.header.machine for each in variants))
    weight_bytes = sum(each.weight_bytes for each in variants)
    return Bundle(folder, artifact.name, machines, tuple(files), weight_bytes)


def _sources() -> dict[str, bytes]:
    native = {path.name: path.read_bytes() for path in NATIVE.iterdir()}
    return {**core.sources(), **native, _LICENCE: _licence()}


def _licence() -> bytes:
    for name in ("neocpu", "neocpu-runtime"):
        with suppress(metadata.PackageNotFoundError):
            text = metadata.distribution(name).read_text(f"licenses/{_LICENCE}")
            if text is not None:
                return text.encode()
    raise UsageError("neocpu is not installed as a distribution: pip install it")


def _check_folder(folder: Path, *, replace: bool) -> None:
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"cannot write {folder}: there is no folder {folder.parent}")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / _HEADER).is_file() or not (folder / _BUILD_FILE).is_file():
        raise UsageError(f"{folder} exists and is not a bundle: choose another -o")
    if not replace:
        raise UsageError(f"{folder} holds a bundle: choose another -o, or replace it with --force")


def _fill(folder: Path, artifact: Path, header: ArtifactHeader, *, static: bool) -> None:
    for place, content in _sources().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    with open(artifact, "rb") as source, open(folder / artifact.name, "wb") as file:
        shutil.copyfileobj(source, file, HUGE_PAGE)  # as `write_in_huge_pages` does
    makefile = (folder / _BUILD_FILE).read_text()
    makefile = makefile.replace("@MODEL@", artifact.name).replace("@STATIC@", "1" * static)
    (folder / _BUILD_FILE).write_text(makefile)
    inputs = " ".join(f"x{i}.npy" for i in range(len(header.inputs)))
    readme = string.Template((folder / _README).read_text())
    (folder / _README).write_text(
        readme.substitute(model=artifact.name, machine=header.machine, inputs=inputs)
    )


def _move_into_place(made: Path, folder: Path, old: Path) -> None:
    """Rename a folder to its place, after moving what is there to ``old``."""
    if folder.exists():
        made.chmod(folder.stat().st_mode & 0o777)
        folder.rename(old)
    try:
        made.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise


def _write_error(folder: Path, error: OSError) -> UsageError | ArtifactError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return ArtifactError(f"cannot write {folder}: {error.strerror}; free space there")
    return UsageError(f"cannot write {folder}: {error.strerror}; choose another -o")
