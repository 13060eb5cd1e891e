"""Tables and numbers for people, on a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from neocpu.bench.results.sample_statistics import Ratio
from neocpu.foundation.plain_text import plain

Item = TypeVar("Item")
Columns: TypeAlias = Mapping[str, Callable[[Item], str]]  # cells by the column's title


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    header: tuple[str, ...]  # all columns but the first have numbers, aligned to the right
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()  # notes of one sentence each
    bold: frozenset[tuple[int, int]] = frozenset()  # cells to emphasise: row and column

    @classmethod
    def of(
        cls, title: str, items: Iterable[Item], columns: Columns[Item], notes: Sequence[str] = ()
    ) -> Table:
        rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
        return cls(title, tuple(columns), rows, tuple(notes))

    def markdown(self) -> str:
        lines = [
            f"### {plain(self.title)}",
            "",
            _markdown_row(self.header),
            _markdown_row(("---", *["---:"] * (len(self.header) - 1))),
        ]
        for number, row in enumerate(self.rows):
            cells = [
                f"**{cell}**" if (number, column) in self.bold else cell
                for column, cell in enumerate(row)
            ]
            lines.append(_markdown_row(cells))
        if self.notes:
            lines += ["", *(f"- {plain(note)}" for note in self.notes)]
        return "\n".join(lines) + "\n"


def interval(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def ms(seconds: float) -> str:
    """Return seconds as a number of milliseconds."""
    return f"{seconds * 1e3:.2f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"
