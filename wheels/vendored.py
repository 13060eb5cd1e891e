"""Fetch the libraries in pages of reports: `python -m wheels.vendored`.

They are kept in the repository, minified as their authors publish them, with their licences, so no
build and no page needs the network. This script writes them again. To take another version, change
it here, together with the integrity that ``npm view NAME@VERSION dist.integrity`` prints.
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "neocpu/plan/pages/assets/vendor"


@dataclass(frozen=True, slots=True)
class Library:
    """A package of npm's registry."""

    address: str
    sha512: str  # of the archive, in base 64
    files: Mapping[str, str]  # the name of each file that is kept, by its path in the archive


LIBRARIES: Final = (
    Library(
        "https://registry.npmjs.org/@dagrejs/dagre/-/dagre-3.1.3.tgz",
        "X4aUTwOReZvthaZWOVHqlJ52/ZdhZFEM4+Lh/uR4XooUSLE6p71bcy7MPGzYnNUcNh+nj+i/qJQpCMIdQnSmrg==",
        {"package/dist/dagre.min.js": "dagre.min.js", "package/LICENSE": "dagre.LICENSE"},
    ),
    Library(
        "https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {
            "package/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
            "package/dist/uPlot.min.css": "uPlot.min.css",
            "package/LICENSE": "uPlot.LICENSE",
        },
    ),
)


def fetch(library: Library) -> dict[str, bytes]:
    """Download a library and return its files' contents, by the names under which they are kept."""
    with urllib.request.urlopen(library.address, timeout=60) as answer:
        archive = answer.read()
    found = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != library.sha512:
        raise ValueError(f"{library.address} is another archive: sha512-{found}")
    contents = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for path, name in library.files.items():
            member = files.extractfile(path)
            assert member is not None, path
            contents[name] = member.read()
    return contents


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for library in LIBRARIES:
        for name, content in fetch(library).items():
            (FOLDER / name).write_bytes(content)
            sys.stdout.write(f"{name}: {len(content)} bytes of {library.address}\n")


if __name__ == "__main__":
    main()
