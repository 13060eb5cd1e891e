"""What pages of results are made of: figures are numbers, with a unit to write them in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from neocpu.foundation.units import json_number

Unit: TypeAlias = Literal[
    "text", "name", "figure", "us", "gain", "bytes", "share", "count", "number", "times", "error"
]
"""How a page writes a value: ``name`` is text that identifies a row, ``figure`` text that is a
number already, ``us`` microseconds, ``gain`` such with a sign, ``times`` a ratio, ``error`` one
that is written with its power of ten."""

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that says most, and what it is."""

    value: Cell
    unit: Unit
    text: str


@dataclass(frozen=True, slots=True)
class Tiles:
    """Figures side by side."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names, and what is to be said of each."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    optional : bool
        Whether narrow screens leave it out.
    """

    name: str
    unit: Unit = "text"
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that can be sorted and searched.

    Attributes
    ----------
    columns : tuple of Column
    rows : tuple of tuple
        A cell for each column; None is empty.
    title : str
    sort : int or None
        The column that they are sorted by at first; None leaves them as they come.
    down : bool
        Whether the largest comes first then.
    notes : tuple of str
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    sort: int | None = None
    down: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Named quantities of one unit, as long as they are large."""

    title: str
    unit: Unit
    bars: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of a chart.

    Attributes
    ----------
    values : tuple of float or None
        One at each place along the chart.
    look : str
        ``line``, ``step`` (a value holds until the next one), ``dots``, or ``limit`` (a thin line
        of what should not be passed).
    low, high : tuple of float or None
        Ends of the spread of each value; none of a series without.
    """

    label: str
    values: tuple[float | None, ...]
    look: Literal["line", "step", "dots", "limit"] = "line"
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series over one axis.

    Attributes
    ----------
    along : tuple of float
        Places on the horizontal axis, ascending.
    names : tuple of str
        What is at each; none where the place says it.
    unit : str
        Of the values.
    log_x, log_y : bool
        Whether an axis is logarithmic; values that are not positive are left out then.
    most : float or None
        Where the vertical axis ends; None has all of it.
    """

    title: str
    across: str
    up: str
    unit: Unit
    along: tuple[float, ...]
    lines: tuple[Line, ...]
    names: tuple[str, ...] = ()
    log_x: bool = False
    log_y: bool = False
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A table each of whose rows has a chart, which is shown when it is chosen."""

    table: Table
    charts: tuple[Chart, ...]


Part: TypeAlias = Tiles | Facts | Table | Bars | Chart | Choice
KINDS: Final[Mapping[type[Part], str]] = {
    **{Tiles: "tiles", Facts: "facts", Table: "table"},
    **{Bars: "bars", Chart: "chart", Choice: "choice"},
}
"""What the scripts call each."""


@dataclass(frozen=True, slots=True)
class Section:
    """Parts below a heading.

    Attributes
    ----------
    word : str
        What leads to it, at the top of the page.
    hint : str
        How to read it, in a sentence or two; or how it was made, in paragraphs.
    """

    word: str
    title: str
    parts: tuple[Part, ...]
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "word": self.word,
            "title": self.title,
            "hint": self.hint,
            "parts": [{"kind": KINDS[type(part)], **_plain(asdict(part))} for part in self.parts],
        }


def _plain(value: Any) -> Any:
    """Return nested values with null for what JSON cannot spell."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return json_number(value) if isinstance(value, float) else value


def algorithm(template: str) -> str:
    """Return how pages call a template: ``conv2d_direct`` is ``direct``."""
    return template.removeprefix("conv2d_").replace("_", " ")


def chosen(charts: Sequence[Chart], what: str) -> tuple[Part, ...]:
    """Return charts to choose among by their titles; one alone as it is.

    Parameters
    ----------
    what : str
        What each is of.
    """
    if len(charts) < 2:
        return tuple(charts)
    names = tuple((chart.title,) for chart in charts)
    return (Choice(Table(columns=(Column(what, "name"),), rows=names), tuple(charts)),)


def table_of(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> Table:
    """Return a table of text: its first column names the rows, others hold figures or words."""

    def unit(column: int) -> Unit:
        cells = [row[column] for row in rows]
        # What begins as 1x3x224x224 does is a workload.
        figures = any(re.match(r"[-+~]?\d+(?!\d*x\d)", cell) for cell in cells)
        return "name" if not column else "figure" if figures or not any(cells) else "text"

    columns = (Column(name, unit(i)) for i, name in enumerate(header))
    return Table(
        columns=tuple(columns), rows=tuple(map(tuple, rows)), title=title, notes=tuple(notes)
    )
