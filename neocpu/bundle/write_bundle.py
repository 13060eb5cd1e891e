"""Write a bundle: a folder with a model, TVM's two runtime libraries, and C source to run it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import string
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.errors import ArtifactError, TargetError, UsageError
from neocpu.runtime.artifact import Artifact, open_variants
from neocpu.runtime.artifact_file.header import ArtifactHeader
from neocpu.runtime.native import (
    FFI_LIBRARY,
    RUNTIME_LIBRARY,
    VERSIONS,
    NativeLibraries,
    find_libraries,
)

NATIVE: Final = Path(__file__).parent / "native"
"""What every bundle holds besides the model and the libraries."""

_OTHERS: Final = frozenset(
    (FFI_LIBRARY, RUNTIME_LIBRARY, VERSIONS, "neocpu_run", "libneocpu.a", "main.o", "build")
)
"""Names in a bundle of what is copied from elsewhere or built there."""

_README: Final = "README.txt"
_HEADER: Final = "neocpu.h"


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A file of a bundle: its path in there, and its bytes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was written.

    Attributes
    ----------
    folder : Path
    model : str
        Name of the model's file in there.
    machine : str
        ``x86_64`` or ``aarch64``.
    files : tuple of BundledFile
        All of them, largest first.
    weight_bytes : int
        Of the model's file, what is weights; all variants together.
    """

    folder: Path
    model: str
    machine: str
    files: tuple[BundledFile, ...]
    weight_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def write_bundle(
    artifact: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    libraries: NativeLibraries | None = None,
    *,
    replace: bool = False,
) -> Bundle:
    """Write a folder that holds a model and all it takes to run it; all of it or nothing.

    Parameters
    ----------
    artifact : path
        What ``neocpu compile`` wrote. Its weights are checked.
    folder : path
        New or empty.
    libraries : NativeLibraries, optional
        TVM's runtime for the model's machine; by default the one installed here.
    replace : bool
        Replace the bundle that ``folder`` holds.

    Raises
    ------
    ArtifactError
        If the artifact is damaged or foreign, or was compiled with other versions of the libraries.
    TargetError
        If the libraries are missing or for another machine.
    UsageError
        If ``folder`` holds something else, or cannot be written.
    """
    artifact, folder = Path(artifact), Path(folder)
    headers, weight_bytes = _read(artifact)
    libraries = find_libraries() if libraries is None else libraries
    header = _check_libraries(artifact, headers, libraries)
    if artifact.name in {path.name for path in NATIVE.iterdir()} | _OTHERS:
        raise UsageError(f"{artifact} has the name of another file of the bundle: rename it")
    _check_folder(folder, replace=replace)
    try:
        parent = folder.absolute().parent
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=parent) as temporary:
            made = Path(temporary) / "new"
            _fill(made, artifact, header, libraries)
            _put(made, folder, Path(temporary) / "old")
    except OSError as error:
        raise _write_error(folder, error) from error
    files = [
        BundledFile(str(path.relative_to(folder)), path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    files.sort(key=lambda file: (-file.size, file.path))
    return Bundle(folder, artifact.name, libraries.machine, tuple(files), weight_bytes)


def download_command(header: ArtifactHeader, folder: str) -> str:
    """Return the command that downloads the libraries for an artifact's machine."""
    return (
        f"pip download -d {folder} --no-deps --only-binary :all: --python-version 3.11 "
        f"--platform manylinux_2_28_{header.machine} "
        f"apache-tvm=={header.tvm_version} apache-tvm-ffi=={header.ffi_version}"
    )


def _read(path: Path) -> tuple[tuple[ArtifactHeader, ...], int]:
    """Check a file's artifacts; return their headers, and the bytes of all their weights."""
    opened: Sequence[Artifact] = open_variants(path)
    try:
        for artifact in opened:
            artifact.verify_weights()
        headers = tuple(artifact.header for artifact in opened)
        return headers, sum(artifact.weights.nbytes for artifact in opened)
    finally:
        for artifact in opened:
            artifact.close()


def _check_libraries(
    path: Path, headers: Sequence[ArtifactHeader], libraries: NativeLibraries
) -> ArtifactHeader:
    """Return the first header whose code the libraries can run."""
    header = next((h for h in headers if h.machine == libraries.machine), None)
    if header is None:
        wanted = headers[0]
        raise TargetError(
            f"{path} is compiled for {wanted.machine}, the runtime libraries are for "
            f"{libraries.machine}: {download_command(wanted, 'wheels')}, then pass "
            "--libraries wheels"
        )
    for package, wanted_version, found in (
        ("apache-tvm", header.tvm_version, libraries.tvm_version),
        ("apache-tvm-ffi", header.ffi_version, libraries.ffi_version),
    ):
        if wanted_version != found:
            raise ArtifactError(
                f"{path} was compiled with {package} {wanted_version}, the runtime libraries are "
                f"of {found}: compile the model again, or pass --libraries of that version"
            )
    return header


def _check_folder(folder: Path, *, replace: bool) -> None:
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"cannot write {folder}: there is no folder {folder.parent}")
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / _HEADER).is_file() or not (folder / VERSIONS).is_file():
        raise UsageError(f"{folder} exists and is not a bundle: choose another -o")
    if not replace:
        raise UsageError(f"{folder} holds a bundle: choose another -o, or replace it with --force")


def _fill(folder: Path, artifact: Path, header: ArtifactHeader, libraries: NativeLibraries) -> None:
    for source in (path for path in NATIVE.rglob("*") if path.is_file()):
        copy = folder / source.relative_to(NATIVE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    for source, name in (
        (artifact, artifact.name),
        (libraries.ffi, FFI_LIBRARY),
        (libraries.runtime, RUNTIME_LIBRARY),
    ):
        shutil.copyfile(source, folder / name)
    versions = {
        "machine": libraries.machine,
        "apache-tvm": libraries.tvm_version,
        "apache-tvm-ffi": libraries.ffi_version,
    }
    (folder / VERSIONS).write_text(json.dumps(versions) + "\n")
    inputs = " ".join(f"x{i}.npy" for i in range(len(header.inputs)))
    readme = string.Template((folder / _README).read_text())
    (folder / _README).write_text(
        readme.substitute(model=artifact.name, machine=libraries.machine, inputs=inputs)
    )


def _put(made: Path, folder: Path, old: Path) -> None:
    """Rename a folder to its place, what is there out of the way first."""
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
