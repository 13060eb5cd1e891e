"""Pages of results, and their parts. Figures are numbers, with a unit to write them in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import json_number
from neocpu.plan.pages import frame

Unit: TypeAlias = Literal[
    "text", "name", "figure", "us", "gain", "bytes", "share", "count", "number", "times", "error"
]
"""The way in which a page writes a value: ``name`` is text that identifies a row, ``figure`` text
that is a number already, ``us`` microseconds, ``gain`` microseconds with a sign, ``times`` a ratio,
and ``error`` a ratio that is written with its power of ten."""

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class Tile:
    value: Cell
    unit: Unit
    text: str


@dataclass(frozen=True, slots=True)
class Tiles:
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    unit: Unit = "text"
    optional: bool = False  # whether narrow screens leave it out


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that can be sorted and searched."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]  # a cell for each column; None is empty
    title: str = ""
    sort: int | None = None  # first sorted by this column; None: as they come
    down: bool = True  # whether the largest comes first at first
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart of named quantities of one unit."""

    title: str
    unit: Unit
    bars: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    values: tuple[float | None, ...]  # a value at each place along the chart
    look: Literal["line", "step", "dots", "limit"] = "line"  # limit: not to pass
    low: tuple[float | None, ...] = ()  # ends of spreads, if any
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series over one axis."""

    title: str
    across: str
    up: str
    unit: Unit  # unit of the values
    along: tuple[float, ...]  # places on the horizontal axis, ascending
    lines: tuple[Line, ...]
    names: tuple[str, ...] = ()  # names of the places; empty where their numbers suffice
    log_x: bool = False  # leaves out values that are not positive
    log_y: bool = False
    most: float | None = None  # end of the vertical axis; None shows all values


@dataclass(frozen=True, slots=True)
class Choice:
    """A table with a chart for each row; the chart of the chosen row is shown."""

    table: Table
    charts: tuple[Chart, ...]


Part: TypeAlias = Tiles | Facts | Table | Bars | Chart | Choice
KINDS: Final[Mapping[type[Part], str]] = {
    Tiles: "tiles",
    Facts: "facts",
    Table: "table",
    Bars: "bars",
    Chart: "chart",
    Choice: "choice",
}
"""Names of the parts in the scripts."""


@dataclass(frozen=True, slots=True)
class Section:
    """Parts below a heading."""

    word: str  # text of its link at the top of the page
    title: str
    parts: tuple[Part, ...]
    hint: str = ""  # explanation of a sentence or two, or an account of its making in paragraphs

    def to_json(self) -> JsonObject:
        return {
            "word": self.word,
            "title": self.title,
            "hint": self.hint,
            "parts": [{"kind": KINDS[type(part)], **_plain(asdict(part))} for part in self.parts],
        }


def _plain(value: Any) -> Any:
    """Return nested values with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return json_number(value) if isinstance(value, float) else value


def algorithm(template: str) -> str:
    """Return the name of a template on pages: ``conv2d_direct`` is ``direct``."""
    return template.removeprefix("conv2d_").replace("_", " ")


def chosen(charts: Sequence[Chart], what: str) -> tuple[Part, ...]:
    """Return charts to choose among by their titles; a single chart needs no choice."""
    if len(charts) < 2:
        return tuple(charts)
    names = tuple((chart.title,) for chart in charts)
    return (Choice(Table(columns=(Column(what, "name"),), rows=names), tuple(charts)),)


def table_of(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> Table:
    """Return a table of text: its first column names the rows, others have figures or words."""

    def unit(column: int) -> Unit:
        cells = [row[column] for row in rows]
        # Text that begins like 1x3x224x224 is a workload.
        figures = any(re.match(r"[-+~]?\d+(?!\d*x\d)", cell) for cell in cells)
        return "name" if not column else "figure" if figures or not any(cells) else "text"

    columns = (Column(name, unit(i)) for i, name in enumerate(header))
    return Table(
        columns=tuple(columns), rows=tuple(map(tuple, rows)), title=title, notes=tuple(notes)
    )


ASSETS: Final = Path(__file__).with_name("assets")
SCRIPTS: Final = ("figures", "tables", "charts", "results")  # each after those that it uses


def result_page(title: str, sections: Sequence[Section]) -> str:
    """Return a page of sections, which loads nothing; all texts are text and not HTML."""
    shared = frame.ASSETS
    style = (shared / "vendor" / "uPlot.min.css", shared / "page.css", ASSETS / "results.css")
    return frame.framed(
        ASSETS / "results.html",
        title,
        {"sections": [section.to_json() for section in sections]},
        (*frame.SHARED, *(ASSETS / f"{name}.js" for name in SCRIPTS)),
        ("uPlot",),
        style="".join(map(frame.asset, style)),
        plots=frame.asset(shared / "vendor" / "uPlot.iife.min.js"),
    )
