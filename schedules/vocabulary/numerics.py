"""Numerics: the element types of an operator's tensors.

A convolution's data, weights, sums of products and output have types of their own, and integers
stand for real numbers by scales and zero points. These are operands; whether all channels share one
scale, and whether there is a zero point, changes the code and belongs to the workload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, TypeAlias, get_args

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.foundation.json_codec import OMIT_DEFAULT, JsonObject, fields_to_json

Granularity: TypeAlias = Literal["tensor", "channel"]
Role: TypeAlias = Literal["data", "weights", "output"]

INT16_SUMS: Final = (2, 4, 8)
"""The numbers of uint8 by int8 products whose sum may be known to fit 16 bits: x86 adds up the
first two or last two products of groups of four channels, in 1, 2 or 4 consecutive groups.
"""


class UnknownTypeError(ValueError):
    """The name of an element type that this version does not have, but a later one may."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The mapping ``real = scale * (stored - zero_point)``, by `granularity` with a scale and zero
    point for all elements or each (output) channel; zero points are 0 if `symmetric`.
    """

    granularity: Granularity
    symmetric: bool

    def __post_init__(self) -> None:
        if self.granularity not in get_args(Granularity) or not isinstance(self.symmetric, bool):
            raise ValueError(f"not a quantisation: {self!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """The types, keys of `DTYPES`, of an operator's data, weights, sums of products and output.

    `quantised` is the quantisation, by role, of those whose integers stand for real numbers.
    `int16_sums` is the number of products whose sum fits 16 bits with any data, one of
    `INT16_SUMS`; 0 if the weights are not known to be small enough.
    """

    data: str
    weights: str
    sum: str
    output: str
    quantised: tuple[tuple[Role, Quantisation], ...] = field(default=(), metadata=OMIT_DEFAULT)
    int16_sums: int = field(default=0, metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        for name in (self.data, self.weights, self.sum, self.output):
            if not isinstance(name, str):
                raise ValueError(f"impossible numerics: {self!r}")
            if name not in DTYPES:
                raise UnknownTypeError(f"unknown element type {name!r}")
        roles = [role for role, _ in self.quantised]
        known = len(set(roles)) == len(roles) and set(roles) <= set(get_args(Role))
        if not known or not all(DTYPES[getattr(self, role)].is_integer for role in roles):
            raise ValueError(f"impossible numerics: {self!r}")
        bytewise = (self.data, self.weights) == ("uint8", "int8")
        if self.int16_sums not in ((0, *INT16_SUMS) if bytewise else (0,)):
            raise ValueError(f"impossible numerics: {self!r}")
        # Equal numerics compare equal, whatever the order of their arguments.
        object.__setattr__(self, "quantised", tuple(sorted(self.quantised, key=lambda q: q[0])))

    @classmethod
    @cache
    def uniform(cls, dtype: str) -> Numerics:
        """Return the numerics of unquantised tensors that all have ``dtype``."""
        return cls(data=dtype, weights=dtype, sum=dtype, output=dtype)

    @property
    def is_uniform(self) -> bool:
        """Whether all tensors have one element type and none is quantised."""
        return self == Numerics.uniform(self.data)

    @property
    def computes_in_float32(self) -> bool:
        """Whether products and sums are of float32, even of stored bytes, which add up exactly
        below 2^24; data may be bfloat16, too, and then the output may be.
        """
        stored = {self.data, self.output} <= {"float32", "uint8"}
        stored |= self.data == "bfloat16" and self.output in ("bfloat16", "float32")
        return stored and self.weights == self.sum == "float32"

    @property
    def reads_float32(self) -> bool:
        """Whether data are also of float32; only the output may be stored as bytes."""
        return self.computes_in_float32 and self.data == "float32"

    @property
    def group(self) -> int:
        """The number of products that an instruction adds to a sum: elements of data in 32 bits."""
        return 1 if self.computes_in_float32 else 4 // bytes_of(self.data)

    @property
    def kind(self) -> str:
        """The suffix of the names of kernels that read narrower numbers, such as `` of uint8``."""
        narrow = self.weights if self.reads_float32 else self.data
        return "" if narrow == "float32" else f" of {narrow}"

    def to_json(self) -> JsonObject:
        """Return ``{"dtype": …}`` if one type says everything, otherwise ``{"numerics": {…}}``."""
        if self.is_uniform:
            return {"dtype": self.data}
        found = fields_to_json(self)
        if self.quantised:
            found["quantised"] = {role: fields_to_json(each) for role, each in self.quantised}
        return {"numerics": found}

    @classmethod
    def take_from(cls, fields: JsonObject) -> Numerics:
        """Take the numerics out of JSON ``fields``; ValueError, KeyError or TypeError if none."""
        if "dtype" in fields:
            return cls.uniform(fields.pop("dtype"))
        given = fields.pop("numerics")
        if not isinstance(given, dict):
            raise ValueError(f"not numerics: {given!r}")
        data = dict(given)
        scales = data.pop("quantised", {})
        if not isinstance(scales, dict):
            raise ValueError(f"not numerics: {given!r}")
        found = cls(**data, quantised=tuple((r, Quantisation(**scales[r])) for r in scales))
        if found.to_json() != {"numerics": given}:  # one way to write each
            raise ValueError(f"not numerics: {given!r}")
        return found

    def __str__(self) -> str:
        if self.is_uniform:
            return self.data
        first = f"{self.sum}" if not self.int16_sums else f"{self.int16_sums}:int16>{self.sum}"
        return f"{self.data}*{self.weights}>{first}>{self.output}"


FLOAT32 = Numerics.uniform("float32")
BFLOAT16_PRODUCTS: Final = Numerics(
    data="bfloat16", weights="bfloat16", sum="float32", output="float32"
)
"""Both factors are rounded to bfloat16, and products are added up in float32."""
