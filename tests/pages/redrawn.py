"""An existing page, drawn by today's scripts with its old measurements."""

import html
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from neocpu.plan.pages.page import page_text
from neocpu.plan.result_pages.parts import result_page


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
