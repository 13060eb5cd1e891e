"""The values of TVM's stable C interface, as they lie in memory."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, Final

import numpy as np

from neocpu.foundation.dtypes import DTYPES

# TVMFFITypeIndex
NONE, INT, BOOL, _FLOAT = 0, 1, 2, 3
RAW_STRING, _SMALL_STRING, _STRING = 8, 11, 65
FUNCTION, TENSOR, _ARRAY = 68, 70, 71
FIRST_OBJECT: Final = 64

HEADER: Final = 24
"""Bytes of a ``TVMFFIObject``: what an object holds lies after them."""

CPU: Final = 1
"""``kDLCPU``."""

BUILTIN: Final = "vm.builtin."
"""How the names of the virtual machine's own functions begin, as instruments get them."""

_DTYPES: Final = {(one.code, one.bits): np.dtype(one.name) for one in DTYPES.values()}
"""Code and bits of DLPack -> numpy's dtype."""


class Value(ctypes.Structure):
    """``TVMFFIAny``: a number, or a pointer to an object."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("length", ctypes.c_uint32),
        ("integer", ctypes.c_int64),
    )


class Bytes(ctypes.Structure):
    """``TVMFFIByteArray``, as an argument: it keeps the bytes alive."""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Sequence(ctypes.Structure):
    """The beginning of ``TVMFFISeqCell``."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64))


class DLTensor(ctypes.Structure):
    """DLPack's description of an array, wherever it lies."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(self.extents[: self.ndim])

    @property
    def address(self) -> int:
        """Where the first element lies."""
        return (self.data or 0) + int(self.byte_offset)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array itself, C-contiguous as TVM's are; valid as long as the tensor."""
        shape = self.shape
        dtype, memory = _layout(shape, self.code, self.bits)
        return np.ndarray(shape, dtype, memory.from_address(self.address))


@functools.lru_cache(maxsize=1024)
def _layout(shape: tuple[int, ...], code: int, bits: int) -> tuple[np.dtype[Any], Any]:
    """Return numpy's dtype of such tensors, and ctypes' type of their memory."""
    dtype = _DTYPES[code, bits]
    return dtype, ctypes.c_char * (math.prod(shape) * dtype.itemsize)


def text_at(address: int) -> str:
    """Read the string that a ``TVMFFIByteArray`` describes."""
    data, size = (ctypes.c_size_t * 2).from_address(address)
    return ctypes.string_at(data, size).decode("utf-8", "replace")


def tensors_of(result: Value) -> list[DLTensor]:
    """Return the tensors of a value that is one, or an array of them."""
    if result.kind == TENSOR:
        return [DLTensor.from_address(result.integer + HEADER)]
    assert result.kind == _ARRAY, f"unexpected value of kind {result.kind}"
    cell = _Sequence.from_address(result.integer + HEADER)
    values = (Value * cell.size).from_address(cell.data) if cell.size else ()
    return [DLTensor.from_address(value.integer + HEADER) for value in values]


def borrowed(value: Value) -> Any:
    """Return a value that TVM passes to a callback."""
    if value.kind in (INT, BOOL):
        return value.integer
    if value.kind == _FLOAT:
        return ctypes.c_double.from_buffer(value, Value.integer.offset).value
    if value.kind == _SMALL_STRING:
        return value.integer.to_bytes(8, "little", signed=True)[: value.length].decode()
    if value.kind == RAW_STRING:
        return ctypes.string_at(value.integer).decode()
    if value.kind == _STRING:
        return text_at(value.integer + HEADER)
    if value.kind == TENSOR:
        return DLTensor.from_address(value.integer + HEADER)
    return None
