"""Tensor data of a request, in JSON or in binary, as arrays that a module takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from neocpu.foundation.bfloat16 import NAME, from_bits, round_to_bits
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.serving.datatypes import DATATYPES, AnyArray, wire_dtype
from neocpu.serving.refusals import RequestError

JSON_BYTES: Final = 32
"""What a number takes in JSON at most: 17 digits, signs, exponent, separators."""
JSON_BASE: Final = 1 << 16
JSON_VALUES: Final = 1 << 16
"""Values of a request, and commas and brackets in its strings, beside those of its tensors."""
_TAKES: Final[dict[str, set[type]]] = {"f": {float, int}, "i": {int}, "u": {int}, "b": {bool}}
"""What JSON's parser makes of the elements of each kind of dtype."""


def json_bytes_at_most(specs: Sequence[TensorSpec]) -> int:
    """Return how many bytes a request with these inputs has at most, if it is not padded."""
    return JSON_BASE + JSON_BYTES * sum(math.prod(spec.shape) for spec in specs)


def json_values_at_most(specs: Sequence[TensorSpec]) -> int:
    """Return how many values a request with these inputs has at most: nested lists and numbers."""
    sizes = (math.prod(spec.shape[:axes]) for spec in specs for axes in range(len(spec.shape) + 1))
    return JSON_VALUES + sum(sizes)


def check_declaration(spec: TensorSpec, datatype: object, shape: object) -> None:
    """Check what a request declares of an input against what the model takes.

    Raises
    ------
    RequestError
        Datatype or shape are malformed or differ.
    """
    expected = DATATYPES[spec.dtype]
    if datatype != expected:
        known = isinstance(datatype, str) and datatype in DATATYPES.values()
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
            f"{_hint(spec, shape)}"
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
        The number of bytes is not that of the tensor, or a boolean is neither 0 nor 1.
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
        The values are not a list, too few or many, ragged, of another kind than the model takes, or
        out of its range.
    """
    if not isinstance(data, list):
        raise RequestError(f"input '{spec.name}': data must be a list, got {brief(data)}")
    dtype = np.dtype("float32" if spec.dtype == NAME else spec.dtype)
    numbers = _flat(spec, data)
    if not set(map(type, numbers)) <= _TAKES[dtype.kind]:
        raise _not_numbers(spec)
    return _array(spec, numbers, dtype).reshape(spec.shape)


def _flat(spec: TensorSpec, data: list[Any]) -> list[Any]:
    """Return the elements in a row; as many as the tensor has, each of any kind."""
    # Not left to numpy, which makes room for as many strings as there are elements, each as long
    # as the longest: a small request could have any amount of memory.
    if data and isinstance(data[0], list):
        level = [data]
        for extent in spec.shape:
            if not all(type(one) is list and len(one) == extent for one in level):
                raise _not_numbers(spec)
            level = list(chain.from_iterable(level))
        return level
    size = math.prod(spec.shape)
    if len(data) != size:
        raise RequestError(
            f"input '{spec.name}': the model takes {size} elements of shape {list(spec.shape)}, "
            f"got {len(data)}"
        )
    return data


def _not_numbers(spec: TensorSpec) -> RequestError:
    return RequestError(
        f"input '{spec.name}': data are not {DATATYPES[spec.dtype]} numbers in a flat list, or "
        f"nested like the shape {list(spec.shape)}"
    )


def _array(spec: TensorSpec, numbers: list[Any], dtype: np.dtype[Any]) -> AnyArray:
    """Convert numbers of the right kind; refuse those that are out of range."""
    try:
        if dtype.kind != "f":
            return np.array(numbers, dtype)
        with np.errstate(over="ignore"):
            array = np.array(numbers, np.float64).astype(dtype)
        held = round_to_bits(array) if spec.dtype == NAME else array
        if np.isfinite(from_bits(held) if spec.dtype == NAME else held).all():
            return held
    except OverflowError:
        pass
    raise RequestError(
        f"input '{spec.name}': a number is out of the range of {DATATYPES[spec.dtype]}"
    )


def _hint(spec: TensorSpec, shape: Sequence[int]) -> str:
    wanted = list(spec.shape)
    if shape[1:] == wanted[1:] and len(shape) == len(wanted):
        if spec.bounded:
            return ": all inputs have as many rows as the first"
        return (
            f": it is compiled for batches of {wanted[0]}; send one request for each, or serve it "
            "with --max-batch"
        )
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
