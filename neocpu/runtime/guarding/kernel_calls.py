"""Calls of kernels as the library makes them: ``interception.h``, ``kernel_table.h`` in ctypes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any


class Tensor(Structure):
    """DLPack's description of an array (``DLTensor``), here always on the CPU and in C order."""

    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("rank", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("extents", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.extents[: self.rank])

    @property
    def bytes(self) -> int:
        """The bytes of its elements; 0 of a tensor without data, whose shape alone is read."""
        return math.prod(self.shape) * self.bits // 8 if self.data else 0


class Value(Structure):
    """An argument of a kernel, here always a tensor."""

    _fields_ = (("kind", c_int32), ("padding", c_uint32), ("tensor", POINTER(Tensor)))


Function = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Value), c_int32, POINTER(Value))


class Kernel(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("function", Function),
        ("sizes", POINTER(c_uint64)),
        ("types", POINTER(c_uint16)),
        ("launches", POINTER(c_uint32)),
        ("count", c_uint32),
        ("results", c_uint32),
        ("launch_count", c_uint32),
    )

    def tensors(self, arguments: Any) -> Sequence[Tensor]:
        """Return the tensors among a call's arguments."""
        return [value.tensor.contents for value in arguments[: self.count]]

    def call(self, arguments: Any) -> int:
        """Call the kernel; return 0 unless it fails."""
        return int(self.function(None, arguments, self.count, Value()))


Call = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Kernel), POINTER(Value))
# (device_type, device_id, bytes, dtype_code, dtype_bits)
Allocate = ctypes.CFUNCTYPE(c_void_p, c_int, c_int, c_uint64, c_int, c_int)
# (device_type, device_id, address)
Release = ctypes.CFUNCTYPE(c_int, c_int, c_int, c_void_p)


class Interception(Structure):
    _fields_ = (("call", Call), ("data", c_void_p), ("allocate", Allocate), ("release", Release))
