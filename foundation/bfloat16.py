"""bfloat16 (float32 without its last 16 bits) in numpy, which knows it only by an extension."""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

NAME: Final = "bfloat16"
BITS: Final = np.dtype(np.uint16)
"""The dtype of bfloat16 numbers' bits, where the extension (ml_dtypes) is not installed."""


def array_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's dtype for an element type; for bfloat16, ml_dtypes' or else `BITS`."""
    if name != NAME:
        return np.dtype(name)
    try:
        importlib.import_module("ml_dtypes")  # it registers the dtype; no dependency of ours
        return np.dtype(NAME)
    except (ImportError, TypeError):
        return BITS


def holds(dtype: np.dtype[Any], name: str) -> bool:
    """Whether arrays of a dtype, in any byte order, have elements of a type, or bfloat16's bits."""
    native = dtype.newbyteorder("=")
    return native == array_dtype(name) or (name == NAME and native == BITS)


def round_to_bits(numbers: NDArray[Any]) -> NDArray[np.uint16]:
    """Return the bits of float32 numbers rounded to bfloat16, half to even. NaN stays NaN."""
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    rounded = np.where(np.isnan(numbers), (bits >> 16) | 0x40, rounded)
    return rounded.astype(np.uint16)


def from_bits(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Return bfloat16 numbers, or numbers given as their bits, as float32."""
    found: NDArray[np.float32] = (bits.view(BITS).astype(np.uint32) << 16).view(np.float32)
    return found
