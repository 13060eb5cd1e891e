"""The making of every page: one file of HTML from a template, data and scripts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

ASSETS: Final = Path(__file__).with_name("assets")  # styles, elements and libraries of all pages

SHARED: Final = tuple(ASSETS / f"{name}.js" for name in ("elements", "headings", "plot"))
"""Scripts that the others use, on pages of all kinds."""


def framed(
    template: Path,
    title: str,
    data: Mapping[str, Any],
    scripts: Iterable[Path],
    libraries: Iterable[str],
    **parts: str,
) -> str:
    """Return a page as HTML, which loads nothing.

    template: HTML with ``{{name}}`` where a part belongs.
    data: JSON that the scripts draw.
    parts: texts for the other names of the template.
    Raises ValueError: a number is infinite or NaN, which no browser reads.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    every = {
        "title": html.escape(title),
        # In a script, "<" could end it.
        "data": text.replace("<", "\\u003c"),
        "scripts": "\n".join(map(asset, scripts)),
        "licences": "".join(map(_licence, libraries)),
        **parts,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: every[found[1]], asset(template))


def asset(path: Path) -> str:
    """Return a file without the address of its sources, which a browser would ask for."""
    return re.sub(r"(?m)^//# sourceMappingURL=.*$", "", path.read_text())


def _licence(library: str) -> str:
    return html.escape(f"{library}: {asset(ASSETS / 'vendor' / f'{library}.LICENSE')}\n")
