"""Read everything of an artifact but its weights, and check it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.artifact_file.elf import ElfError, Section, read_elf_with
from neocpu.runtime.artifact_file.header import (
    DIGEST_SECTION,
    FORMAT,
    HEADER_SECTION,
    MAX_HEADER,
    WEIGHT_ALIGN,
    WEIGHTS_SECTION,
    ArtifactHeader,
)
from neocpu.runtime.artifact_file.strict_json import FieldError, member, parse
from neocpu.runtime.input_file import FilePart

DIGEST_SIZE: Final = hashlib.sha256().digest_size
REMEDY: Final = "compile the model again with `neocpu compile`"


@dataclass(frozen=True, slots=True)
class Content:
    """What was read of one artifact.

    Attributes
    ----------
    header : ArtifactHeader
    weights : Section
        Where the weights lie.
    body_digest, weights_digest : bytes
        SHA-256 of everything else, which was checked, and of the weights, which was not.
    """

    header: ArtifactHeader
    weights: Section
    body_digest: bytes
    weights_digest: bytes


def read_content(part: FilePart) -> Content:
    """Read an artifact, and check everything but the weights against its digest.

    Raises
    ------
    ArtifactError
        If it is truncated, foreign, damaged or of another format version.
    """
    where = part.where
    try:
        elf = read_elf_with(part.read, part.size)
    except ElfError as error:
        raise ArtifactError(
            f"{where} is not a complete neocpu artifact, {error}; {REMEDY}"
        ) from None
    header, weights, digest = map(elf.find, (HEADER_SECTION, WEIGHTS_SECTION, DIGEST_SECTION))
    if header is None or weights is None or digest is None:
        raise ArtifactError(
            f"{where} is a shared library but not a neocpu artifact (no {HEADER_SECTION} section): "
            f"{REMEDY}"
        )
    if digest.offset + digest.size != part.size or digest.size != 2 * DIGEST_SIZE:
        raise ArtifactError(f"{where} is damaged: bytes are missing or added at its end; {REMEDY}")
    behind = weights.offset + weights.size
    ordered = behind <= header.offset <= header.offset + header.size <= digest.offset
    if not ordered or digest.offset - behind > MAX_HEADER:
        raise ArtifactError(f"{where} is damaged: its sections are out of place; {REMEDY}")
    body = hashlib.sha256()
    for piece in part.pieces(weights.offset):
        body.update(piece)
    rest = part.read(behind, digest.offset - behind)
    body.update(rest)
    digests = part.read(digest.offset, digest.size)
    if body.digest() != digests[:DIGEST_SIZE]:
        raise ArtifactError(f"{where} is damaged: its checksum does not match; {REMEDY}")
    text = rest[header.offset - behind :][: header.size]
    parsed = _parse(where, text, weights)
    if parsed.machine != elf.machine:
        raise ArtifactError(f"{where}: header and code disagree on the machine; {REMEDY}")
    return Content(parsed, weights, digests[:DIGEST_SIZE], digests[DIGEST_SIZE:])


def _parse(where: str, text: bytes, weights: Section) -> ArtifactHeader:
    try:
        fields = parse(text)
        version, _ = member(fields, "", "format")
        if type(version) is int and version != FORMAT:
            raise ArtifactError(
                f"{where} has artifact format {version}, this neocpu reads format {FORMAT}: "
                f"{REMEDY}"
            )
        header = ArtifactHeader.from_json(fields)
        header.check_weights(weights.size)
        if weights.offset % WEIGHT_ALIGN:
            raise FieldError(f"the weights do not start on a multiple of {WEIGHT_ALIGN} bytes")
        return header
    except FieldError as error:
        raise ArtifactError(f"{where} has a malformed header: {error}; {REMEDY}") from None
