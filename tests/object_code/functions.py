"""The functions of an artifact as text that does not depend on where they were linked."""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

_HEADER = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_AARCH64 = 183
_NOP = 0xD503201F  # of AArch64
_PROGRAM = "__tvm_ffi__library_bin"
_ENTRY = "__tvm_ffi_main"  # a second name of a function that is alone in its group


def functions(artifact: Path) -> dict[str, str]:
    """Return a digest of every function of a shared library, by name, and of all constants.

    The virtual machine's program, which lies among these, is none: it is left out.
    """
    machine = struct.unpack_from("<H", artifact.read_bytes(), 18)[0]
    lines = _words(artifact) if machine == _AARCH64 else _instructions(artifact)
    for body in lines.values():  # padding, as the next function's place wants it
        while body and (body[-1] in (0, _NOP) or "nop" in str(body[-1])):
            body.pop()
    lines.pop(_ENTRY, None)
    found = {name: hashlib.sha256(repr(body).encode()).hexdigest() for name, body in lines.items()}
    constants = _constants(artifact.read_bytes())
    return {**found, "(constants)": hashlib.sha256(constants).hexdigest()}


def changes(old: dict[str, str], new: dict[str, str]) -> str:
    """Say which functions are gone, new, or not what they were; "" if none."""
    kinds = {
        "gone": old.keys() - new.keys(),
        "new": new.keys() - old.keys(),
        "changed": {name for name in old.keys() & new.keys() if old[name] != new[name]},
    }
    return "; ".join(
        f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names
    )


def _disassembly(artifact: Path, *options: str) -> str:
    command = ["objdump", *options, str(artifact)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _instructions(artifact: Path) -> dict[str, list[str | int]]:
    """Return the disassembly of an x86 library; jumps within a function keep their distance."""
    found: dict[str, list[str | int]] = {}
    for line in _disassembly(artifact, "-d", "--no-show-raw-insn", "-j", ".text").splitlines():
        if header := _HEADER.match(line):
            body = found.setdefault(header[1], [])
        elif ":\t" in line:
            text = line.split(":\t", 1)[1].split("#", 1)[0].rstrip()
            text = re.sub(r"\b[0-9a-f]+ <([^+>]*)(\+0x[0-9a-f]+)?>", r"<\1\2>", text)
            body.append(re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text))
    return found


def _words(artifact: Path) -> dict[str, list[str | int]]:
    """Return the instructions of an AArch64 library without immediates that are addresses."""
    data = artifact.read_bytes()
    found: dict[str, list[str | int]] = {}
    for name, start, size in _functions(data):
        pages: set[int] = set()  # registers that hold the page of an address
        body = found.setdefault(name, [])  # local ones of several objects may share a name
        for at in range(0, size, 4):
            word = struct.unpack_from("<I", data, start + at)[0]
            base, result = word >> 5 & 31, word & 31
            is_page = word & 0x1F000000 == 0x10000000  # ADR, ADRP
            adds = word & 0x7F800000 == 0x11000000  # ADD of an immediate
            loads = word & 0x3B000000 == 0x39000000  # LDR, STR with an offset
            if is_page:
                word &= ~0x60FFFFE0
            elif word & 0x7C000000 == 0x14000000:  # B, BL
                distance = (word & 0x3FFFFFF ^ 0x2000000) - 0x2000000
                word = word if 0 <= at + 4 * distance < size else word & ~0x3FFFFFF
            elif base in pages and (adds or loads):
                word &= ~0x3FFC00
            if is_page:
                pages.add(result)
            elif not loads or word >> 22 & 1:  # all but a store may write its first register
                pages.discard(result)
            body.append(word)
    return found


def _functions(data: bytes) -> list[tuple[str, int, int]]:
    """Return name, offset in the file and size of what begins at each symbol of the code.

    Up to the next symbol, for not all that is code has one.
    """
    text = next(section for section in _sections(data) if section.name == ".text")
    begins: dict[int, str] = {}
    for symbol in _symbols(data):
        if symbol.kind == 2 and text.address <= symbol.address < text.address + text.size:  # FUNC
            at = symbol.address - text.address
            begins[at] = min(symbol.name, begins.get(at, symbol.name))
    starts = sorted({0, *begins})
    ends = [*starts[1:], text.size]
    return [
        (begins.get(start, "(before all)"), text.offset + start, end - start)
        for start, end in zip(starts, ends, strict=True)
    ]


def _constants(data: bytes) -> bytes:
    """Return the contents of the sections that hold kernels' constants, without their padding."""
    programs = [symbol for symbol in _symbols(data) if symbol.name == _PROGRAM]
    found = []
    for section in _sections(data):
        if section.name.startswith(".rodata"):
            left = data[section.offset : section.offset + section.size]
            for symbol in programs:
                at = symbol.address - section.address
                if 0 <= at < section.size:
                    found.append(left[:at].strip(b"\0"))
                    left = left[at + symbol.size :]
            found.append(left.strip(b"\0"))
    return b"".join(sorted(found))


class _Symbol(NamedTuple):
    name: str
    kind: int
    address: int
    size: int


def _symbols(data: bytes) -> list[_Symbol]:
    """Return what the symbol table names."""
    sections = _sections(data)
    found = []
    for table in sections:
        if table.kind != 2:  # SHT_SYMTAB
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, 24):
            name, info, _, _, address, size = struct.unpack_from("<IBBHQQ", data, at)
            text = data[names + name : data.index(b"\0", names + name)].decode()
            found.append(_Symbol(text, info & 15, address, size))
    return found


class _Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: int
    address: int


def _sections(data: bytes) -> list[_Section]:
    (table,), (entry, count) = (
        struct.unpack_from("<Q", data, 40),
        struct.unpack_from("<HH", data, 58),
    )
    (names,) = struct.unpack_from("<H", data, 62)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + entry * i) for i in range(count)]
    start = raw[names][4]

    def name(at: int) -> str:
        return data[start + at : data.index(b"\0", start + at)].decode()

    return [_Section(name(r[0]), r[1], r[4], r[5], r[6], r[3]) for r in raw]
