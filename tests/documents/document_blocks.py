"""The commands and snippets of a Markdown document, with their positions.

Tests take the commands for readers from the document itself, so that neither can change without
the other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"^ *```(\w*)$")
#: Code within a sentence. It may go on in the next line, as sentences do.
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_INDENT: Final = "    "
_PROMPT: Final = "$ "


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Code that a document shows.

    - `document`: the name of the document, relative to the root of the checkout.
    - `line`: the number of its first line of code, from 1.
    - `language`: the word after a fence; empty if there is none.
    - `text`: the code, without indentation, prompts and fences.
    """

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        first = self.text.splitlines()[0].strip() if self.text.strip() else ""
        return f"{self.document}:{self.line} {first}"


def blocks(document: str) -> list[Block]:
    """Return the fenced and the indented blocks of a document, in their order."""
    lines = (ROOT / document).read_text().splitlines()
    found: list[Block] = []
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence:
            end = next(at for at in range(number + 1, len(lines)) if _FENCE.match(lines[at]))
            found.append(_block(document, number + 2, fence[1], lines[number + 1 : end]))
            number = end + 1
        elif lines[number].startswith(_INDENT) and not lines[number - 1].strip():
            end = number
            while end < len(lines) and lines[end].startswith(_INDENT):
                end += 1
            found.append(_block(document, number + 1, "", lines[number:end]))
            number = end
        else:
            number += 1
    return found


def _block(document: str, line: int, language: str, lines: list[str]) -> Block:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    code = [line[margin:].removeprefix(_PROMPT) for line in lines]
    return Block(document=document, line=line, language=language, text="\n".join(code))


def spans(document: str) -> Iterator[Block]:
    """Return the code within sentences and tables of a document, in its order."""
    text = _without_blocks(document)
    for match in _SPAN.finditer(text):
        line = text[: match.start()].count("\n") + 1
        code = " ".join(match[1].split())
        yield Block(document=document, line=line, language="", text=code)


def commands(document: str, program: str = "neocpu") -> list[Block]:
    """Return the commands within sentences: ``program`` with a subcommand and what it works on.

    A sentence that merely names a command or its option (``neocpu explain --json``) shows nothing
    to run.
    """
    return [span for span in spans(document) if re.match(rf"{program} [\w-]+ [^-\s]", span.text)]


def options(document: str) -> list[Block]:
    """Return the options in the first column of a document's tables."""
    found = []
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        cell = re.match(r"\| (`--.*?) \|", line.replace("\\|", "\0"))
        for code in _SPAN.findall(cell[1].replace("\0", "|")) if cell else ():
            found.append(Block(document=document, line=number, language="", text=code))
    return found


def _without_blocks(document: str) -> str:
    """Return a document's text with its blocks as empty lines, so that numbers of lines stay."""
    lines = (ROOT / document).read_text().splitlines()
    for block in blocks(document):
        for at in range(block.line - 1, block.line - 1 + block.text.count("\n") + 1):
            lines[at] = ""
    return "\n".join("" if _FENCE.match(line) else line for line in lines)


def run_as_reader(
    commands: str,
    folder: Path,
    variables: Mapping[str, str] | None = None,
    inherited: Mapping[str, str] = os.environ,
) -> subprocess.CompletedProcess[str]:
    """Run commands by a shell that stops at the first failure, with this environment's programs."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", commands],
        cwd=folder,
        env={**inherited, "PATH": programs, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
