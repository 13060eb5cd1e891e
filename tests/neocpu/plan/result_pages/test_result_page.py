"""Pages of results: they load nothing, spell all numbers, and every part can be read and used."""

import math
import re

import browser
import pytest
from page_sections import parts_in, sections_in

from neocpu.plan.pages import frame
from neocpu.plan.result_pages.parts import (
    ASSETS,
    SCRIPTS,
    Bars,
    Chart,
    Column,
    Facts,
    Line,
    Part,
    Section,
    Table,
    Tile,
    Tiles,
    chosen,
    result_page,
    table_of,
)

HOSTILE = "</script><script>alert(1)</script><!--<b>"


def curve(title, *, log=False):
    values = (3.0, None, 1.0, 2.0)
    lines = (
        Line("tried", values, "dots", values, (4.0, None, 1.5, 2.0)),
        Line("best", (3.0, 3.0, 1.0, 1.0), "step"),
        Line("before", (2.5,) * 4, "limit"),
        Line("mean", values),
    )
    names = ("a", "b", "c", "d")
    return Chart(
        title=title,
        across="tried",
        up="time",
        unit="us",
        along=(1, 2, 3, 4),
        lines=lines,
        names=names,
        log_x=log,
        log_y=log,
    )


COLUMNS = (
    Column("layer", "name"),
    Column("took", "us"),
    Column("why"),
    Column("won", "gain", True),
)
ROWS = (
    *(("conv_10", 900.0, "x", -3.0), ("conv_9", 1500.0, HOSTILE, 0.0), ("conv_2", 40.0, "y", 5.0)),
    *((f"conv_{i}", None, "", None) for i in range(20, 34)),
)
PARTS: tuple[Part, ...] = (
    Tiles((Tile(1234.5, "us", "a run"), Tile(None, "times", "as fast"), Tile(5e6, "bytes", "big"))),
    Facts((("target", HOSTILE),)),
    Table(columns=COLUMNS, rows=ROWS, title="Layers", sort=1),
    Bars("Shares", "share", (("one", 0.25), ("other", 1.0))),
    curve("Curve", log=True),
    *chosen([curve("first"), curve("second")], "layer"),
)


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    sections = [
        Section(f"Part {i}", f"Heading {i}", (part,), "How\n\nWhy") for i, part in enumerate(PARTS)
    ]
    path.write_text(result_page(HOSTILE, sections))
    return path


def test_the_page_loads_nothing_and_is_small(page):
    text = page.read_text()
    assert len(text) < 100_000
    assert "default-src 'none'" in text
    assert HOSTILE not in text
    assert "sourceMappingURL" not in text
    own = (*(f"{name}.js" for name in SCRIPTS), "results.html", "results.css")
    assert not [name for name in own if re.search("https?://", (ASSETS / name).read_text())]
    assert {path.name for path in ASSETS.iterdir()} == set(own)
    assert re.findall(r"https?://[^\s'\"]*", text) == ["https://github.com/leeoniya/uPlot"]
    assert "{{" not in frame.asset(ASSETS / "results.js")


def test_numbers_that_json_lacks_become_empty(tmp_path):
    path = tmp_path / "page.html"
    rows = (("a", math.inf, "", math.nan),)
    path.write_text(result_page("t", [Section("A", "A", (Table(columns=COLUMNS, rows=rows),))]))
    assert parts_in(path, "table")[0]["rows"] == [["a", None, "", None]]


def test_one_chart_needs_no_choice():
    assert chosen([curve("one")], "model") == (curve("one"),)
    assert chosen([], "model") == ()


def test_tables_of_text():
    table = table_of("T", ("model", "ms"), [("a", "1.50")], ["note"])
    assert [column.unit for column in table.columns] == ["name", "figure"]
    assert (table.rows, table.notes) == ((("a", "1.50"),), ("note",))
    rows = [("a", "-", "12x3x8x8 -> 4, 1x1", "wrong"), ("b", "12 of 30", "3x3", "1.5 (1 to 2)")]
    units = [column.unit for column in table_of("T", ("", "", "", ""), rows).columns]
    assert units == ["name", "figure", "text", "figure"]


@browser.NEEDED
def test_in_a_browser(page):
    assert sections_in(page)[0]["title"] == "Heading 0"
    with browser.browser() as shown:
        for width, dark in ((1400, False), (390, True)):
            shown.open(page, width, dark=dark)
            shown.look_well(width)
            tiles = shown.value(
                "[...document.querySelectorAll('.tile b')].map((b) => b.textContent)"
            )
            assert tiles == ["1.23 ms", "\N{EN DASH}", "5.00 MB"]
            hints = "[...document.querySelectorAll('#part-1 > .hint')].map((p) => p.textContent)"
            assert shown.value(hints) == ["How", "Why"]
            rows = "[...document.querySelectorAll('#part-2 tbody tr')]"
            first = f"{rows}.map((row) => row.cells[0].textContent).slice(0, 4)"
            # Empty cells come last in either order, and numbers within names sort as numbers.
            assert shown.value(first)[:3] == ["conv_9", "conv_10", "conv_2"]
            heading = "document.querySelectorAll('#part-2 th button')"
            shown.value(f"{heading}[1].focus()")
            shown.press("Enter")
            assert shown.value(first) == ["conv_2", "conv_10", "conv_9", "conv_20"]
            shown.value(f"{heading}[0].focus()")
            shown.press("Enter")
            assert shown.value(first) == ["conv_2", "conv_9", "conv_10", "conv_20"]
            shown.value("document.querySelector('#part-2 input').focus()")
            for letter in "alert":
                shown.press(letter)
            assert shown.value(f"{rows}.filter((row) => row.clientHeight).length") == 1
            # Choosing a row shows its chart, which arrow keys read.
            title = "document.querySelector('#part-5 .u-title').textContent"
            assert shown.value(title) == "first"
            shown.value("document.querySelectorAll('#part-5 td button')[1].focus()")
            shown.press("Enter")
            assert shown.value(title) == "second"
            shown.value("document.querySelector('#part-5 .chart').focus()")
            shown.press("ArrowRight")
            shown.press("ArrowRight")
            shown.press("ArrowRight")
            legend = "[...document.querySelectorAll('#part-5 .u-value')].map((v) => v.textContent)"
            assert shown.value(legend)[:3] == ["c", "1.0 µs", "1.0 µs"]
            shown.look_well(width)
