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
"""The alignment of our own arrays, in bytes: two cache lines, the unit of adjacent-line
prefetching."""


def aligned_empty(
    shape: int | tuple[int, ...], dtype: DTypeLike = np.float32
) -> np.ndarray[Any, Any]:
    """Return an uninitialised array that starts on a multiple of 128 bytes.

    A module reads such an input in place. numpy's own arrays start anywhere, and most are copied.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
        A dtype, or the name of an element type as specifications have it.

    Returns
    -------
    array
        A C-contiguous, writeable array.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = array_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    raw = np.empty(math.prod(extents) * kind.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(extents, kind, raw, -address_of(raw) % ALIGNMENT)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return the address of an array's first element."""
    try:
        # Five times as fast as numpy's own ways, but for writeable C-contiguous arrays only.
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):
        address: int = array.__array_interface__["data"][0]
        return address
