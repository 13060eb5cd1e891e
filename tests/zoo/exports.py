"""ONNX models of the zoo's architectures, a few at a time, by another environment's PyTorch."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.zoo.architectures import Architecture

EXPORT_SECONDS = 300
AT_A_TIME = 6
"""Architectures that one process exports: PyTorch takes seconds to import, and models are large."""


def _exported(
    python: str, exporter: str, architectures: list[Architecture], folder: Path
) -> dict[str, str]:
    """Export some; return what was said of each."""
    words = [f"{each.name}:{'x'.join(map(str, each.shape))}" for each in architectures]
    command = [python, str(Path(__file__).parent / "export.py"), str(folder), exporter, *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=EXPORT_SECONDS * len(words),
            cwd=folder,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode()
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def exports(
    python: str, exporter: str, architectures: list[Architecture]
) -> Iterator[tuple[str, Path | None, str]]:
    """Yield the name, the file and, where there is none, why. A file lasts until the next one."""
    for first in range(0, len(architectures), AT_A_TIME):
        some = architectures[first : first + AT_A_TIME]
        with tempfile.TemporaryDirectory(prefix="neocpu-zoo-") as name:
            folder = Path(name)
            said = _exported(python, exporter, some, folder)
            for each in some:
                path = folder / f"{each.name}.{exporter}.onnx"
                why = said.get(each.name, "the exporter died or did not end")
                if why == "ok":
                    yield each.name, path, ""
                    path.unlink()
                else:
                    yield each.name, None, why
