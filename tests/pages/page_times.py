"""The time that a browser takes to show a page."""

from dataclasses import dataclass
from pathlib import Path

from browser import Page

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
