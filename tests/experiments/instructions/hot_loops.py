"""The inner loops that do a program's multiply-adds, found in what it executed."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.experiments.instructions.instruction_count import INSTRUCTION_BYTES, Executed, run

TRIPLE: Final = "aarch64-linux-gnu"
VECTOR_ELEMENTS: Final = 4
"""Elements of a whole vector of float32."""

_BACKWARD: Final = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s.*#-(\d+)$")
_MULTIPLY_ADD: Final = re.compile(r"fml[as]\s+v\d+\.(\d)s|fn?m(?:add|sub)\s+s\d+")
_ENCODING: Final = re.compile(r"\t(.*?)\s*// encoding: \[(.*)\]$")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that holds no other: its instructions, the branch back last.

    ``work`` counts multiply-adds of all iterations, in whole vectors.
    """

    body: tuple[str, ...]
    iterations: int
    work: float


def multiply_adds(instruction: str) -> float:
    """Return the float32 multiply-adds of an instruction, in whole vectors of four; 0 of others."""
    found = _MULTIPLY_ADD.match(instruction)
    return int(found.group(1) or 1) / VECTOR_ELEMENTS if found else 0.0


def disassemble(words: Iterable[int]) -> dict[int, str]:
    """Return each instruction in LLVM's syntax; those LLVM does not know are missing."""
    lines = [_bytes(word) for word in sorted(set(words))]
    said = run(
        ["llvm-mc", "--disassemble", f"--triple={TRIPLE}", "--mattr=+all", "--show-encoding"],
        "\n".join(lines),
    )
    found = (_ENCODING.match(line) for line in said.splitlines())
    return {_word(match[2]): match[1].replace("\t", " ") for match in found if match}


def innermost_loops(executed: Sequence[Executed], texts: Mapping[int, str]) -> tuple[Loop, ...]:
    """Return the innermost loops that multiply and add, by address.

    ``texts`` are those of `disassemble`.
    """
    addresses = [instruction.address for instruction in executed]
    spans: dict[tuple[int, int], Loop] = {}
    for last, branch in enumerate(executed):
        if back := _BACKWARD.match(texts.get(branch.word, "")):
            first = bisect_left(addresses, branch.address - int(back[1]))
            if loop := _loop(executed[first : last + 1], texts):
                spans[first, last] = loop
    return tuple(
        loop
        for (first, last), loop in spans.items()
        if not any(first <= f and e <= last and (f, e) != (first, last) for f, e in spans)
    )


def _loop(inside: Sequence[Executed], texts: Mapping[int, str]) -> Loop | None:
    """Return the loop of what is executed between a branch back and its target, if it is one."""
    iterations = inside[-1].times
    work = sum(each.times * multiply_adds(texts.get(each.word, "")) for each in inside)
    # Code that runs more often than the branch is in another loop, or has other branches back.
    if not work or max(each.times for each in inside) > 2 * iterations:
        return None
    # Code that most iterations skip is no part of the loop's steady state.
    body = [each.word for each in inside if 2 * each.times >= iterations]
    if any(word not in texts for word in body):
        return None
    return Loop(tuple(texts[word] for word in body), iterations, work)


def hottest(loops: Iterable[Loop], total: float, share: float) -> tuple[Loop, ...]:
    """Return the fewest loops with ``share`` of ``total`` multiply-adds, or all that have any."""
    chosen: list[Loop] = []
    done = 0.0
    for loop in sorted(loops, key=lambda loop: loop.work, reverse=True):
        if loop.work == 0 or done >= share * total:
            break
        chosen.append(loop)
        done += loop.work
    return tuple(chosen)


def _bytes(word: int) -> str:
    return " ".join(f"0x{byte:02x}" for byte in word.to_bytes(INSTRUCTION_BYTES, "little"))


def _word(encoding: str) -> int:
    return int.from_bytes(bytes(int(byte, 16) for byte in encoding.split(",")), "little")


ITERATIONS: Final = 100
"""Enough that filling the pipelines at the start counts for little."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One iteration of a loop in its steady state, when loads hit the first-level cache.

    Multiply-adds are in whole vectors.
    """

    instructions: int
    multiply_adds: float
    cycles: float


def model(body: Sequence[str], cpu: str) -> Throughput:
    """Return the throughput of a loop, its branch back included, on LLVM's model of ``cpu``."""
    said = run(
        [
            *("llvm-mca", f"--mtriple={TRIPLE}", f"--mcpu={cpu}", "--mattr=+all", "--json"),
            *(f"--iterations={ITERATIONS}", "-"),
        ],
        "\n".join(body) + "\n",
    )
    (region,) = json.loads(said)["CodeRegions"]
    cycles = region["SummaryView"]["TotalCycles"] / ITERATIONS
    return Throughput(len(body), sum(map(multiply_adds, body)), cycles)
