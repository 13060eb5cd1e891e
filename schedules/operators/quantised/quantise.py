"""Quantisation and its inverse in TE, as ONNX defines them, for values that no kernel fuses."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from neocpu.schedules.tir.vector_terms import to_even


def quantise(data: te.Tensor, scale: Any, zero: Any, axis: int, dtype: str) -> te.Tensor:
    """Return ``saturate(round(data / scale) + zero)``, halves to even.

    - `data`: a tensor of float32.
    - `scale`, `zero`: one number for all elements, or a vector along ``axis``.
    - `dtype`: ``int8`` or ``uint8``.
    """
    limits = np.iinfo(dtype)
    low, high = (tirx.const(float(limit), "float32") for limit in (limits.min, limits.max))

    def element(*place: Any) -> Any:
        scaled = data[place] / _along(scale, place[axis : axis + 1])
        whole = to_even(scaled)
        moved = whole + _along(zero, place[axis : axis + 1]).astype("float32")
        return tirx.max(tirx.min(moved, high), low).astype(dtype)

    return te.compute(data.shape, element, name="quantise")


def dequantise(data: te.Tensor, scale: Any, zero: Any, axis: int) -> te.Tensor:
    """Return ``(data - zero) * scale`` in float32: see `quantise`."""

    def element(*place: Any) -> Any:
        index = place[axis : axis + 1]
        # The difference of two 8-bit numbers is exact in float32.
        centred = data[place].astype("float32") - _along(zero, index).astype("float32")
        return centred * _along(scale, index)

    return te.compute(data.shape, element, name="dequantise")


def _along(values: Any, index: Any) -> Any:
    """Return the element of a vector, or the single number."""
    return values[index] if len(values.shape) else values[()]
