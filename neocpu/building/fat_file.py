"""Combine artifacts of one model for several CPUs into one file: `artifact_file/fat.py`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from neocpu.foundation.errors import UsageError
from neocpu.foundation.files import replacing
from neocpu.runtime.artifact import Artifact, Variant, open_variants
from neocpu.runtime.artifact_file.fat import (
    BLOCK,
    MAX_NAME,
    MAX_VARIANTS,
    Entry,
    encode_index,
    is_name,
)


def combine(
    artifacts: Mapping[str, str | os.PathLike[str]], path: str | os.PathLike[str]
) -> tuple[Variant, ...]:
    """Write a file that holds several artifacts, of which a loader takes the best its host can run.

    Parameters
    ----------
    artifacts : mapping of str to path
        What ``neocpu compile`` wrote of one model for different CPUs, perhaps on different hosts,
        by the names the variants get. Of equally suitable ones the first is loaded.
    path : path
        The file to write; one that exists is replaced. Either all of it appears or nothing does.

    Returns
    -------
    tuple of Variant
        In the order given.

    Raises
    ------
    UsageError
        If there is none, they take or give different tensors, or the folder is not writable.
    ArtifactError
        If one of them is damaged, or the disk is full.
    """
    return combine_each(artifacts.items(), path)


def combine_each(
    artifacts: Iterable[tuple[str, str | os.PathLike[str]]], path: str | os.PathLike[str]
) -> tuple[Variant, ...]:
    """Write what `combine` does, each artifact as soon as it is there, while the next is made.

    Parameters
    ----------
    artifacts : iterable of (str, path)
        Names and files; a file may go when the next is asked for.
    """
    with ExitStack() as stack, replacing(Path(path)) as file:
        opened: Iterable[tuple[Variant, Artifact]] = _opened(artifacts, stack)
        if file.seekable():
            file.write(bytes(BLOCK))
        else:  # a pipe, where the index has to come first
            opened = list(opened)
            file.write(_index(variant for variant, _ in opened))
        variants, end = [], BLOCK
        for variant, artifact in opened:
            file.write(bytes(variant.offset - end))  # a pipe cannot skip
            _copy(artifact, file)
            end = variant.offset + variant.size
            variants.append(variant)
        index = _index(variants)
        if file.seekable():
            file.seek(0)
            file.write(index)
    return tuple(variants)


def _opened(
    artifacts: Iterable[tuple[str, str | os.PathLike[str]]], stack: ExitStack
) -> Iterator[tuple[Variant, Artifact]]:
    """Open artifacts until the end of ``stack``, and say where each goes."""
    variants: list[Variant] = []
    end = BLOCK
    for name, source in artifacts:
        if not is_name(name):
            raise UsageError(f"a variant's name is 1 to {MAX_NAME} ASCII characters, not {name!r}")
        artifact = stack.enter_context(_only_artifact(name, source))
        offset = -(-end // BLOCK) * BLOCK
        variants.append(Variant(name, offset, artifact.size, artifact.header))
        _check_same_model(variants[0], variants[-1])
        end = offset + artifact.size
        yield variants[-1], artifact


def _copy(artifact: Artifact, file: BinaryIO) -> None:
    with open(os.dup(artifact.fd), "rb") as source:
        shutil.copyfileobj(source, file, 1 << 22)
    if file.seekable():
        # Sent to the disk now, so that there is less to wait for at the end.
        file.flush()
        start = file.tell() - artifact.size
        os.posix_fadvise(file.fileno(), start, artifact.size, os.POSIX_FADV_DONTNEED)
        artifact.close()


def _only_artifact(name: str, path: str | os.PathLike[str]) -> Artifact:
    opened = open_variants(path)
    if len(opened) == 1 and not opened[0].variant:
        return opened[0]
    for artifact in opened:
        artifact.close()
    raise UsageError(f"variant '{name}': {path} is a fat file itself; name what it was made of")


def _check_same_model(first: Variant, other: Variant) -> None:
    for what in ("inputs", "outputs"):
        mine, its = getattr(first.header, what), getattr(other.header, what)
        if mine != its:
            raise UsageError(
                f"variants '{first.name}' and '{other.name}' are not of one model: their {what} "
                f"are {', '.join(map(str, mine))} and {', '.join(map(str, its))}"
            )


def _index(variants: Iterable[Variant]) -> bytes:
    """Return the block a file of these begins with."""
    entries = [_entry(variant) for variant in variants]
    if not 1 <= len(entries) <= MAX_VARIANTS:
        raise UsageError(f"a fat file holds 1 to {MAX_VARIANTS} variants, got {len(entries)}")
    index = encode_index(entries)
    assert len(index) <= BLOCK
    return index.ljust(BLOCK, b"\0")


def _entry(variant: Variant) -> Entry:
    header = variant.header
    return Entry(
        variant.name,
        variant.offset,
        variant.size,
        header.target,
        header.machine,
        header.isa_features,
    )
