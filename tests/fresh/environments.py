"""The machines that `make fresh` can make: Debian's suites, and other packages of users."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: Each suite with its Python; the first is the default.
SUITES: Final = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}


@dataclass(frozen=True)
class Environment:
    """Packages beside neocpu. ``with_NAME.py`` uses both.

    - `packages`: pip's names, installed after `make demo`.
    - `debian`: Debian's packages that these need and do not bring.
    """

    packages: tuple[str, ...]
    debian: tuple[str, ...] = ()


#: The libraries that OpenCV's wheel is linked to.
OPENCV: Final = ("libgl1", "libglib2.0-0")
ENVIRONMENTS: Final = {
    "torch": Environment(("torch", "torchvision", "onnxscript", "ultralytics", "timm"), OPENCV),
    "tensorflow": Environment(("tensorflow", "tf2onnx")),
    "opencv": Environment(("opencv-python",), OPENCV),
}


def choose(variable: str, name: str, known: Iterable[str]) -> str:
    """Return a name, or exit with one line if it is not known."""
    if name not in known:
        sys.exit(f"fresh: {variable}={name} is not known: choose of {', '.join(known)}")
    return name
