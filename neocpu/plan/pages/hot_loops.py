"""The loops in which an artifact's kernels spend their time, as a disassembler writes them.

A loop is the code from the target of a backward jump to that jump. The hot loop of a kernel is its
innermost loop with the most multiply-adds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.foundation.files import replacing
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.runtime.artifact import Variant

TOOLS: Final = ("objdump", "llvm-objdump")  # Debian's ``objdump`` knows only this host
INSTALL: Final = (
    "Install binutils (objdump), or llvm (llvm-objdump) for other machines' code, and write the "
    "page again to see here the loop in which a kernel spends its time."
)
MAX_LINES: Final = 60
_TIMEOUT: Final = 60.0  # seconds that a disassembler may take
_FUNCTION: Final = re.compile(r"[0-9a-f]+ <(.+)>:$")
_INSTRUCTION: Final = re.compile(r"\s*([0-9a-f]+):\s+(\S.*)$")
_TARGET: Final = re.compile(r"\b(?:0x)?([0-9a-f]+) <[^>]*>")
_JUMP: Final = re.compile(r"(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\s")
_MULTIPLY_ADD: Final = re.compile(
    r"(?:\{\w+\} )?(?:vfn?m(?:add|sub)\d|v?mul[ps][sd]|vpdp|vdpbf16|v?pmadd|fn?m(?:l[as]|add|sub)\b"
    r"|[su]dot|usdot|sudot|bfdot|bfmmla|[su]ml[as]l|mla)"
)
_BODY: Final = "_compute_"  # TVM appends it to a kernel's name for the function that has its loops


@dataclass(frozen=True, slots=True)
class HotLoop:
    instructions: int  # number of instructions of one pass
    multiply_adds: int  # number of those that multiply, and mostly add; most are of vectors
    lines: tuple[str, ...]  # the first `MAX_LINES`; jumps within the loop name lines, from 1
    multiplying: tuple[int, ...]  # positions of the lines that multiply, from 0


def hot_loops(path: Path, variant: Variant) -> dict[str, HotLoop]:
    """Return hot loops by kernel, if a tool reads the code. Raises ArtifactError: no space."""
    with TemporaryFolder("code") as folder:
        code = Path(folder, "code.so")
        # The weights' place stays empty and is not removed: tools find sections by their offsets.
        rest = variant.code_bytes + variant.weight_bytes
        new = replacing(code, variant.code_bytes, lasting=False, option="TMPDIR")
        with open(path, "rb") as artifact, new as file:
            for begin, end in ((0, variant.code_bytes), (rest, variant.size)):
                artifact.seek(variant.offset + begin)
                file.seek(begin)
                file.write(artifact.read(end - begin))
        for tool in filter(shutil.which, TOOLS):
            if found := dict(_loops(_disassembly(tool, str(code)))):
                return found
    return {}


def _disassembly(tool: str, path: str) -> list[str]:
    intel = ["-M", "intel"]
    for options in (intel, []):  # only x86 has Intel's syntax
        command = [tool, "-d", "--no-show-raw-insn", "-j", ".text", *options, path]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
        except (OSError, UnicodeError, subprocess.TimeoutExpired):
            return []
        if done.returncode == 0:
            return done.stdout.splitlines()
    return []


def _loops(lines: Iterable[str]) -> Iterator[tuple[str, HotLoop]]:
    name, code = "", list[tuple[int, str]]()
    for line in (*lines, "0 <>:"):
        if function := _FUNCTION.match(line):
            if name.endswith(_BODY) and (loop := hot_loop(code)):
                yield name.removesuffix(_BODY), loop
            name, code = function[1], []
        elif instruction := _INSTRUCTION.match(line):
            text = re.split(r"\s*(?:#|//|;)", instruction[2], maxsplit=1)[0]
            code.append((int(instruction[1], 16), " ".join(text.split())))


def hot_loop(code: Sequence[tuple[int, str]]) -> HotLoop | None:
    """Return a function's hot loop, if it has one; `code`: each instruction's address and text."""
    places = {address: place for place, (address, _) in enumerate(code)}
    targets = {
        place: places.get(int(found[1], 16), len(code))
        for place, (_, text) in enumerate(code)
        if _JUMP.match(text) and (found := _TARGET.search(text))
    }
    loops = [(first, last) for last, first in targets.items() if first <= last]
    # An outer loop ends after an inner one, which begins no sooner.
    ends = sorted(loops, key=lambda loop: (loop[1], -loop[0]))
    inner = [
        (first, last)
        for i, (first, last) in enumerate(ends)
        if not any(first <= other for other, _ in ends[:i])
    ]
    if not inner:
        return None
    multiplies = [bool(_MULTIPLY_ADD.match(text)) for _, text in code]
    counts = {(a, b): sum(multiplies[a : b + 1]) for a, b in inner}
    first, last = max(inner, key=lambda loop: (counts[loop], loop[1] - loop[0]))
    shown = range(first, min(last + 1, first + MAX_LINES))

    def line(place: int) -> str:
        text = code[place][1]
        if place not in targets:
            return text
        inside = first <= targets[place] <= last
        return _TARGET.sub(f"line {targets[place] - first + 1}" if inside else "out", text)

    bold = tuple(place - first for place in shown if multiplies[place])
    return HotLoop(last + 1 - first, counts[first, last], tuple(map(line, shown)), bold)
