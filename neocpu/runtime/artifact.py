"""Read an artifact file: its header, its digests and its weights, without running any of it.

The file is an ordinary shared object (code and VM bytecode) followed by three sections that the
dynamic loader never maps::

    ELF .. code .. | pad | .neocpu.weights | .neocpu | section tables | .neocpu.sha256

The last one holds two SHA-256 digests: of everything but the weights, and of the digests of the
weights' pieces. A fat file (`neocpu.runtime.artifact_file.fat`) holds several such artifacts.

Only the weights are mapped. The rest is read, so that a file that somebody cuts short meanwhile is
an error here and not the end of the process. Nothing can be done for a mapped file whose bytes are
overwritten: replace one by renaming another over it, as `mv` does and `neocpu compile` too.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from neocpu.foundation.cpu_identity import host_cpu
from neocpu.foundation.errors import ArtifactError, TargetError, UsageError, did_you_mean
from neocpu.foundation.instruction_sets import code_obstacle, host_features, missing_features
from neocpu.runtime.aligned_memory import huge_pages
from neocpu.runtime.artifact_file import fat
from neocpu.runtime.artifact_file.content import REMEDY, Content, read_content
from neocpu.runtime.artifact_file.header import WEIGHTS_PIECE, ArtifactHeader, Buffer
from neocpu.runtime.artifact_file.strict_json import FieldError
from neocpu.runtime.input_file import FilePart, open_regular
from neocpu.runtime.weights_digest import digest_of_pieces

# The dynamic loader's table of what is loaded is the process's, so this count is too.
_aliases: Final = itertools.count(1)


class Artifact:
    """An open, checked artifact. Close it, or use it as a context manager.

    Attributes
    ----------
    path : Path
        Where it was opened; the file there may since have been replaced.
    variant : str
        Which variant of a fat file it is; empty if the file holds nothing else.
    fd : int
        Read-only descriptor of the very file that was checked.
    offset, size : int
        Where in the file it lies; bytes.
    header : ArtifactHeader
        Its header.
    code_bytes : int
        How many bytes lie in front of the weights.
    weights : memoryview
        The weights section: a private read-only mapping, shared with every process that has it.
    """

    __slots__ = (
        *("_copy", "_digests", "code_bytes", "fd", "header"),
        *("offset", "path", "size", "variant", "weights"),
    )

    def __init__(self, path: Path, variant: str, part: FilePart, content: Content) -> None:
        self.path = path
        self.variant = variant
        self.offset = part.offset
        self.size = part.size
        self.header = content.header
        self.code_bytes = content.weights.offset
        self.weights = part.map(content.weights.offset, content.weights.size)
        self.fd = os.dup(part.fd)
        self._digests = (content.body_digest, content.weights_digest)
        self._copy: int | None = None

    @property
    def identity(self) -> Hashable:
        """Equal for artifacts whose code is the same and may be loaded once."""
        status = os.fstat(self.fd)
        return status.st_dev, status.st_ino, self.offset, self._digests[0]

    def library_path(self) -> str:
        """Return a path that the dynamic loader may open until `close`, and did not see before.

        It leads to the very file whose digest was checked; for a variant of a fat file, which the
        loader cannot read, to a copy of its code in memory. The loader compares paths before
        inodes: given one it has seen, it would return the old code of a file that was since
        replaced. So each path spells a new number in redundant ``/`` and ``./``.

        Raises
        ------
        ArtifactError, OSError
            If the copy cannot be made.
        """
        if self.offset and self._copy is None:
            # The loader reads segments, which end before the weights, and no section.
            self._copy = os.memfd_create("neocpu-code")
            with open(self._copy, "wb", closefd=False) as file:
                file.writelines(self._part.pieces(self.code_bytes))
        fd = self.fd if self._copy is None else self._copy
        spelling = f"{next(_aliases):b}".replace("1", "./").replace("0", "/")
        return f"/proc/self/fd/{spelling}{fd}"

    def verify_weights(self, on_piece: Callable[[int], None] | None = None) -> None:
        """Hash the weights (about 2 GB/s) and compare. It needs no open descriptor.

        Parameters
        ----------
        on_piece : callable, optional
            Told after every piece how many bytes are done; may raise, to give up.

        Raises
        ------
        ArtifactError
            If they are not the weights that were written.
        """
        digests = []
        for start in self.piece_starts:
            digests.append(self.hash_piece(start))
            if on_piece is not None:
                on_piece(min(start + WEIGHTS_PIECE, self.weights.nbytes))
        self.compare(digests)

    @property
    def piece_starts(self) -> range:
        """Where the pieces of the weights begin that are hashed one by one."""
        return range(0, self.weights.nbytes, WEIGHTS_PIECE)

    def hash_piece(self, start: int) -> bytes:
        """Return the digest of one piece of the weights, in any thread."""
        return hashlib.sha256(self.weights[start : start + WEIGHTS_PIECE]).digest()

    def compare(self, digests: Iterable[bytes]) -> None:
        """Compare the digests of all pieces, in order, with what was written.

        Raises
        ------
        ArtifactError
            If they are not those of the weights that were written.
        """
        if digest_of_pieces(digests) != self._digests[1]:
            raise ArtifactError(f"{self._where}: the weights are damaged; {REMEDY}")

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
        """Close the descriptors. Views of the weights stay valid. May be repeated."""
        for fd in (self.fd, self._copy):
            if fd is not None and fd >= 0:
                os.close(fd)
        self.fd, self._copy = -1, None

    def __enter__(self) -> Artifact:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _part(self) -> FilePart:
        return FilePart(self.fd, self._where, self.offset, self.size)

    @property
    def _where(self) -> str:
        return _place(self.path, self.variant)


@dataclass(frozen=True, slots=True)
class Variant:
    """One artifact of a file: where it lies, in bytes, and its header.

    ``name`` is what it was called in a fat file; empty where a file holds nothing else.
    """

    name: str
    offset: int
    size: int
    header: ArtifactHeader


def open_artifact(path: str | os.PathLike[str], variant: str | None = None) -> Artifact:
    """Open an artifact and check everything but the weights against its digest.

    Parameters
    ----------
    path : path
        For any machine. Of a fat file, the variant that suits this host best is opened.
    variant : str, optional
        Open this variant of a fat file instead, whether or not this host can run it.

    Raises
    ------
    ArtifactError
        If the file is missing, truncated, foreign, damaged or of another format version.
    TargetError
        If this host can run no variant of a fat file.
    UsageError
        If it has no such variant.
    """
    return _open(Path(path), variant, or_first=False)


def read_header(
    path: str | os.PathLike[str], variant: str | None = None, *, verify_weights: bool = False
) -> ArtifactHeader:
    """Read the header of an artifact, for any machine, without loading its code.

    Of a fat file it is the header `open_artifact` would read, or the first one if this host can run
    none.

    Raises
    ------
    ArtifactError, UsageError
        As `open_artifact`.
    """
    with _open(Path(path), variant, or_first=True) as artifact:
        if verify_weights:
            artifact.verify_weights()
        return artifact.header


def open_variants(path: str | os.PathLike[str]) -> tuple[Artifact, ...]:
    """Open all artifacts that a file holds, for the caller to close; see `open_artifact`.

    Raises
    ------
    ArtifactError
        As `open_artifact`.
    """
    path = Path(path)
    opened: list[Artifact] = []
    try:
        with _contents(path) as (whole, entries):
            for entry in entries or (None,):
                opened.append(_open_entry(path, whole, entry))
    except BaseException:
        for artifact in opened:
            artifact.close()
        raise
    return tuple(opened)


def read_variants(path: str | os.PathLike[str]) -> tuple[Variant, ...]:
    """Read where the artifacts of a file lie, and their headers; one if it is no fat file.

    Raises
    ------
    ArtifactError
        As `open_artifact`.
    """
    variants = []
    for artifact in open_variants(path):
        with artifact:
            variants.append(
                Variant(artifact.variant, artifact.offset, artifact.size, artifact.header)
            )
    return tuple(variants)


def check_host(header: ArtifactHeader, path: str | os.PathLike[str]) -> None:
    """Check that this host can run the artifact's code.

    Raises
    ------
    TargetError
        If the machine differs, an instruction set is missing, or memory would not do.
    """
    if (reason := obstacle(header)) is not None:
        raise TargetError(
            f"{path} is compiled for {header.machine} ({header.target}), {reason}: "
            "compile the model again with --target host"
        )


def obstacle(header: ArtifactHeader) -> str | None:
    """Return why this host cannot run an artifact's code, None if it can."""
    reason = code_obstacle(header.machine, header.isa_features, host_features())
    if reason is not None:
        return reason
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if header.memory_bytes > memory:
        needed = header.memory_bytes / 1e9
        return f"its tensors take {needed:.1f} GB and this host has {memory / 1e9:.1f} GB of memory"
    return None


def _open(path: Path, variant: str | None, *, or_first: bool) -> Artifact:
    with _contents(path) as (whole, entries):
        if variant is not None:
            return _open_entry(path, whole, _named(path, entries, variant))
        if not entries:
            return _open_entry(path, whole, None)
        features = host_features()
        entry = fat.choose(entries, os.uname().machine, features, host_cpu())
        if entry is None and not or_first:
            raise _no_variant(path, entries, features)
        return _open_entry(path, whole, entry or entries[0])


@contextmanager
def _contents(path: Path) -> Iterator[tuple[FilePart, tuple[fat.Entry, ...]]]:
    """Open a file and read its index, which is empty if it is no fat file."""
    with open_regular(path) as whole:
        if whole.size == 0:
            raise ArtifactError(f"{path} is empty: {REMEDY}")
        start = whole.read(0, min(whole.size, fat.BLOCK))
        try:
            index = fat.read_index(start, whole.size) if start.startswith(fat.FAMILY) else ()
        except FieldError as error:
            raise ArtifactError(f"{path} has a malformed index: {error}; {REMEDY}") from None
        yield whole, index


def _named(path: Path, entries: Sequence[fat.Entry], name: str) -> fat.Entry:
    if not entries:
        raise UsageError(f"{path} has no variants: it is compiled for one CPU")
    names = [entry.name for entry in entries]
    if name not in names:
        hint = did_you_mean(name, names)
        raise UsageError(f"{path} has no variant '{name}', only {', '.join(names)}{hint}")
    return entries[names.index(name)]


def _no_variant(path: Path, entries: Sequence[fat.Entry], features: frozenset[str]) -> TargetError:
    machine = os.uname().machine
    reasons = (
        f"{e.name} (for {e.machine})"
        if e.machine != machine
        else f"{e.name} (lacks {', '.join(missing_features(e.isa_features, features))})"
        for e in entries
    )
    return TargetError(
        f"{path} has no variant that this host ({machine}) can run: {'; '.join(reasons)}: "
        "compile the model again with --target host, or with one more variant in --fat"
    )


def _open_entry(path: Path, whole: FilePart, entry: fat.Entry | None) -> Artifact:
    if entry is None:
        return Artifact(path, "", whole, read_content(whole))
    where = _place(path, entry.name)
    part = whole.part(entry.offset, entry.size, where)
    content = read_content(part)
    header = content.header
    said = (entry.target, entry.machine, entry.isa_features)
    if said != (header.target, header.machine, header.isa_features):
        raise ArtifactError(f"{where}: index and header disagree on the target; {REMEDY}")
    return Artifact(path, entry.name, part, content)


def _place(path: Path, variant: str) -> str:
    return f"{path} ({variant})" if variant else str(path)
