"""Fat files: complete artifacts of one model for several CPUs, after an index.

::

    NEOCPU-FAT 1\n
    {"variants": [{"name": "avx2", "offset": 65536, "size": 2097152, "target": "llvm …",
                   "machine": "x86_64", "isa_features": ["avx", …]}, …]}\n
    SHA-256 of the two lines above, 64 hexadecimal digits\n
    zeros up to byte 65536, then the variants in the index's order

Each variant is an artifact as `building.link` writes it, its offsets counted from its own first
byte, which lies on a multiple of 64 KiB: the largest page, so that its weights are mapped where
they lie. Zeros fill the gaps, and the file ends with its last variant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from neocpu.runtime.artifact_file.strict_json import (
    FieldError,
    array,
    integer,
    member,
    parse,
    string,
)

MAGIC: Final = b"NEOCPU-FAT 1\n"
FAMILY: Final = MAGIC[:11]
"""How fat files of any version begin."""
BLOCK: Final = 1 << 16
"""Bytes each variant starts on a multiple of, and bytes of the index at most."""
MAX_VARIANTS: Final = 32
MAX_NAME: Final = 63
"""Characters of a variant's name."""

_MAX_FEATURES: Final = 256
_MAX_OFFSET: Final = 1 << 50
_VECTOR_BYTES: Final = {"avx512f": 64, "avx2": 32}


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index says of one variant.

    Attributes
    ----------
    name : str
        What it was called when it was compiled: an instruction set or a CPU.
    offset, size : int
        Where it lies in the file; bytes.
    target, machine, isa_features
        As in its own header.
    """

    name: str
    offset: int
    size: int
    target: str
    machine: str
    isa_features: tuple[str, ...]

    @property
    def mcpu(self) -> str:
        """LLVM's name of the CPU it was compiled for."""
        options = (word.partition("=") for word in self.target.split())
        return next((value for name, _, value in options if name == "-mcpu"), "")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "offset": self.offset,
            "size": self.size,
            "target": self.target,
            "machine": self.machine,
            "isa_features": list(self.isa_features),
        }


def is_name(name: str) -> bool:
    """Whether a variant may be called so: 1 to `MAX_NAME` printable ASCII characters."""
    return 1 <= len(name) <= MAX_NAME and name.isascii() and name.isprintable()


def encode_index(entries: Sequence[Entry]) -> bytes:
    """Return the three lines a fat file begins with."""
    document = {"variants": [entry.to_json() for entry in entries]}
    lines = MAGIC + json.dumps(document, separators=(",", ":")).encode() + b"\n"
    return lines + hashlib.sha256(lines).hexdigest().encode() + b"\n"


def read_index(start: bytes, size: int) -> tuple[Entry, ...]:
    """Read the index of a fat file.

    Parameters
    ----------
    start : bytes
        Its first `BLOCK` bytes.
    size : int
        Of the file, in bytes.

    Raises
    ------
    FieldError
        If the index is damaged, of another version, or says what cannot be.
    """
    if not start.startswith(MAGIC):
        version = start[len(FAMILY) : 32].partition(b"\n")[0].decode("ascii", "replace")
        raise FieldError(f"it is a fat file of version '{version.strip()}', not 1")
    lines = start.split(b"\n", 3)
    if len(lines) < 4:
        raise FieldError("the index of the fat file is truncated")
    covered = len(lines[0]) + len(lines[1]) + 2
    if hashlib.sha256(start[:covered]).hexdigest().encode() != lines[2]:
        raise FieldError("the index of the fat file is damaged: its checksum does not match")
    variants = array(*member(parse(lines[1]), "", "variants"), MAX_VARIANTS)
    entries = tuple(_entry(value, place) for value, place in variants)
    _check_places(entries, size)
    return entries


def choose(
    entries: Sequence[Entry], machine: str, features: frozenset[str], cpu: str = ""
) -> Entry | None:
    """Return the variant that suits a host best, or None if it can run none.

    The one compiled for its very CPU; else the one with the widest vectors, with the most
    instruction sets, that comes first.

    Parameters
    ----------
    entries : sequence of Entry
    machine, features
        The host's, as `os.uname` and LLVM call them.
    cpu : str
        LLVM's name of the host's CPU, where it is known.
    """
    able = [e for e in entries if e.machine == machine and features.issuperset(e.isa_features)]
    return max(
        able,
        key=lambda e: (bool(cpu) and e.mcpu == cpu, _vector_bytes(e), len(e.isa_features)),
        default=None,
    )


def _vector_bytes(entry: Entry) -> int:
    return max((_VECTOR_BYTES.get(name, 16) for name in entry.isa_features), default=16)


def _entry(value: Any, place: str) -> Entry:
    features = array(*member(value, place, "isa_features"), _MAX_FEATURES)
    return Entry(
        name=string(*member(value, place, "name")),
        offset=integer(*member(value, place, "offset"), BLOCK, _MAX_OFFSET),
        size=integer(*member(value, place, "size"), 1, _MAX_OFFSET),
        target=string(*member(value, place, "target")),
        machine=string(*member(value, place, "machine")),
        isa_features=tuple(string(*feature) for feature in features),
    )


def _check_places(entries: Sequence[Entry], size: int) -> None:
    end = 1
    for index, entry in enumerate(entries):
        if entry.offset != -(-end // BLOCK) * BLOCK:
            raise FieldError(f"variants[{index}].offset: the one before ends at {end}")
        end = entry.offset + entry.size
        if not is_name(entry.name):
            raise FieldError(f"variants[{index}].name: not 1 to {MAX_NAME} printable characters")
        if entry.name in (other.name for other in entries[:index]):
            raise FieldError(f"variants[{index}].name: there is another of this name")
    if not entries:
        raise FieldError("variants: there are none")
    if end != size:
        raise FieldError(f"variants end at byte {end}, the file at {size}: it is truncated")
