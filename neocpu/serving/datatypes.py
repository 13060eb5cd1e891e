"""The datatypes of the Open Inference Protocol, and numpy's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from neocpu.foundation.bfloat16 import NAME
from neocpu.foundation.dtypes import DTYPES

AnyArray = np.ndarray[Any, Any]

DATATYPES: Final = {dtype.name: dtype.datatype for dtype in DTYPES.values()}
"""Datatype by the name of the element type."""


def wire_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of binary tensor data, which is little-endian; of bfloat16, of its bits."""
    return np.dtype("uint16" if dtype == NAME else dtype).newbyteorder("<")
