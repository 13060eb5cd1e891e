"""Combine artifacts of one model for several CPUs into one file: `artifact_file/fat.py`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

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
    path = Path(path)
    if not 1 <= len(artifacts) <= MAX_VARIANTS:
        raise UsageError(f"a fat file holds 1 to {MAX_VARIANTS} variants, got {len(artifacts)}")
    for name in artifacts:
        if not is_name(name):
            raise UsageError(f"a variant's name is 1 to {MAX_NAME} ASCII characters, not {name!r}")
    with ExitStack() as stack:
        opened = [
            (name, stack.enter_context(_only_artifact(name, source)))
            for name, source in artifacts.items()
        ]
        _check_same_model(opened)
        variants = _place(opened)
        index = encode_index([_entry(variant) for variant in variants])
        assert len(index) <= BLOCK
        with replacing(path, variants[-1].offset + variants[-1].size) as file:
            file.write(index)
            end = len(index)
            for variant, (_, artifact) in zip(variants, opened, strict=True):
                file.write(bytes(variant.offset - end))  # a pipe cannot skip
                end = variant.offset + variant.size
                with open(os.dup(artifact.fd), "rb") as source:
                    shutil.copyfileobj(source, file, 1 << 22)
    return variants


def _only_artifact(name: str, path: str | os.PathLike[str]) -> Artifact:
    opened = open_variants(path)
    if len(opened) == 1 and not opened[0].variant:
        return opened[0]
    for artifact in opened:
        artifact.close()
    raise UsageError(f"variant '{name}': {path} is a fat file itself; name what it was made of")


def _check_same_model(opened: Sequence[tuple[str, Artifact]]) -> None:
    first, *others = opened
    for name, artifact in others:
        for what in ("inputs", "outputs"):
            mine, its = getattr(first[1].header, what), getattr(artifact.header, what)
            if mine != its:
                raise UsageError(
                    f"variants '{first[0]}' and '{name}' are not of one model: their {what} are "
                    f"{', '.join(map(str, mine))} and {', '.join(map(str, its))}"
                )


def _place(opened: Sequence[tuple[str, Artifact]]) -> tuple[Variant, ...]:
    variants = []
    end = 1  # of the index, which takes a block
    for name, artifact in opened:
        offset = -(-end // BLOCK) * BLOCK
        variants.append(Variant(name, offset, artifact.size, artifact.header))
        end = offset + artifact.size
    return tuple(variants)


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
