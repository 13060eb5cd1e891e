"""Tables and numbers for people, on a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from neocpu.bench.results.sample_statistics import Ratio
from neocpu.foundation.plain_text import plain

Item = TypeVar("Item")
Columns: TypeAlias = Mapping[str, Callable[[Item], str]]
"""The cell of an item in each column, by the column's title."""


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table with notes below it."""

    title: str
    # Column titles. All columns but the first have numbers and align to the right.
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()  # notes of one sentence each
    bold: frozenset[tuple[int, int]] = frozenset()  # cells to emphasise: row and column

    @classmethod
    def of(
        cls, title: str, items: Iterable[Item], columns: Columns[Item], notes: Sequence[str] = ()
    ) -> Table:
        """Return a table with a row for each item."""
        rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
        return cls(title, tuple(columns), rows, tuple(notes))

    def markdown(self) -> str:
        """Return the table in Markdown, below a heading of the third level."""
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
    """Return a ratio with its confidence interval."""
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def ms(seconds: float) -> str:
    """Return seconds as a number of milliseconds."""
    return f"{seconds * 1e3:.2f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"
