"""Artifacts whose digests are right and whose content is not."""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neocpu.runtime.artifact_file.elf import read_elf
from neocpu.runtime.artifact_file.header import DIGEST_SECTION, HEADER_SECTION, WEIGHTS_SECTION

_SECTION = struct.Struct("<IIQQQQIIQQ")


def forge(source: Path, path: Path, edit: Callable[[bytearray], None]) -> Path:
    """Write a copy of an artifact with some bytes edited, and its digest made right again."""
    data = bytearray(source.read_bytes())
    edit(data)
    path.write_bytes(sign(data))
    return path


def sign(data: bytearray) -> bytearray:
    """Make an artifact's digest of all but the weights right again."""
    elf = read_elf(memoryview(data))
    weights, digest = elf.find(WEIGHTS_SECTION), elf.find(DIGEST_SECTION)
    body = data[: weights.offset] + data[weights.offset + weights.size : digest.offset]
    data[digest.offset : digest.offset + 32] = hashlib.sha256(body).digest()
    return data


def forge_header(source: Path, path: Path, header: Any) -> Path:
    """Write a copy of an artifact with another header: its bytes, or what becomes JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(with_header(source.read_bytes(), text))
    return path


def with_header(data: bytes, text: bytes) -> bytearray:
    """Return an artifact with another header, of any length; what follows it moves."""
    section = read_elf(memoryview(data)).find(HEADER_SECTION)
    end = section.offset + section.size
    text = text + b"\n" * (-len(text) % 8)
    moved = len(text) - section.size
    changed = bytearray(data[: section.offset] + text + data[end:])
    table = struct.unpack_from("<Q", changed, 40)[0] + moved
    struct.pack_into("<Q", changed, 40, table)
    count = struct.unpack_from("<H", changed, 60)[0]
    for place in range(table, table + count * _SECTION.size, _SECTION.size):
        fields = list(_SECTION.unpack_from(changed, place))
        if fields[4:6] == [section.offset, section.size]:
            fields[5] = len(text)
        elif fields[4] >= end:
            fields[4] += moved
        _SECTION.pack_into(changed, place, *fields)
    return sign(changed)
