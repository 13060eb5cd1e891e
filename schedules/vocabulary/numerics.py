"""Numerics: what the tensors of an operator are made of.

A convolution reads data and weights, adds up their products and stores an output. Each of the four
has an element type of its own, and integers stand for real numbers by scales and zero points. What
these are is a matter of operands, like weights; whether there is one for all channels, and whether
there is a zero point at all, decides about the code, and so belongs to the workload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.foundation.json_codec import OMIT_DEFAULT, fields_to_json

Granularity: TypeAlias = Literal["tensor", "channel"]
Role: TypeAlias = Literal["data", "weights", "output"]


INT16_SUMS: Final = (2, 4, 8)
"""How many products of uint8 with int8 may be known to add up to 16 bits at most.

Input channels lie in groups of four, of which x86 multiplies the first two and the last two and
adds each pair up in 16 bits. Of so many products they are the same halves of 1, 2 or 4 groups that
follow each other, beginning with a multiple of as many.
"""


class UnknownTypeError(ValueError):
    """The name of an element type that this version does not know, but perhaps a later one."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How integers stand for real numbers: ``real = scale * (stored - zero_point)``.

    Attributes
    ----------
    granularity : {"tensor", "channel"}
        Whether one scale and zero point is for all elements, or each channel has its own: the
        output channels of weights.
    symmetric : bool
        Whether every zero point is 0.
    """

    granularity: Granularity
    symmetric: bool

    def __post_init__(self) -> None:
        if self.granularity not in get_args(Granularity) or not isinstance(self.symmetric, bool):
            raise ValueError(f"not a quantisation: {self!r}")


@dataclass(frozen=True, slots=True)
class Numerics:
    """Element types of an operator's tensors.

    Attributes
    ----------
    data, weights, sum, output : str
        A key of `DTYPES` each: of what is read, of what products are added up in, and of what is
        stored.
    quantised : tuple of (str, Quantisation)
        By role, of those of data, weights and output whose integers stand for real numbers.
    int16_sums : int
        Products whose sum fits 16 bits, whatever the data: see `INT16_SUMS`. 0 if the weights are
        not known to be so small.
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
        # Equal ones compare equal, whatever the order they were given in.
        object.__setattr__(self, "quantised", tuple(sorted(self.quantised, key=lambda q: q[0])))

    @classmethod
    def uniform(cls, dtype: str) -> Numerics:
        """Numerics of an operator whose tensors are all of ``dtype``, and mean what they hold."""
        return cls(dtype, dtype, dtype, dtype)

    @property
    def is_uniform(self) -> bool:
        """Whether one element type says everything."""
        return self == Numerics.uniform(self.data)

    @property
    def computes_in_float32(self) -> bool:
        """Whether products and sums are of float32, be data and output stored as bytes or not.

        Bytes times weights that are integers add up exactly there, below 2^24. Data may be bfloat16
        too, and the output where they are.
        """
        stored = {self.data, self.output} <= {"float32", "uint8"}
        stored |= self.data == "bfloat16" and self.output in ("bfloat16", "float32")
        return stored and self.weights == self.sum == "float32"

    @property
    def reads_float32(self) -> bool:
        """Whether data are of float32 too: output alone may be stored as bytes."""
        return self.computes_in_float32 and self.data == "float32"

    @property
    def group(self) -> int:
        """Products that an instruction adds to each sum: of what a word of 32 bits has of data."""
        return 1 if self.computes_in_float32 else 4 // bytes_of(self.data)

    @property
    def kind(self) -> str:
        """What the kinds of kernels that read narrower numbers end with: `` of uint8``, say."""
        narrow = self.weights if self.reads_float32 else self.data
        return "" if narrow == "float32" else f" of {narrow}"

    def to_json(self) -> dict[str, Any]:
        """JSON form: ``{"dtype": …}`` of uniform ones, else ``{"numerics": {…}}``."""
        if self.is_uniform:
            return {"dtype": self.data}
        found = fields_to_json(self)
        if self.quantised:
            found["quantised"] = {role: fields_to_json(each) for role, each in self.quantised}
        return {"numerics": found}

    @classmethod
    def take_from(cls, fields: dict[str, Any]) -> Numerics:
        """Take the JSON form out of ``fields``, a workload's.

        Raises
        ------
        ValueError, KeyError, TypeError
            If they hold none.
        """
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
BFLOAT16_PRODUCTS: Final = Numerics("bfloat16", "bfloat16", "float32", "float32")
"""Both factors are rounded to bfloat16, and products are added up in float32."""
