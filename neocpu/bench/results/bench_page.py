"""What a view of ``neocpu bench`` found, as a page for a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence

from neocpu.bench.results.document import Run, facts
from neocpu.bench.results.table import Table
from neocpu.plan.result_pages.parts import Facts, Part, Section, table_of
from neocpu.plan.result_pages.result_page import result_page


def bench_page(
    title: str, run: Run, method: str, tables: Sequence[Table], pictures: Sequence[Part]
) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    method : str
        How it was measured: Markdown with emphasis, code and paragraphs.
    tables : sequence of Table
        What the command prints.
    pictures : sequence of Part
        Charts of the same figures; none of views that have none.
    """
    figures = tuple(table_of(one.title, one.header, one.rows, one.notes) for one in tables)
    where = Facts((("Command", run.command), *facts(run)))
    return result_page(
        title,
        (
            *([Section("Curves", "Curves", tuple(pictures))] if pictures else []),
            Section("Figures", "Figures", figures, "Choose a heading to sort."),
            Section("Method", "How it was measured", (where,), re.sub(r"[*`]", "", method)),
        ),
    )
