"""The functions of an artifact as text that does not depend on where they were linked."""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEADER = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_PLACE = re.compile(r"\b([0-9a-f]+) <([^+>]*)(?:\+0x([0-9a-f]+))?>")
_PADDING = re.compile(r"nop|xchg\s+%ax,%ax|int3")
_AARCH64 = 183
_NOP, _RET = 0xD503201F, 0xD65F03C0  # of AArch64
_PROGRAM = "__tvm_ffi__library_bin"
_ENTRY = "__tvm_ffi_main"  # a second name of a function that is alone in its group
_NAMELESS = "(nameless)"  # parallel loops, and LLVM's conversions of float16 once a group


def functions(artifact: Path) -> dict[str, str]:
    """Return a digest of every function of a shared library, by name, and of all constants.

    The virtual machine's program among these is no function, and is left out. The grouping of
    functions decides the places and copies of constants and of nameless code, which are not
    compared. Nameless code is named by its digest, each piece up to a return or a jump.
    """
    data = artifact.read_bytes()
    machine = struct.unpack_from("<H", data, 18)[0]
    lines = _words(data) if machine == _AARCH64 else _instructions(artifact)
    found: dict[str, object] = {}
    for (name, _), body in sorted(lines.items()):
        while body and _is_padding(body[-1]):  # as the next function's place wants it
            body.pop()
        if name == _NAMELESS:
            for piece in _pieces(body):
                found[f"nameless-{_digest(piece)[:8]}"] = piece
        elif name != _ENTRY:
            # Local ones of several objects may share a name.
            found[name] = (found.get(name), body)
    words = sorted({word for (word,) in struct.iter_unpack("<I", _constants(data))})
    return {name: _digest(body) for name, body in {**found, "(constants)": words}.items()}


def _digest(body: object) -> str:
    return hashlib.sha256(repr(body).encode()).hexdigest()


def _pieces(body: list[str | int]) -> Iterator[list[str | int]]:
    """Yield pieces of code that end with a return or a jump."""
    piece: list[str | int] = []
    for line in filter(lambda line: not _is_padding(line), body):
        piece.append(line)
        if line == _RET or str(line).startswith(("ret", "jmp")):
            yield piece
            piece = []
    if piece:
        yield piece


def _is_padding(line: str | int) -> bool:
    return line in (0, _NOP) or bool(_PADDING.search(str(line)))


def changes(old: dict[str, str], new: dict[str, str]) -> str:
    """Return the functions that are gone, new or changed, in words; "" if there are none."""
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


def _instructions(artifact: Path) -> dict[tuple[str, int], list[str | int]]:
    """Return the disassembly of an x86 library; jumps within a function keep their distance."""
    functions = [symbol for symbol in _symbols(artifact.read_bytes()) if symbol.kind == 2]
    ends = {symbol.address: symbol.address + symbol.size for symbol in functions if symbol.size}
    sizes = {symbol.name: symbol.size for symbol in functions if symbol.size}

    found: dict[tuple[str, int], list[str | int]] = {}
    for line in _disassembly(artifact, "-d", "--no-show-raw-insn", "-j", ".text").splitlines():
        if header := _HEADER.match(line):
            start, name = int(header[1], 16), header[2]
        elif ":\t" in line:
            place, text = line.split(":\t", 1)
            at, text = int(place, 16), text.split("#", 1)[0].rstrip()
            inside = at < ends.get(start, sys.maxsize)
            if match := _PLACE.search(text):
                target, callee, offset = int(match[1], 16), match[2], int(match[3] or "0", 16)
                if offset < sizes.get(callee, sys.maxsize):
                    to = f"{callee}+{offset}"
                else:  # of nameless code: how far, or where its group has put what is called
                    to = _NAMELESS if inside or text.startswith("call") else f"{target - at:+}"
                text = _PLACE.sub(f"<{to}>", text)
            text = re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text)
            found.setdefault((name if inside else _NAMELESS, start), []).append(text)
    return found


def _words(data: bytes) -> dict[tuple[str, int], list[str | int]]:
    """Return the instructions of an AArch64 library without immediates that are addresses.

    Instructions without an effect are left out too, because their number depends on the start of
    a loop; the distance of a branch is counted without them.
    """
    found: dict[tuple[str, int], list[str | int]] = {}
    for name, start, size in _functions(data):
        pages: set[int] = set()  # registers that hold the page of an address
        body = found.setdefault((name, start), [])
        words = struct.unpack_from(f"<{size // 4}I", data, start)
        before = [0, *itertools.accumulate(word != _NOP for word in words)]
        for at, word in enumerate(words):
            base, result = word >> 5 & 31, word & 31
            is_page = word & 0x1F000000 == 0x10000000  # ADR, ADRP
            adds = word & 0x7F800000 == 0x11000000  # ADD of an immediate
            loads = word & 0x3B000000 == 0x39000000  # LDR, STR with an offset
            if is_page:
                word &= ~0xE0FFFFE0  # linkers replace one by the other, depending on the address
            elif (branch := _branch(word)) is not None:
                word, distance = branch
                inside = 0 <= at + distance < len(words)
                # It may be part of other nameless code.
                calls = name == _NAMELESS and word & 0xFC000000 == 0x94000000
                body.append(before[at + distance] - before[at] if inside and not calls else 0)
            elif base in pages and (adds or loads):
                word &= ~0x3FFC00
            if is_page:
                pages.add(result)
            elif _writes(word):
                pages.discard(result)
            if word != _NOP:
                body.append(word)
    return found


def _writes(word: int) -> bool:
    """Whether an instruction may write the general register that its last bits name."""
    if word & 0x0A000000 == 0x08000000:  # of memory: what loads, but not to a vector
        return bool(word >> 22 & 1) and not word >> 26 & 1
    return word & 0x0E000000 != 0x0E000000  # of vectors


def _branch(word: int) -> tuple[int, int] | None:
    """Return a branch without its distance, and the distance in instructions; else None."""
    for mask, kind, shift, bits in (
        (0x7C000000, 0x14000000, 0, 26),  # B, BL
        (0xFF000010, 0x54000000, 5, 19),  # B.cond
        (0x7E000000, 0x34000000, 5, 19),  # CBZ, CBNZ
        (0x7E000000, 0x36000000, 5, 14),  # TBZ, TBNZ
    ):
        if word & mask == kind:
            field, sign = (1 << bits) - 1, 1 << bits - 1
            return word & ~(field << shift), ((word >> shift & field) ^ sign) - sign
    return None


def _functions(data: bytes) -> list[tuple[str, int, int]]:
    """Return name, offset in the file and size of each symbol's code, and of nameless code."""
    text = next(section for section in _sections(data) if section.name == ".text")
    begins: dict[int, str] = {}
    ends: dict[int, int] = {}
    for symbol in _symbols(data):
        if symbol.kind == 2 and text.address <= symbol.address < text.address + text.size:  # FUNC
            at = symbol.address - text.address
            begins[at] = min(symbol.name, begins.get(at, symbol.name))
            if symbol.size:
                ends[at] = at + symbol.size
    starts = sorted({0, *begins, *ends.values()} - {text.size})
    return [
        (begins.get(start, _NAMELESS), text.offset + start, end - start)
        for start, end in zip(starts, [*starts[1:], text.size], strict=True)
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
    return b"".join(piece + bytes(-len(piece) % 4) for piece in sorted(found))


class _Symbol(NamedTuple):
    name: str
    kind: int
    address: int
    size: int


def _symbols(data: bytes) -> list[_Symbol]:
    """Return the entries of the symbol table."""
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
