"""The part of ELF an artifact needs: find sections in a file, and add sections at its end.

Only 64-bit little-endian ELF, which is what x86-64 and AArch64 Linux use. Layout from the System V
gABI, chapters "ELF Header" and "Sections".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

MACHINES: Final = {62: "x86_64", 183: "aarch64"}
"""``e_machine`` codes by the name ``os.uname().machine`` has for them."""

_MAGIC: Final = b"\x7fELF"
_EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SHDR: Final = struct.Struct("<IIQQQQIIQQ")
_SHT_PROGBITS: Final = 1
_SHT_NOBITS: Final = 8
_SHN_LORESERVE: Final = 0xFF00
_MAX_NAMES: Final = 1 << 20
_NAME: Final = 64
"""Characters of a section's name that are read."""

Reader: TypeAlias = Callable[[int, int], bytes]
"""Returns a range of a file that lies within it, from its offset and its size in bytes."""


class ElfError(ValueError):
    """The bytes are not a complete 64-bit little-endian ELF file."""


@dataclass(frozen=True, slots=True)
class Section:
    """One named range of the file: ``offset`` and ``size`` in bytes, start aligned to ``align``."""

    name: str
    offset: int
    size: int
    align: int = 1


@dataclass(frozen=True, slots=True)
class ElfFile:
    """What was read of an ELF file: its machine and its sections that occupy file space."""

    machine: str
    sections: tuple[Section, ...]

    def find(self, name: str) -> Section | None:
        """Return the section called ``name``, or ``None``."""
        return next((s for s in self.sections if s.name == name), None)


@dataclass(frozen=True, slots=True)
class _Tables:
    """A parsed section header table: raw headers and the string table with their names."""

    ehdr: tuple[int, ...]
    ident: bytes
    headers: tuple[tuple[int, ...], ...]
    names: bytes


def read_elf(data: memoryview) -> ElfFile:
    """Read the machine and the sections of an ELF file that is in memory.

    Raises
    ------
    ElfError
        If ``data`` is not ELF64 little-endian, or a table or section lies outside it.
    """
    return read_elf_with(lambda offset, size: bytes(data[offset : offset + size]), len(data))


def read_elf_with(read: Reader, size: int) -> ElfFile:
    """Read the machine and the sections of an ELF file of ``size`` bytes, and nothing else of it.

    Raises
    ------
    ElfError
        As `read_elf`.
    """
    tables = _read_tables(read, size)
    sections = []
    for header in tables.headers:
        name, kind, _, _, offset, length, _, _, align, _ = header
        if kind in (0, _SHT_NOBITS):
            continue
        if offset + length > size:
            raise ElfError("a section lies outside the file: it is truncated")
        sections.append(Section(_name_at(tables.names, name), offset, length, align))
    machine = tables.ehdr[1]
    return ElfFile(MACHINES.get(machine, f"machine {machine}"), tuple(sections))


def with_sections(
    elf: bytes, sections: Sequence[Section], table_offset: int
) -> tuple[bytes, bytes]:
    """Describe sections that will be appended to an ELF file.

    The sections are not loaded by the dynamic loader (no ``SHF_ALLOC``), so no program header and
    no address changes: a new section header table and name table are all it takes.

    Parameters
    ----------
    elf : bytes
        The linked file.
    sections : sequence of Section
        Ranges of the final file, whose contents the caller writes.
    table_offset : int
        Where the caller will write the returned tables; a multiple of eight.

    Returns
    -------
    patched : bytes
        ``elf`` with its ELF header pointing to the new table. Same length.
    tables : bytes
        Section names followed by the section header table, to be written at ``table_offset``.
    """
    assert table_offset % 8 == 0
    tables = _read_tables(lambda offset, size: elf[offset : offset + size], len(elf))
    names = bytearray(tables.names)
    headers = [_SHDR.pack(*header) for header in tables.headers]
    for section in sections:
        start = len(names)
        names += section.name.encode() + b"\0"
        headers.append(
            _SHDR.pack(
                start, _SHT_PROGBITS, 0, 0, section.offset, section.size, 0, 0, section.align, 0
            )
        )
    strings = tables.ehdr[12]
    old = tables.headers[strings]
    headers[strings] = _SHDR.pack(*old[:4], table_offset, len(names), *old[6:])
    padded = bytes(names) + bytes(-len(names) % 8)
    ehdr = list(tables.ehdr)
    ehdr[5] = table_offset + len(padded)
    ehdr[11] = len(headers)
    patched = _EHDR.pack(tables.ident, *ehdr) + elf[_EHDR.size :]
    return patched, padded + b"".join(headers)


def _read_tables(read: Reader, size: int) -> _Tables:
    start = read(0, min(size, _EHDR.size))
    if start[:4] != _MAGIC:
        raise ElfError("it is not an ELF file")
    if len(start) < _EHDR.size:
        raise ElfError("its ELF header is truncated")
    ident, *fields = _EHDR.unpack(start)
    if ident[4] != 2 or ident[5] != 1:
        raise ElfError("it is not a 64-bit little-endian ELF file")
    table, entry_size, count, strings = fields[5], fields[10], fields[11], fields[12]
    if entry_size != _SHDR.size or not 0 < count < _SHN_LORESERVE or strings >= count:
        raise ElfError("it has no section header table")
    if table + count * _SHDR.size > size:
        raise ElfError("its section header table is missing: it is truncated")
    headers = tuple(_SHDR.iter_unpack(read(table, count * _SHDR.size)))
    offset, length = headers[strings][4:6]
    if offset + length > size:
        raise ElfError("its section names are missing: it is truncated")
    if length > _MAX_NAMES:
        raise ElfError("its section names take more than a mebibyte")
    return _Tables(tuple(fields), ident, headers, read(offset, length))


def _name_at(names: bytes, start: int) -> str:
    # Cut, because a table without an end would be copied whole for each of 65,000 sections.
    return names[start : start + _NAME].partition(b"\0")[0].decode("ascii", "replace")
