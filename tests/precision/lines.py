"""Pictures of lines of text for a recogniser: upright, and cut out close to the letters.

The texts are English words, dates, times and sums of money, in fonts from packages, on slightly
uneven paper, a little tilted and noisy: sharp, or as photographed from afar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

_PROSE: Final = Path(__file__).parents[2] / "LICENSE"
_STYLES: Final = re.compile(r"-(Regular|Bold|Italic|It|Semibold)\.ttf$")
ROWS: Final = 48
"""The height that recognisers read; smaller print is enlarged to it."""
_DRAWN: Final = 64
"""The size of letters in pixels, before the line is scaled to its height."""


@dataclass(frozen=True, slots=True)
class Writer:
    """An artist of lines; a photograph's have at least ``rows`` rows of pixels."""

    fonts: tuple[Path, ...]
    words: tuple[str, ...]
    rng: np.random.Generator
    rows: int = ROWS

    @classmethod
    def of(cls, folder: Path, seed: int, rows: int = ROWS) -> Writer:
        """Return a writer with the fonts of a folder, and the words of the project's licence."""
        fonts = sorted(path for path in folder.rglob("*.ttf") if _STYLES.search(path.name))
        if not fonts:
            raise FileNotFoundError("no fonts; say `pip download` of the font-* packages, too")
        words = sorted(set(re.findall(r"\b[A-Za-z]{3,9}\b", _PROSE.read_text())))
        return cls(tuple(fonts), tuple(words), np.random.default_rng(seed), rows)

    def line(self, width: int, height: int) -> tuple[Image.Image, str]:
        """Return a line no wider than ``width``, and its text."""
        while True:
            text = self._text()
            image = self._drawn(text)
            wide = round(image.width * height / image.height)
            if wide <= width:
                return image.resize((wide, height), Image.Resampling.BILINEAR), text

    def _text(self) -> str:
        rng, word = self.rng, str(self.rng.choice(self.words))
        number = int(rng.integers(1, 10000))
        return (
            f"{word} {rng.choice(self.words)}",
            f"{word} {number}",
            f"{word} {number / 100:.2f}",
            f"{word.capitalize()} {rng.choice(self.words)}",
            f"{rng.integers(1, 29):02}/{rng.integers(1, 13):02}/{rng.integers(1990, 2030)}",
            f"{rng.integers(0, 24)}:{rng.integers(0, 60):02} {word}",
            word.upper(),
        )[int(rng.integers(7))]

    def _drawn(self, text: str) -> Image.Image:
        rng = self.rng
        font = ImageFont.truetype(self.fonts[int(rng.integers(len(self.fonts)))], _DRAWN)
        box = tuple(map(int, font.getbbox(text)))
        size = box[2] - box[0] + 4 * _DRAWN, box[3] - box[1] + 4 * _DRAWN
        paper, ink = int(rng.integers(180, 256)), int(rng.integers(0, 90))
        colour = paper, paper, int(paper * rng.uniform(0.85, 1))
        image = Image.new("RGB", size, colour)
        place = 2 * _DRAWN - box[0], 2 * _DRAWN - box[1]
        ImageDraw.Draw(image).text(place, text, fill=(ink, ink // 2, ink), font=font)
        image = image.rotate(rng.uniform(-1.5, 1.5), Image.Resampling.BICUBIC, fillcolor=colour)
        # How much paper is cut off on each side: all but a margin.
        cut = [2 * _DRAWN - int(each) for each in rng.integers(_DRAWN // 16, _DRAWN // 4, 4)]
        image = image.crop((cut[0], cut[1], size[0] - cut[2], size[1] - cut[3]))
        noise = rng.normal(0, rng.uniform(0, 12), (image.height, image.width, 3))
        pixels = np.clip(np.asarray(image, np.float32) + noise, 0, 255).astype(np.uint8)
        small = int(rng.integers(self.rows, ROWS + 1))
        wide = max(round(image.width * small / image.height), 1)
        return Image.fromarray(pixels).resize((wide, small), Image.Resampling.BICUBIC)
