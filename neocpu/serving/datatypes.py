"""The datatypes of the Open Inference Protocol, and numpy's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

AnyArray = np.ndarray[Any, Any]

DTYPES: Final = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
DATATYPES: Final = {dtype: datatype for datatype, dtype in DTYPES.items()}
"""Datatype by the name of the numpy dtype."""


def wire_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of binary tensor data, which is little-endian."""
    return np.dtype(dtype).newbyteorder("<")
