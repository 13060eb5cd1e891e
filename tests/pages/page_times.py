"""The time that a browser takes to show a page, and existing pages drawn anew."""

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from browser import Page

from neocpu.plan.pages.page import page_text
from neocpu.plan.result_pages.parts import result_page

NOTED = """
window.neocpuTimes = {};
new MutationObserver(() => {
  for (const name of ["ready", "drawn"]) {
    if (document.documentElement?.dataset[name]) window.neocpuTimes[name] ??= performance.now();
  }
}).observe(document, { attributes: true, childList: true, subtree: true });
"""
"""A script that notes when a page reports its first part, and all parts."""


@dataclass(frozen=True)
class PageTimes:
    """The size of a page in bytes, and milliseconds from the start of loading.

    - `paint`: the time until something is visible.
    - `interactive`: the time until everything is drawn and can be used.
    """

    name: str
    size: int
    paint: float
    interactive: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.size / 1e3:.0f} kB, first paint {self.paint:.0f} ms, "
            f"interactive {self.interactive:.0f} ms"
        )


def page_times(page: Page, path: Path) -> PageTimes:
    """Open a page and return its times; a page with errors fails."""
    noted = page.ask("Page.addScriptToEvaluateOnNewDocument", source=NOTED)
    page.open(path)
    page.ask("Page.removeScriptToEvaluateOnNewDocument", identifier=noted["identifier"])
    assert page.complaints == [], page.complaints
    paints = "performance.getEntriesByType('paint').map((each) => each.startTime)"
    page.wait(f"{paints}.length")
    times = page.value("window.neocpuTimes")
    return PageTimes(
        path.name, path.stat().st_size, page.value(f"Math.min(...{paints})"), max(times.values())
    )


def redrawn(path: Path) -> str:
    """Return a page of the same data, drawn by today's code."""
    text = path.read_text()
    data: dict[str, Any] = json.loads(_between(text, '<script type="application/json" id="data">'))
    if "sections" not in data:
        fresh: Any = SimpleNamespace(name=data["name"], to_json=lambda: data)
        return page_text(fresh)
    title = html.unescape(_between(text, "<h1>"))
    return result_page(title, [_section(each) for each in data["sections"]])


def _between(text: str, begin: str) -> str:
    found = re.search(f"{re.escape(begin)}(.*?)</", text)
    assert found
    return found[1]


def _section(data: dict[str, Any]) -> Any:
    return SimpleNamespace(to_json=lambda: data)
