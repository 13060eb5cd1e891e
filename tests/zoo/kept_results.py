"""Results in a file, a line of JSON each, so that a later run continues and repeats none."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
"""A dataclass of numbers, texts and lists of these."""


def kept(path: Path, kind: type[Result]) -> list[Result]:
    """Return the results in a file, which is created if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return [kind(**json.loads(line)) for line in path.read_text().splitlines()]


def keep(path: Path, found: Any) -> None:
    """Append a result."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(found)) + "\n")
