"""The element types of tensors, with all their names in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["bool", "int", "uint", "float", "bfloat"]

_CODES: Final[Mapping[Kind, int]] = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


@dataclass(frozen=True, slots=True)
class DType:
    """An element type that inputs, outputs, weights and tensors between kernels may have."""

    name: str  # in numpy and TVM: ``float32``
    kind: Kind
    bits: int
    datatype: str  # in the Open Inference Protocol: ``FP32``

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat")

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def code(self) -> int:
        """``DLDataTypeCode`` of DLPack."""
        return _CODES[self.kind]


def _sized(kind: Kind, letters: str, *widths: int) -> list[DType]:
    return [DType(f"{kind}{bits}", kind, bits, f"{letters}{bits}") for bits in widths]


DTYPES: Final[Mapping[str, DType]] = MappingProxyType(
    {
        dtype.name: dtype
        for dtype in (
            DType("bool", "bool", 8, "BOOL"),
            *_sized("int", "INT", 8, 16, 32, 64),
            *_sized("uint", "UINT", 8, 16, 32, 64),
            *_sized("float", "FP", 16, 32, 64),
            *_sized("bfloat", "BF", 16),
        )
    }
)
"""All element types of artifacts, by name."""


def bytes_of(dtype: str) -> int:
    """Return the bytes of one element of ``dtype``, a key of `DTYPES`."""
    return DTYPES[dtype].bytes
