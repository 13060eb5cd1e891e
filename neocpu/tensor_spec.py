"""The name, dtype and shape of one model input or output, and random data for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neocpu.foundation.bfloat16 import BITS, array_dtype, round_to_bits
from neocpu.foundation.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One graph input or output.

    Attributes
    ----------
    name : str
        The ONNX value name.
    dtype : str
        A key of `DTYPES`, such as ``float32``.
    shape : tuple of int
        Static shape, in the ONNX model's own layout (NCHW for images).
    bounded : bool
        Whether the first extent is an upper bound: how many rows an output has is known only after
        a run, as after a NonMaxSuppression.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bounded: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form used in the artifact header."""
        data = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        return {**data, "bounded": True} if self.bounded else data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorSpec:
        """Inverse of `to_json`."""
        return cls(data["name"], data["dtype"], tuple(data["shape"]), data.get("bounded", False))

    def __str__(self) -> str:
        bound = "up to " if self.bounded else ""
        return f"{self.name}: {self.dtype}[{bound}{', '.join(map(str, self.shape))}]"


def group_rows(row_counts: Sequence[int | None]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the outputs whose rows are counted together.

    Parameters
    ----------
    row_counts : sequence of int or None
        Of each output, where the count of its rows is found; None where all rows count.
    """
    groups: dict[int, list[int]] = {}
    for position, count in enumerate(row_counts):
        if count is not None:
            groups.setdefault(count, []).append(position)
    return tuple(map(tuple, groups.values()))


def random_inputs(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs drawn at random: floats from the normal distribution, the rest 0 and 1.

    But for bytes, which are pictures or on a grid, and drawn from all there are: wider integers may
    be indices.
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
