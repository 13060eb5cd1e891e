"""Arrays that a module need not copy."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from neocpu.foundation.bfloat16 import array_dtype

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ALIGNMENT: Final = 128
"""What our own arrays start on: two cache lines, the unit of adjacent-line prefetching."""


def aligned_empty(
    shape: int | tuple[int, ...], dtype: DTypeLike = np.float32
) -> np.ndarray[Any, Any]:
    """Return an uninitialised array that starts on a multiple of 128 bytes.

    A module reads such an input where it lies; numpy's own arrays start anywhere, and most of
    them are copied.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
        Or the name of an element type, as specifications have it.

    Returns
    -------
    array
        C-contiguous and writeable.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = array_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    raw = np.empty(math.prod(extents) * kind.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(extents, kind, raw, -address_of(raw) % ALIGNMENT)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return where the first element of an array lies."""
    try:
        # A fifth of the work of numpy's own ways, but only for what one may write to in order.
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):
        address: int = array.__array_interface__["data"][0]
        return address
