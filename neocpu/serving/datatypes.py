"""The datatypes of the Open Inference Protocol, and those of numpy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from neocpu.foundation.bfloat16 import NAME
from neocpu.foundation.dtypes import DTYPES

AnyArray = np.ndarray[Any, Any]

DATATYPES: Final = {dtype.name: dtype.datatype for dtype in DTYPES.values()}
"""The protocol's datatypes by the names of element types."""


def wire_dtype(dtype: str) -> np.dtype[Any]:
    """Return the little-endian dtype of binary tensor data; for bfloat16, that of its bits."""
    return np.dtype("uint16" if dtype == NAME else dtype).newbyteorder("<")
