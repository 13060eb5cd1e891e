"""Real text, read by PP-OCR with neocpu's modules in place of ONNX Runtime's sessions.

The models, and the code around them, are those of ``rapidocr-onnxruntime``: one finds lines, one
finds those that are upside down, and one reads them. The pictures' sizes decide the shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import neocpu
from tests.packaged.models import folder_of
from tests.zoo.check import difference

PACKAGE, MODULE = "rapidocr-onnxruntime", "rapidocr_onnxruntime"
PARTS = {
    "text_det": ("infer", "ch_PP-OCRv4_det_infer.onnx"),
    "text_cls": ("infer", "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "text_rec": ("session", "ch_PP-OCRv4_rec_infer.onnx"),
}
"""The reader's parts by its names: the attribute with the session, and the model's file."""

LINES = (
    ("The quick brown fox jumps", 34),
    ("over 13 lazy dogs.", 22),
    ("Invoice 2024-0713: 1,299.50 EUR", 26),
    ("CAUTION: wet floor", 44),
    ("neural networks read this", 18),
    ("Flight KL1023, gate B17", 30),
)
"""Text, and its height in pixels."""


def page(turned: bool = False) -> np.ndarray:
    """Return a picture of the lines, (480, 640, 3) bytes; ``turned`` upside down."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (640, 480), (250, 248, 240))
    draw = ImageDraw.Draw(picture)
    top = 24
    for text, size in LINES:
        draw.text((30, top), text, (20, 24, 40), ImageFont.load_default(size))
        top += size + 40
    return np.asarray(picture.rotate(180) if turned else picture)


def reader() -> Any:
    """Return the package's reader, on ONNX Runtime."""
    from rapidocr_onnxruntime import RapidOCR

    return RapidOCR()


@dataclass(slots=True)
class Session:
    """A session of ONNX Runtime, with a neocpu module for each input shape.

    - `differences`: the difference of each output from ONNX Runtime's, relative to its largest
      value.
    """

    path: Path
    theirs: Any
    modules: dict[tuple[int, ...], neocpu.Module] = field(default_factory=dict)
    differences: list[float] = field(default_factory=list)

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return neocpu's outputs."""
        ((name, x),) = feeds.items()
        if x.shape not in self.modules:
            self.modules[x.shape] = self._compiled(name, x.shape)
        ours = list(self.modules[x.shape].run({name: x}).values())
        theirs = self.theirs.run(names, feeds)
        self.differences += map(difference, ours, theirs)
        return ours

    def _compiled(self, name: str, shape: tuple[int, ...]) -> neocpu.Module:
        with neocpu.compile(self.path, shapes={name: shape}, verify=False) as compiled:
            return compiled.module()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)


def replace_sessions(read: Any) -> dict[str, Session]:
    """Replace a reader's sessions by neocpu's modules, and return these by its parts."""
    sessions = {}
    for part, (attribute, file) in PARTS.items():
        inner = getattr(getattr(read, part), attribute)
        path = Path(folder_of(MODULE), "models", file)
        inner.session = sessions[part] = Session(path, inner.session)
    return sessions


def read_pages() -> tuple[list[tuple[list[str], list[str]]], dict[str, Session]]:
    """Return the lines of both pages, ONNX Runtime's and ours, and our sessions by their parts."""
    theirs, ours = reader(), reader()
    sessions = replace_sessions(ours)
    pictures = [page(turned) for turned in (False, True)]
    return [(lines_of(theirs, each), lines_of(ours, each)) for each in pictures], sessions


def lines_of(read: Any, picture: np.ndarray) -> list[str]:
    """Return the lines that a reader finds, from the top."""
    found, _ = read(picture)
    return [text for _, text, _ in found or []]
