"""Tensor data of a request, in JSON or in binary, as arrays that a module takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from neocpu.serving.datatypes import DATATYPES, DTYPES, AnyArray, wire_dtype
from neocpu.serving.errors import RequestError
from neocpu.tensor_spec import TensorSpec

JSON_BYTES: Final = 32
"""What a number takes in JSON at most: 17 digits, signs, exponent, separators."""
JSON_BASE: Final = 1 << 16


def json_bytes_at_most(specs: Sequence[TensorSpec]) -> int:
    """Return how many bytes a request with these inputs has at most, if it is not padded."""
    return JSON_BASE + JSON_BYTES * sum(math.prod(spec.shape) for spec in specs)


def check_declaration(spec: TensorSpec, datatype: object, shape: object) -> None:
    """Check what a request declares of an input against what the model takes.

    Raises
    ------
    RequestError
        If datatype or shape are malformed or differ.
    """
    expected = DATATYPES[spec.dtype]
    if datatype != expected:
        known = isinstance(datatype, str) and datatype in DTYPES
        what = datatype if known else f"unknown datatype {brief(datatype)}"
        raise RequestError(f"input '{spec.name}': the model takes {expected}, got {what}")
    wanted = list(spec.shape)
    if not isinstance(shape, list) or not all(type(extent) is int for extent in shape):
        raise RequestError(
            f"input '{spec.name}': shape must be a list of integers such as {wanted}, "
            f"got {brief(shape)}"
        )
    if shape != wanted:
        raise RequestError(
            f"input '{spec.name}': the model takes shape {wanted}, got {brief(shape)}"
            f"{_hint(wanted, shape)}"
        )


def from_binary(spec: TensorSpec, data: memoryview) -> AnyArray:
    """Return binary tensor data as an array without a copy.

    Parameters
    ----------
    data : memoryview
        Little-endian elements in row-major order, at any alignment.

    Raises
    ------
    RequestError
        If the number of bytes is not that of the tensor, or a boolean is neither 0 nor 1.
    """
    dtype = wire_dtype(spec.dtype)
    size = math.prod(spec.shape) * dtype.itemsize
    if data.nbytes != size:
        raise RequestError(
            f"input '{spec.name}': {DATATYPES[spec.dtype]}{list(spec.shape)} has {size} bytes, "
            f"got {data.nbytes}"
        )
    if dtype.kind == "b" and size and np.frombuffer(data, np.uint8).max() > 1:
        raise RequestError(f"input '{spec.name}': a BOOL is a byte of 0 or 1")
    return np.frombuffer(data, dtype).reshape(spec.shape)


def from_json(spec: TensorSpec, data: object) -> AnyArray:
    """Return the numbers of a JSON list, flat or nested like the shape, as an array.

    Raises
    ------
    RequestError
        If they are not a list, too few or many, ragged, of another kind than the model takes, or
        out of its range.
    """
    if not isinstance(data, list):
        raise RequestError(f"input '{spec.name}': data must be a list, got {brief(data)}")
    dtype = np.dtype(spec.dtype)
    try:
        # The widest of each kind: what is out of range must be found, not wrapped.
        array = np.asarray(data, np.float64 if dtype.kind == "f" and _flat_numbers(data) else None)
        if dtype == np.uint64 and array.dtype.kind == "f":
            # numpy's common type of small and very large integers rounds them.
            array = _integers(np.asarray(data, object))
    except (ValueError, TypeError, OverflowError):
        raise RequestError(
            f"input '{spec.name}': data are not numbers in a flat list, or nested like the shape "
            f"{list(spec.shape)}"
        ) from None
    if array.size != math.prod(spec.shape) or (array.ndim > 1 and array.shape != spec.shape):
        raise RequestError(
            f"input '{spec.name}': the model takes {math.prod(spec.shape)} elements of shape "
            f"{list(spec.shape)}, got {array.size} of shape {brief(list(array.shape))}"
        )
    return _narrow(spec, array, dtype).reshape(spec.shape)


def _flat_numbers(data: Sequence[object]) -> bool:
    # Told its dtype numpy reads a list twice as fast, but would also take strings and booleans.
    return set(map(type, data)) <= {float, int}


def _integers(array: AnyArray) -> AnyArray:
    """Return an array of objects as integers if that is what they are, else unchanged."""
    whole = all(type(one) is int for one in array.flat)
    return array.astype(np.uint64) if whole else array


def _narrow(spec: TensorSpec, array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Convert numbers as JSON has them; refuse those that are of another kind or out of range."""
    takes = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[dtype.kind]
    if array.size == 0:
        return array.astype(dtype)
    if array.dtype.kind not in takes:
        raise RequestError(
            f"input '{spec.name}': data are not all {DATATYPES[spec.dtype]} numbers of its range"
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = limits.min <= int(array.min()) and int(array.max()) <= limits.max
        narrow = array.astype(dtype)
    else:
        with np.errstate(over="ignore"):
            narrow = array.astype(dtype)
        fits = bool(np.isfinite(narrow).all())
    if not fits:
        raise RequestError(
            f"input '{spec.name}': a number is out of the range of {DATATYPES[spec.dtype]}"
        )
    return narrow


def _hint(wanted: Sequence[int], shape: Sequence[int]) -> str:
    if shape[1:] == wanted[1:] and len(shape) == len(wanted):
        return f": it is compiled for batches of {wanted[0]}; send one request for each"
    if shape == wanted[1:]:
        return ": the batch axis is missing"
    return ""


def brief(value: object) -> str:
    """Return a client's value for a message: printable and short whatever it is."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else _compound(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _compound(value: object) -> str:
    if isinstance(value, list):
        # The first elements tell enough, and `ascii` would recurse into all of them.
        inner = ", ".join(
            ascii(one) if isinstance(one, str | int | float) else "..." for one in value[:8]
        )
        return f"[{inner}{', ...' if len(value) > 8 else ''}]"
    return "an object"
