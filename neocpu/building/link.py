"""Write an artifact: link the code, append weights and header, and put the file in place."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from neocpu.building.elf import Section, read_elf, with_sections, with_symbols_renamed
from neocpu.building.interrupts import started
from neocpu.building.object_cache import SYMBOL as UNNAMED
from neocpu.building.pipeline import Built
from neocpu.building.program import SYMBOL, CompiledKernel, table_source
from neocpu.core import ROOT
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import ArtifactError, UnsupportedError
from neocpu.foundation.files import replacing, write_in_huge_pages
from neocpu.foundation.linker import cause, find_linker
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.runtime.aligned_memory import address_of
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.binding import library
from neocpu.runtime.header import (
    DIGEST_SECTION,
    HEADER_SECTION,
    OUTCOME_SECTION,
    WEIGHT_ALIGN,
    WEIGHTS_SECTION,
    ArtifactHeader,
)
from neocpu.runtime.header_parts import Placement

_PAGE: Final = {"x86_64": 4096, "aarch64": 65536}
"""Largest page size of each machine's Linux; the weights are mapped, so they start on a page."""

_TABLE: Final = ROOT / "src" / "kernel_table.h"
"""The C header that declares the types of the kernel table."""

_DIGEST: Final = hashlib.sha256().digest_size


def write_artifact(
    built: Built,
    weights: Sequence[AnyArray],
    header: ArtifactHeader,
    path: str | os.PathLike[str],
    cxx: str | None = None,
) -> ArtifactHeader:
    """Write an artifact file, with the plan in its header; all of it appears or nothing.

    It is not synced, because it is copied to its lasting place after verification. The ``weights``
    are in parameter order, packed as the code reads them. `cxx`: see `find_linker`. Raises
    UsageError if the folder is not writable or there is no C++ compiler, UnsupportedError for a
    dtype that a header cannot name, and ArtifactError if linking fails or the disk is full.
    """
    path = Path(path)
    planned = built.planned
    weights = [*weights, *planned.constants]
    specs = place(weights)
    header = replace(
        header,
        weights=specs,
        activations=planned.activations,
        arena_bytes=planned.arena_bytes,
        calls=planned.program.calls,
        repeats=planned.program.repeats,
        launches=planned.program.launches,
        returns=planned.program.results,
    )
    _refuse_dtypes(header)
    link_artifact(built.kernels, specs, weights, header, path, cxx)
    return header


def link_artifact(
    kernels: Sequence[CompiledKernel],
    specs: Sequence[Placement],
    weights: Sequence[AnyArray],
    header: ArtifactHeader,
    path: Path,
    cxx: str | None = None,
) -> None:
    """Write a file of kernels in the order of their names; see `write_artifact`."""
    command = find_linker(header.machine, cxx)
    try:
        with TemporaryFolder("link") as folder:
            code = _link(kernels, Path(folder), command)
    except OSError as error:
        place = tempfile.gettempdir()
        raise ArtifactError(
            f"cannot link in {place}: {error.strerror}; free space there or set TMPDIR"
        ) from error
    layout = _Layout.of(code, specs, weights, header)
    with replacing(path, layout.size, executable=True, lasting=False) as file:
        write_in_huge_pages(file, _parts(layout, weights, specs))


def write_outcome(path: Path, header: ArtifactHeader) -> None:
    """Write what a header has beyond that of the artifact's file into a section of its own.

    An earlier outcome is replaced. A crash damages the file, which is to be a temporary one.
    """
    try:
        with open(path, "r+b") as file:
            _add_outcome(file, header)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {path}: {error.strerror}; free space there or set TMPDIR"
        ) from error


def _add_outcome(file: BinaryIO, header: ArtifactHeader) -> None:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = read_elf(memoryview(data))
        own, weights, digest = map(elf.find, (HEADER_SECTION, WEIGHTS_SECTION, DIGEST_SECTION))
        assert own is not None
        assert weights is not None
        assert digest is not None
        tables_offset = own.offset + own.size
        written = ArtifactHeader.from_json(json.loads(data[own.offset : tables_offset]))
        outcome = header.outcome_since(written)
        text = json.dumps(outcome, separators=(",", ":"), allow_nan=False).encode()
        start, tables = with_sections(data, [], _behind(text), tables_offset)
        rest = tables + text
        body = hashlib.sha256(start)
        body.update(data[len(start) : weights.offset])
        body.update(data[own.offset : tables_offset])
        body.update(rest)
        weights_digest = data[digest.offset + _DIGEST : digest.offset + digest.size]
    file.write(start)
    file.seek(tables_offset)
    file.write(rest + body.digest() + weights_digest)
    file.truncate()


def _behind(outcome: bytes) -> dict[str, int]:
    """Return the sizes of the last sections: digests at the end show that no byte is missing."""
    return {OUTCOME_SECTION: len(outcome), DIGEST_SECTION: 2 * _DIGEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The parts of the final file around the weights, and where each goes (bytes)."""

    code: bytes
    header: bytes
    tables: bytes
    weights_offset: int
    weights_size: int
    size: int

    @classmethod
    def of(
        cls,
        code: bytes,
        specs: Sequence[Placement],
        weights: Sequence[AnyArray],
        header: ArtifactHeader,
    ) -> _Layout:
        page = _PAGE[header.machine]
        weights_offset = _round_up(len(code), page)
        weights_size = (
            specs[-1].offset + _round_up(weights[-1].nbytes, WEIGHT_ALIGN) if specs else 0
        )
        header_offset = weights_offset + weights_size
        text = header.encode()
        text += b"\n" * (-len(text) % 8)
        tables_offset = header_offset + len(text)
        sections = [
            Section(WEIGHTS_SECTION, weights_offset, weights_size, page),
            Section(HEADER_SECTION, header_offset, len(text)),
        ]
        start, tables = with_sections(code, sections, _behind(b""), tables_offset)
        return cls(
            code=start + code[len(start) :],
            header=text,
            tables=tables,
            weights_offset=weights_offset,
            weights_size=weights_size,
            size=tables_offset + len(tables) + 2 * _DIGEST,
        )


def _parts(
    layout: _Layout, weights: Sequence[AnyArray], specs: Sequence[Placement]
) -> Iterator[bytes | memoryview]:
    body = hashlib.sha256()
    weights_digest = WeightsDigest()
    before = layout.code + bytes(layout.weights_offset - len(layout.code))
    body.update(before)
    yield before
    position = 0
    for spec, array in zip(specs, weights, strict=True):
        # One pass over each array in place: no concatenated copy of all the weights.
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        padding = bytes(spec.offset - position)
        for part in (padding, data):
            weights_digest.update(part)
            yield part
        position = spec.offset + array.nbytes
    padding = bytes(layout.weights_size - position)
    weights_digest.update(padding)
    body.update(layout.header + layout.tables)
    yield padding + layout.header + layout.tables
    yield body.digest() + weights_digest.digest()


def place(weights: Sequence[AnyArray]) -> tuple[Placement, ...]:
    """Return the places of weights that fill their section one after the other."""
    assert all(array.dtype.isnative for array in weights)
    *offsets, _ = offsets_of(array.nbytes for array in weights)
    return tuple(
        Placement(offset, array.dtype.name, array.shape)
        for offset, array in zip(offsets, weights, strict=True)
    )


def offsets_of(sizes: Iterable[int], start: int = 0) -> list[int]:
    """Return the offsets of consecutive weights of these sizes, and where the next would begin."""
    offsets = [start]
    for size in sizes:
        offsets.append(_round_up(offsets[-1] + size, WEIGHT_ALIGN))
    return offsets


def _refuse_dtypes(header: ArtifactHeader) -> None:
    for what, specs in (
        ("output", header.outputs),
        ("weight", header.weights),
        ("tensor between two operators", header.activations),
    ):
        for spec in specs:
            if spec.dtype not in DTYPES:
                raise UnsupportedError(
                    f"a {what} is of dtype {spec.dtype}, which modules cannot hold: compute with "
                    "float32 or float16 in the model instead"
                )


def _link(kernels: Sequence[CompiledKernel], folder: Path, command: tuple[str, ...]) -> bytes:
    """Return the shared object with the code and the table of its kernels."""
    source, output = folder / "kernel_table.c", folder / "code.so"
    source.write_text(table_source(kernels))
    objects = []
    for number, each in enumerate(kernels):
        objects.append(folder / f"{number}.o")
        objects[-1].write_bytes(with_symbols_renamed(each.code, UNNAMED, each.kernel.name))
    # The code takes the runtime's functions through pointers that the runtime fills in, so only
    # libm is linked. Whatever else a process has loaded, the code finds its own symbols.
    flags = ["-shared", "-fPIC", f"-Wl,--strip-debug,-Bsymbolic,-e,{SYMBOL}"]
    flags += ["-include", str(_TABLE), "-o", str(output)]
    code, said = _run([*command, *flags, *map(str, objects), str(source), "-lm"], folder)
    if code != 0:
        raise ArtifactError(
            f"linking with '{' '.join(command)}' failed: {cause(said)}; is it a working C++ "
            "compiler for the target?"
        )
    return output.read_bytes()


def _run(arguments: Sequence[str], folder: Path) -> tuple[int, str]:
    """Return a compiler's exit code and output; on an interruption, end all that it started."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = {**os.environ, "TMPDIR": str(folder)}
    with started(arguments, text=True, env=environment, **pipes) as process:
        said, _ = process.communicate()
        return process.returncode, said


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


WEIGHTS_PIECE: Final = 16 << 10
"""Bytes of weights that share a checksum."""


class WeightsDigest:
    """The digest of weights that come in parts of any size: SHA-256 of the pieces' CRC-32C."""

    def __init__(self) -> None:
        self._sums = hashlib.sha256()
        self._rest = b""

    def update(self, part: bytes | memoryview) -> None:
        view = memoryview(part)
        if self._rest:
            taken = WEIGHTS_PIECE - len(self._rest)
            self._rest += view[:taken]
            view = view[taken:]
            if len(self._rest) < WEIGHTS_PIECE:
                return
            self._add(self._rest)
        whole = view.nbytes - view.nbytes % WEIGHTS_PIECE
        self._add(view[:whole])
        self._rest = bytes(view[whole:])

    def digest(self) -> bytes:
        """Return the digest of all parts; no part can be added afterwards."""
        self._add(self._rest)
        return self._sums.digest()

    def _add(self, part: bytes | memoryview) -> None:
        data = np.frombuffer(part, np.uint8)
        sums = np.empty(-(-data.nbytes // WEIGHTS_PIECE), np.uint32)
        if data.nbytes:
            library().neocpu_checksums(address_of(data), data.nbytes, address_of(sums))
        self._sums.update(sums.data)
