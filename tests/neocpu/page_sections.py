"""The contents of a page of results, for tests that compare it with JSON."""

import json
import re
from pathlib import Path
from typing import Any


def sections_in(page: Path) -> list[dict[str, Any]]:
    """Return the sections that a page carries."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found
    return json.loads(found[1])["sections"]


def parts_in(page: Path, kind: str) -> list[dict[str, Any]]:
    """Return all parts of a kind, in order; tables and charts to choose among, too."""
    found = [part for section in sections_in(page) for part in section["parts"]]
    for choice in [part for part in found if part["kind"] == "choice"]:
        found.append({"kind": "table", **choice["table"]})
        found += [{"kind": "chart", **chart} for chart in choice["charts"]]
    return [part for part in found if part["kind"] == kind]
