"""Fat files: complete artifacts of one model for several CPUs, after an index.

::

    NEOCPU-FAT 1\\n
    {"variants": [{"name": "avx2", "offset": 65536, "size": 2097152, "target": "llvm …",
                   "machine": "x86_64", "isa_features": ["avx", …]}, …]}\\n
    SHA-256 of the two lines above, 64 hexadecimal digits\\n
    zeros up to byte 65536, then the variants in the index's order

Each variant is an artifact as `building.link` writes it. Its offsets count from its own first byte,
which lies on a multiple of 64 KiB, the largest page size, so that its weights are mapped in place.
Zeros fill the gaps, and the file ends with its last variant.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, BinaryIO, Final

from neocpu.foundation.errors import ArgumentTypeError, UsageError
from neocpu.foundation.files import replacing
from neocpu.foundation.json_codec import JsonObject
from neocpu.runtime.artifact import ArtifactFile, Variant

MAGIC: Final = b"NEOCPU-FAT 1\n"
BLOCK: Final = 1 << 16
"""Bytes: each variant starts on a multiple of them, and the index takes no more."""
MAX_VARIANTS: Final = 32
MAX_NAME: Final = 63
"""Characters of a variant's name."""


def combine(
    artifacts: Mapping[str, str | os.PathLike[str]], path: str | os.PathLike[str]
) -> tuple[Variant, ...]:
    """Write a file of several artifacts; a loader takes the best one that its host can run.

    Parameters
    ----------
    artifacts : mapping of str to path
        Files that ``neocpu compile`` wrote of one model for different CPUs, perhaps on different
        hosts, by the names of the variants. If several suit a host equally, the first is loaded.
    path : path
        The file to write; an existing one is replaced. Either all of it appears or nothing does.

    Returns
    -------
    tuple of Variant
        The variants, in the given order.

    Raises
    ------
    UsageError
        There is no artifact, their inputs or outputs differ, or the folder is not writable.
    ArtifactError
        An artifact is damaged, or the disk is full.
    """
    if not isinstance(artifacts, Mapping):
        raise ArgumentTypeError(
            "artifacts must be a mapping from names of CPUs to files, as {'avx2': 'net-avx2.so'}, "
            f"got {type(artifacts).__name__}"
        )
    return combine_each(artifacts.items(), path)


def combine_each(
    artifacts: Iterable[tuple[str, str | os.PathLike[str]]], path: str | os.PathLike[str]
) -> tuple[Variant, ...]:
    """Write the file of `combine`, each artifact when it is ready; it may be deleted after that."""
    with replacing(Path(path)) as file:
        opened: Iterable[tuple[Variant, ArtifactFile]] = _opened(artifacts)
        if file.seekable():
            file.write(bytes(BLOCK))
        else:  # a pipe: the index has to come first
            opened = list(opened)
            file.write(_index(variant for variant, _ in opened))
        variants, end = [], BLOCK
        for variant, source in opened:
            file.write(bytes(variant.offset - end))  # a pipe cannot skip
            _copy(source, file)
            end = variant.offset + variant.size
            variants.append(variant)
        index = _index(variants)
        if file.seekable():
            file.seek(0)
            file.write(index)
    return tuple(variants)


def is_name(name: str) -> bool:
    """Return whether a variant may have a name: 1 to `MAX_NAME` printable ASCII characters."""
    return 1 <= len(name) <= MAX_NAME and name.isascii() and name.isprintable()


def encode_index(entries: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the three lines that a fat file begins with."""
    document = json.dumps({"variants": entries}, separators=(",", ":"))
    lines = MAGIC + document.encode() + b"\n"
    return lines + hashlib.sha256(lines).hexdigest().encode() + b"\n"


def index_entry(variant: Variant) -> JsonObject:
    header = variant.header
    return {
        "name": variant.name,
        "offset": variant.offset,
        "size": variant.size,
        "target": header.target,
        "machine": header.machine,
        "isa_features": list(header.isa_features),
    }


def _opened(
    artifacts: Iterable[tuple[str, str | os.PathLike[str]]],
) -> Iterator[tuple[Variant, ArtifactFile]]:
    variants: list[Variant] = []
    end = BLOCK
    for name, path in artifacts:
        if not is_name(name):
            raise UsageError(f"a variant's name is 1 to {MAX_NAME} ASCII characters, not {name!r}")
        source = ArtifactFile(path)
        (only, *others) = source.variants
        if only.name or others:
            raise UsageError(
                f"variant '{name}': {path} is a fat file itself; name what it was made of"
            )
        variants.append(changed(only, name=name, offset=-(-end // BLOCK) * BLOCK))
        _check_same_model(variants[0], variants[-1])
        end = variants[-1].offset + only.size
        yield variants[-1], source


def _copy(source: ArtifactFile, file: BinaryIO) -> None:
    start = file.tell() if file.seekable() else 0
    with open(os.dup(source.fd), "rb") as data:
        shutil.copyfileobj(data, file, 1 << 22)
    if file.seekable():
        # Written to the disk now, so that there is less to wait for at the end.
        file.flush()
        os.posix_fadvise(file.fileno(), start, file.tell() - start, os.POSIX_FADV_DONTNEED)


def _check_same_model(first: Variant, other: Variant) -> None:
    for what in ("inputs", "outputs"):
        mine, its = getattr(first.header, what), getattr(other.header, what)
        if mine != its:
            raise UsageError(
                f"variants '{first.name}' and '{other.name}' are not of one model: their {what} "
                f"are {', '.join(map(str, mine))} and {', '.join(map(str, its))}"
            )


def _index(variants: Iterable[Variant]) -> bytes:
    entries = [index_entry(variant) for variant in variants]
    if not 1 <= len(entries) <= MAX_VARIANTS:
        raise UsageError(f"a fat file holds 1 to {MAX_VARIANTS} variants, got {len(entries)}")
    index = encode_index(entries)
    assert len(index) <= BLOCK
    return index.ljust(BLOCK, b"\0")
