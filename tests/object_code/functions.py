"""The functions of an artifact as text that does not depend on where they were linked."""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
from pathlib import Path

_HEADER = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_AARCH64 = 183


def functions(artifact: Path) -> dict[str, str]:
    """Return a digest of every function of a shared library, by name."""
    machine = struct.unpack_from("<H", artifact.read_bytes(), 18)[0]
    lines = _words(artifact) if machine == _AARCH64 else _instructions(artifact)
    return {name: hashlib.sha256(repr(body).encode()).hexdigest() for name, body in lines.items()}


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


def _instructions(artifact: Path) -> dict[str, list[str]]:
    """Return the disassembly of an x86 library; jumps within a function keep their distance."""
    found: dict[str, list[str]] = {}
    for line in _disassembly(artifact, "-d", "--no-show-raw-insn", "-j", ".text").splitlines():
        if header := _HEADER.match(line):
            body = found.setdefault(header[1], [])
        elif ":\t" in line:
            text = line.split(":\t", 1)[1].split("#", 1)[0].rstrip()
            text = re.sub(r"\b[0-9a-f]+ <([^+>]*)(\+0x[0-9a-f]+)?>", r"<\1\2>", text)
            body.append(re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text))
    return found


def _words(artifact: Path) -> dict[str, list[int]]:
    """Return the instructions of an AArch64 library without immediates that are addresses."""
    data = artifact.read_bytes()
    found = {}
    for name, start, size in _symbols(data):
        pages: set[int] = set()
        body = []
        for at in range(0, size, 4):
            word = struct.unpack_from("<I", data, start + at)[0]
            base, result = word >> 5 & 31, word & 31
            if word & 0x1F000000 == 0x10000000:  # ADR, ADRP
                word &= ~0x60FFFFE0
                pages.add(result)
            elif word & 0x7C000000 == 0x14000000:  # B, BL
                distance = (word & 0x3FFFFFF ^ 0x2000000) - 0x2000000
                word = word if 0 <= at + 4 * distance < size else word & ~0x3FFFFFF
            elif base in pages and word & 0x7F800000 == 0x11000000:  # ADD of an immediate
                word &= ~0x3FFC00
            elif base in pages and word & 0x3B000000 == 0x39000000:  # LDR, STR with an offset
                word &= ~0x3FFC00
            body.append(word)
        found[name] = body
    return found


def _symbols(data: bytes) -> list[tuple[str, int, int]]:
    """Return name, offset in the file and size of every function of a 64-bit ELF file."""
    table, entry, count = (
        struct.unpack_from("<Q", data, 40)[0],
        *struct.unpack_from("<HH", data, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + entry * i) for i in range(count)]
    found = []
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, info, _, index, value, length = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 == 2 and 0 < index < count:  # STT_FUNC
                home = sections[index]
                text = data[names + name : data.index(b"\0", names + name)].decode()
                found.append((text, value - home[3] + home[4], length))
    return found
