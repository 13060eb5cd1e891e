"""Convert tensor data of a request, in JSON or binary, to arrays for a module."""

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
"""The most bytes of a number in JSON: 17 digits, signs, exponent, separators."""
JSON_BASE: Final = 1 << 16
JSON_VALUES: Final = 1 << 16
"""The most values of a request besides its tensors, plus commas and brackets in its strings."""
_TAKES: Final[dict[str, set[type]]] = {"f": {float, int}, "i": {int}, "u": {int}, "b": {bool}}
"""The types that JSON's parser returns for elements, by kind of dtype."""


def json_bytes_at_most(specs: Sequence[TensorSpec]) -> int:
    """Return the most bytes of a request with these inputs that is not padded."""
    return JSON_BASE + JSON_BYTES * sum(math.prod(spec.shape) for spec in specs)


def json_values_at_most(specs: Sequence[TensorSpec]) -> int:
    """Return the most values, nested lists and numbers, of a request with these inputs."""
    sizes = (math.prod(spec.shape[:axes]) for spec in specs for axes in range(len(spec.shape) + 1))
    return JSON_VALUES + sum(sizes)


def check_declaration(spec: TensorSpec, datatype: object, shape: object) -> None:
    """Check the datatype and shape that a request declares for an input."""
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
    """Return binary tensor data, little-endian in row-major order, as an array without a copy."""
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
    """Return the numbers of a JSON list, flat or nested like the shape, as an array."""
    if not isinstance(data, list):
        raise RequestError(f"input '{spec.name}': data must be a list, got {brief(data)}")
    dtype = np.dtype("float32" if spec.dtype == NAME else spec.dtype)
    numbers = _flat(spec, data)
    if not set(map(type, numbers)) <= _TAKES[dtype.kind]:
        raise _not_numbers(spec)
    return _array(spec, numbers, dtype).reshape(spec.shape)


def _flat(spec: TensorSpec, data: list[Any]) -> list[Any]:
    """Return the elements as a flat list, of the tensor's length but with any types."""
    # numpy would allocate a string as long as the longest for each element, however large.
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
        stored = round_to_bits(array) if spec.dtype == NAME else array
        if np.isfinite(from_bits(stored) if spec.dtype == NAME else stored).all():
            return stored
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
    """Return a client's value for a message, always printable and short."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else _compound(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _compound(value: object) -> str:
    if isinstance(value, list):
        # The first elements are enough, and `ascii` would recurse into all of them.
        inner = ", ".join(
            ascii(one) if isinstance(one, str | int | float) else "..." for one in value[:8]
        )
        return f"[{inner}{', ...' if len(value) > 8 else ''}]"
    return "an object"
