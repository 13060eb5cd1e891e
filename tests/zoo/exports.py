"""The files of the zoo: models, and results that a later run does not compute again.

Models of the architectures are exported a few at a time, by another environment's PyTorch. Results
are a line of JSON each.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tests.zoo.architectures import Architecture

EXPORT_SECONDS = 300
AT_A_TIME = 6
"""Architectures that one process exports: PyTorch takes seconds to import, and models are large."""


def _exported(
    python: str, exporter: str, architectures: list[Architecture], folder: Path
) -> dict[str, str]:
    """Export some architectures; return the message for each."""
    words = [f"{each.name}:{'x'.join(map(str, each.shape))}" for each in architectures]
    command = [python, str(Path(__file__).parent / "export.py"), str(folder), exporter, *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=EXPORT_SECONDS * len(words), cwd=folder
        )
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode()
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def exports(
    python: str, exporter: str, architectures: list[Architecture], folder: Path | None = None
) -> Iterator[tuple[str, Path | None, str]]:
    """Yield the name, the file, and the reason if there is no file.

    Files stay in ``folder``, and existing ones are not exported again; without a folder each file
    lasts until the next one.
    """
    for first in range(0, len(architectures), AT_A_TIME):
        some = architectures[first : first + AT_A_TIME]
        with tempfile.TemporaryDirectory(prefix="neocpu-zoo-") as name:
            place = Path(name) if folder is None else folder
            paths = {each.name: place / f"{each.name}.{exporter}.onnx" for each in some}
            left = [each for each in some if not paths[each.name].exists()]
            said = _exported(python, exporter, left, Path(name)) if left else {}
            for architecture, path in paths.items():
                if said.get(architecture) == "ok" and folder is not None:
                    _move(Path(name) / path.name, path)
                if path.exists():
                    yield architecture, path, ""
                else:
                    why = said.get(architecture, "the exporter died or did not end")
                    yield architecture, None, why
                if folder is None:
                    path.unlink(missing_ok=True)


def _move(file: Path, to: Path) -> None:
    """Move an export; a separate file of weights moves first."""
    to.parent.mkdir(parents=True, exist_ok=True)
    for each in sorted(file.parent.glob(f"{file.name}*"), reverse=True):
        shutil.move(each, to.parent / each.name)


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
