"""The pages that `make pages` writes, in a browser with today's scripts; one of them is kept."""

import re
from pathlib import Path

import browser

from tests.pages.__main__ import NETWORKS, PAGES
from tests.pages.page_times import page_times, redrawn

ROOT = Path(__file__).parents[2]
REPORTS = {f"{name}.html" for name in NETWORKS}
VIEWS = ("flame", "arena", "live", "weights", "plan", "dots", "list", "tiles")
MOST = 3_000_000
"""Bytes of a page."""


def test_documents_link_to_the_one_that_is_kept_and_all_are_small() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(path.read_text() for path in documents)
    linked = set(re.findall(r"\((?:docs/)?pages/([^)#]+)\)", text))
    assert linked == {"resnet50.html"}
    assert (PAGES / "resnet50.html").is_file()
    assert all(path.stat().st_size < MOST for path in PAGES.iterdir())


@browser.NEEDED
def test_every_view_of_large_networks(tmp_path: Path) -> None:
    with browser.browser() as page:
        for name in sorted(REPORTS & {path.name for path in PAGES.iterdir()}):
            (tmp_path / name).write_text(redrawn(PAGES / name))
            took = page_times(page, tmp_path / name)
            assert took.interactive >= took.paint > 0
            page.look_well(1400)
            boxes = page.value("document.querySelectorAll('#graph .node').length")
            assert boxes > 50
            for view in VIEWS:
                assert page.value(f"document.getElementById('{view}').clientHeight") > 10, view
            page.value("document.getElementById('find').focus()")
            for letter in "conv2d_3":
                page.press(letter)
            page.press("Enter")
            chosen = "document.querySelector('#details h3').textContent"
            assert page.value(chosen).startswith("conv2d_3")
            before = page.value(chosen)
            page.value("document.getElementById('graph').focus()")
            page.press("ArrowRight")
            assert page.value(chosen) != before
            assert page.complaints == []
