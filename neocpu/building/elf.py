"""The part of ELF that writing an artifact needs: find sections, and add some at the end.

It reads 64-bit little-endian ELF only, which is what x86-64 and AArch64 Linux use. The layout is
that of the System V gABI, chapters "ELF Header" and "Sections".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MACHINES: Final = {62: "x86_64", 183: "aarch64"}
"""Names of machines, as in ``os.uname().machine``, by their ``e_machine`` codes."""

_EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SHDR: Final = struct.Struct("<IIQQQQIIQQ")
_SHT_NULL: Final = 0
_SHT_PROGBITS: Final = 1
_SHT_SYMTAB: Final = 2
_SHT_NOBITS: Final = 8
_SYMBOL_BYTES: Final = 24
_ENTRY: Final = "__tvm_ffi_"
"""The prefix that TVM gives to names of functions that are called from outside."""


@dataclass(frozen=True, slots=True)
class Section:
    """One named range of the file: ``offset`` and ``size`` in bytes, start aligned to ``align``."""

    name: str
    offset: int
    size: int
    align: int = 1


@dataclass(frozen=True, slots=True)
class ElfFile:
    """An ELF file as read: its machine and the sections that occupy file space."""

    machine: str
    sections: tuple[Section, ...]

    def find(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)


@dataclass(frozen=True, slots=True)
class _Tables:
    ehdr: tuple[int, ...]
    ident: bytes
    headers: tuple[tuple[int, ...], ...]
    names: bytes


def read_elf(data: memoryview) -> ElfFile:
    """Read the machine and the sections of an ELF file that the linker or neocpu wrote."""
    tables = _read_tables(data)
    sections = [
        Section(_name_at(tables.names, name), offset, length, align)
        for name, kind, _, _, offset, length, _, _, align, _ in tables.headers
        if kind not in (_SHT_NULL, _SHT_NOBITS)
    ]
    return ElfFile(MACHINES[tables.ehdr[1]], tuple(sections))


def with_sections(
    elf: bytes | mmap.mmap, sections: Sequence[Section], behind: Mapping[str, int], offset: int
) -> tuple[bytes, bytes]:
    """Return the header and tables of an ELF file with sections appended, or replaced at its end.

    The dynamic loader does not load them (no ``SHF_ALLOC``), so no address changes: a new section
    header table and name table suffice. `sections` are ranges of the final file; `behind` has the
    sizes, by name, of sections that follow the tables. The caller writes the header over that of
    ``elf``, and the tables at ``offset``, a multiple of eight.
    """
    assert offset % 8 == 0
    tables = _read_tables(memoryview(elf))
    names = bytearray(tables.names)
    added = [*(section.name for section in sections), *behind]
    starts = [_add_name(names, name) for name in added]
    kept = [row for row in tables.headers if _name_at(tables.names, row[0]) not in added]
    padded = bytes(names) + bytes(-len(names) % 8)
    end = offset + len(padded) + (len(kept) + len(added)) * _SHDR.size
    placed = [*sections]
    for name, size in behind.items():
        placed.append(Section(name, end, size))
        end += size
    headers = [_SHDR.pack(*row) for row in kept]
    for start, each in zip(starts, placed, strict=True):
        place = each.offset, each.size, 0, 0, each.align, 0
        headers.append(_SHDR.pack(start, _SHT_PROGBITS, 0, 0, *place))
    strings = tables.ehdr[12]
    old = tables.headers[strings]
    headers[strings] = _SHDR.pack(*old[:4], offset, len(names), *old[6:])
    ehdr = list(tables.ehdr)
    ehdr[5] = offset + len(padded)
    ehdr[11] = len(headers)
    return _EHDR.pack(tables.ident, *ehdr), padded + b"".join(headers)


def _add_name(names: bytearray, name: str) -> int:
    """Return the place of a name in a string table, to which it is added if it is missing."""
    start = names.find(b"\0" + name.encode() + b"\0") + 1
    if start == 0:
        start = len(names)
        names += name.encode() + b"\0"
    return start


def with_symbols_renamed(data: bytes, old: str, new: str) -> bytes:
    """Rename an object file's symbols that begin with ``old``, or with ``__tvm_ffi_`` and it."""
    tables = _read_tables(memoryview(data))
    (table,) = (header for header in tables.headers if header[1] == _SHT_SYMTAB)
    start, length, strings = table[4], table[5], table[6]
    at, size = tables.headers[strings][4:6]
    names = bytearray(data[at : at + size])
    symbols = bytearray(data[start : start + length])
    for place in range(0, length, _SYMBOL_BYTES):
        (first,) = struct.unpack_from("<I", symbols, place)
        name = _name_at(bytes(names), first)
        prefix = _ENTRY if name.startswith(_ENTRY) else ""
        if name.startswith(prefix + old):
            struct.pack_into("<I", symbols, place, len(names))
            names += f"{prefix}{new}{name.removeprefix(prefix + old)}".encode() + b"\0"
    # The old name table stays, unused: nothing else has to move.
    headers = bytearray(data)
    headers[start : start + length] = symbols
    row = tables.ehdr[5] + strings * _SHDR.size
    old_row = tables.headers[strings]
    _SHDR.pack_into(headers, row, *old_row[:4], len(data), len(names), *old_row[6:])
    return bytes(headers + names)


def _read_tables(data: memoryview) -> _Tables:
    ident, *fields = _EHDR.unpack_from(data)
    table, count, strings = fields[5], fields[11], fields[12]
    headers = tuple(_SHDR.iter_unpack(data[table : table + count * _SHDR.size]))
    offset, length = headers[strings][4:6]
    return _Tables(tuple(fields), ident, headers, bytes(data[offset : offset + length]))


def _name_at(names: bytes, start: int) -> str:
    return names[start : names.index(b"\0", start)].decode("ascii")
