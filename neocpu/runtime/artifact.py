"""Read an artifact file: its header, its digests and its weights, without running any of it.

The file is an ordinary shared object (code and VM bytecode) followed by three sections that the
dynamic loader never maps::

    ELF .. code .. | pad | .neocpu.weights | .neocpu | section tables | .neocpu.sha256

The last one holds two SHA-256 digests: of everything but the weights, and of the weights.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from neocpu.runtime.elf import ElfError, read_elf
from neocpu.runtime.header import (
    DIGEST_SECTION,
    FORMAT,
    HEADER_SECTION,
    WEIGHTS_SECTION,
    ArtifactHeader,
    Buffer,
)
from neocpu.runtime.memory import huge_pages
from neocpu.schedules.errors import ArtifactError, TargetError
from neocpu.schedules.host import host_features, missing_features

DIGEST_SIZE: Final = hashlib.sha256().digest_size
_REMEDY: Final = "compile the model again with `neocpu compile`"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An open, checked artifact. Close it, or use it as a context manager.

    Attributes
    ----------
    path : Path
        Where it was opened; the file there may since have been replaced.
    fd : int
        Read-only descriptor of the very file that was checked.
    header : ArtifactHeader
        Its header.
    weights : memoryview
        The weights section: a private read-only mapping, shared with every process that has it.
    """

    path: Path
    fd: int
    header: ArtifactHeader
    weights: memoryview
    _weights_digest: bytes

    def verify_weights(self) -> None:
        """Hash the weights (about 2 GB/s) and compare.

        Raises
        ------
        ArtifactError
            If they are not the weights that were written.
        """
        if hashlib.sha256(self.weights).digest() != self._weights_digest:
            raise ArtifactError(f"{self.path}: the weights are damaged; {_REMEDY}")

    def weight_arrays(self, *, hugepages: bool = False) -> list[np.ndarray[Any, Any]]:
        """Return the weights in parameter order: views of the mapping, or of a private copy.

        Parameters
        ----------
        hugepages : bool
            Copy the weights into anonymous memory on huge pages, where the kernel has them. Such
            weights stream 6 % faster (measured: 27.6 instead of 25.9 GB/s).
        """
        buffer: Buffer = self.weights
        if hugepages and self.weights.nbytes:
            buffer = huge_pages(self.weights.nbytes)
            buffer[:] = self.weights
        return [placement.view(buffer) for placement in self.header.weights]

    def close(self) -> None:
        """Close the descriptor. Views of the weights stay valid."""
        os.close(self.fd)

    def __enter__(self) -> Artifact:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_header(path: str | os.PathLike[str], *, verify_weights: bool = False) -> ArtifactHeader:
    """Read the header of an artifact, for any machine, without loading its code.

    Raises
    ------
    ArtifactError
        If the file is missing, truncated, foreign, damaged or of another format version.
    """
    with open_artifact(path) as artifact:
        if verify_weights:
            artifact.verify_weights()
        return artifact.header


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open an artifact and check everything but the weights against its digest.

    Raises
    ------
    ArtifactError
        As for `read_header`.
    """
    path = Path(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ArtifactError(f"cannot open artifact {path}: {error.strerror}") from error
    try:
        return _read(path, fd)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise ArtifactError(f"cannot read artifact {path}: {error.strerror}") from error
        raise


def check_host(header: ArtifactHeader, path: str | os.PathLike[str]) -> None:
    """Check that this host can run the artifact's code.

    Raises
    ------
    TargetError
        If the machine differs or an instruction set is missing.
    """
    machine = os.uname().machine
    if header.machine != machine:
        raise TargetError(
            f"{path} is compiled for {header.machine} ({header.target}), this host is {machine}: "
            "compile the model again with --target host"
        )
    if missing := missing_features(header.isa_features, host_features()):
        raise TargetError(
            f"{path} is compiled for '{header.target}', this host lacks {', '.join(missing)}: "
            "compile the model again with --target host"
        )


def _read(path: Path, fd: int) -> Artifact:
    size = os.fstat(fd).st_size
    if size == 0:
        raise ArtifactError(f"{path} is empty: {_REMEDY}")
    data = memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
    try:
        elf = read_elf(data)
    except ElfError as error:
        raise ArtifactError(
            f"{path} is not a complete neocpu artifact, {error}; {_REMEDY}"
        ) from None
    header, weights, digest = map(elf.find, (HEADER_SECTION, WEIGHTS_SECTION, DIGEST_SECTION))
    if header is None or weights is None or digest is None:
        raise ArtifactError(
            f"{path} is a shared library but not a neocpu artifact (no {HEADER_SECTION} section): "
            f"{_REMEDY}"
        )
    if digest.offset + digest.size != size or digest.size != 2 * DIGEST_SIZE:
        raise ArtifactError(f"{path} is damaged: bytes are missing or added at its end; {_REMEDY}")
    body = hashlib.sha256(data[: weights.offset])
    body.update(data[weights.offset + weights.size : digest.offset])
    expected = bytes(data[digest.offset :])
    if body.digest() != expected[:DIGEST_SIZE]:
        raise ArtifactError(f"{path} is damaged: its checksum does not match; {_REMEDY}")
    parsed = _parse(path, bytes(data[header.offset : header.offset + header.size]))
    if parsed.machine != elf.machine:
        raise ArtifactError(f"{path}: header and code disagree on the machine; {_REMEDY}")
    view = data[weights.offset : weights.offset + weights.size]
    return Artifact(path, fd, parsed, view, expected[DIGEST_SIZE:])


def _parse(path: Path, text: bytes) -> ArtifactHeader:
    try:
        fields = json.loads(text)
        version = fields["format"]
        if version != FORMAT:
            raise ArtifactError(
                f"{path} has artifact format {version}, this neocpu reads format {FORMAT}: "
                f"{_REMEDY}"
            )
        return ArtifactHeader.from_json(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} has a malformed header ({error!r}); {_REMEDY}") from error
