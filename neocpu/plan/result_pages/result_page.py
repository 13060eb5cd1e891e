"""A page of results as one file of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from neocpu.plan.pages import frame
from neocpu.plan.result_pages.parts import Section

ASSETS: Final = Path(__file__).with_name("assets")
SCRIPTS: Final = ("figures", "tables", "charts", "results")
"""Our own scripts, each after those that it uses."""


def result_page(title: str, sections: Sequence[Section]) -> str:
    """Return a page of sections, which loads nothing.

    title: title of the page, as text and not HTML; so are all texts of the sections.
    """
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
