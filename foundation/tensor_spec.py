"""The name, dtype and shape of a model's input or output, and random data for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from neocpu.foundation.bfloat16 import BITS, array_dtype, round_to_bits
from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.json_codec import OMIT_DEFAULT, JsonObject, fields_to_json
from neocpu.foundation.option_words import FITS

LAYOUTS: Final = ("nhwc", "nchw")
COLOURS: Final = ("rgb", "bgr", "gray")

LETTERBOX: Final = 114
"""The grey around a letterboxed picture, with which detectors are trained."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The form of pictures of bytes in an input."""

    layout: str
    colours: str
    fit: str

    @classmethod
    def from_json(cls, data: Any, dtype: str, shape: tuple[int, ...]) -> Picture | None:
        """Inverse of `to_json`; None for any other form, which a later version may write."""
        if not isinstance(data, dict) or dtype != "uint8" or len(shape) != 4:
            return None
        known = {"layout": LAYOUTS, "colours": COLOURS, "fit": FITS}
        if any(data.get(key) not in words for key, words in known.items()):
            return None
        found = cls(data["layout"], data["colours"], data["fit"])
        channels = shape[1] if found.layout == "nchw" else shape[3]
        return found if channels == (1 if found.colours == "gray" else 3) else None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One graph input or output.

    `dtype`: a key of `DTYPES`. `shape`: in the ONNX model's own layout (NCHW for images).
    `bounded`: whether the first extent is an upper bound, so that the number of rows is known only
    after a run, as with a NonMaxSuppression. `picture`: for an input that is compiled for pictures.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bounded: bool = field(default=False, metadata=OMIT_DEFAULT)
    picture: Picture | None = field(default=None, metadata=OMIT_DEFAULT)

    def to_json(self) -> JsonObject:
        return fields_to_json(self)

    @classmethod
    def from_json(cls, data: JsonObject) -> TensorSpec:
        shape, bounded = tuple(data["shape"]), data.get("bounded", False)
        picture = Picture.from_json(data.get("picture"), data["dtype"], shape)
        return cls(data["name"], data["dtype"], shape, bounded, picture)

    def with_rows(self, rows: int) -> TensorSpec:
        """Return the specification with another first extent."""
        return replace(self, shape=(rows, *self.shape[1:]))

    def __str__(self) -> str:
        bound = "up to " if self.bounded else ""
        return f"{self.name}: {self.dtype}[{bound}{', '.join(map(str, self.shape))}]"


def shapes_text(specs: Sequence[TensorSpec]) -> str:
    """Return names and shapes of tensors as text, such as ``x[1,3,224,224] y[up to 8,5]``."""
    return " ".join(
        f"{spec.name}[{'up to ' if spec.bounded else ''}{','.join(map(str, spec.shape))}]"
        for spec in specs
    )


def group_rows(row_counts: Sequence[int | None]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the outputs that share a row count, in groups."""
    groups: dict[int, list[int]] = {}
    for position, count in enumerate(row_counts):
        if count is not None:
            groups.setdefault(count, []).append(position)
    return tuple(map(tuple, groups.values()))


def random_inputs(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return random inputs: floats from the normal distribution, bytes from all values, else 0, 1.

    Bytes are pictures or quantised numbers, but wider integers may be indices.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for spec in specs:
        kind = array_dtype(spec.dtype)
        if not DTYPES[spec.dtype].is_float:
            arrays[spec.name] = _integers(rng, kind, spec.shape).astype(kind)
            continue
        drawn = rng.standard_normal(spec.shape)
        arrays[spec.name] = round_to_bits(drawn) if kind == BITS else drawn.astype(kind)
    return arrays


def _integers(
    rng: np.random.Generator, kind: np.dtype[Any], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    whole = np.iinfo(kind) if kind.name in ("uint8", "int8") else None
    low, high = (0, 1) if whole is None else (whole.min, whole.max)
    return rng.integers(low, high, shape, endpoint=True)
