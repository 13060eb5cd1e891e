"""Keys of workloads, and the workloads that only move feature maps."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.json_codec import (
    OMIT_DEFAULT,
    JsonFormError,
    JsonObject,
    fields_from_json,
    fields_to_json,
)
from neocpu.schedules.vocabulary.frames import MAX_EXTENT
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.numerics import UnknownTypeError


class Keyed:
    """Base class of workloads, which are fully described by their JSON form."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_json(self) -> JsonObject:
        """Return the JSON form: ``kind`` and the fields; those of numerics are among them."""
        found: JsonObject = {"kind": self.kind}
        for name, value in fields_to_json(self).items():
            found |= value if name == "numerics" else {name: value}
        return found

    def key(self) -> str:
        """Return the content hash that names this workload, in the tuning database too."""
        return content_hash(self.to_json())


def content_hash(data: Any) -> str:
    """Return a 16-digit hash of JSON-serialisable ``data``, independent of key order."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def is_dtype(name: Any) -> bool:
    """Return whether a JSON value is an element type; UnknownTypeError if it is another name."""
    if isinstance(name, str) and name not in DTYPES:
        raise UnknownTypeError(f"unknown element type {name!r}")
    return isinstance(name, str)


def are_sizes(*values: Any) -> bool:
    """Return whether all values are extents of tensors: integers from 1 to `MAX_EXTENT`."""
    return all(type(value) is int and 0 < value <= MAX_EXTENT for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformWorkload(Keyed):
    """A layout transform of a feature map from NCHW[in_block]c to NCHW[out_block]c, 1 for NCHW, and
    of its element type to `out_dtype` if given.
    """

    kind: ClassVar[str] = "layout_transform"
    batch: int
    channels: int
    height: int
    width: int
    in_block: int
    out_block: int
    dtype: str = "float32"
    out_dtype: str | None = field(default=None, metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        sized = are_sizes(*self.shape, self.in_block, self.out_block)
        typed = is_dtype(self.dtype) and (self.out_dtype is None or is_dtype(self.out_dtype))
        if not sized or not typed or self.out_dtype == self.dtype:
            raise ValueError(f"not a layout transform: {self!r}")

    @classmethod
    def between(
        cls, shape: tuple[int, ...], source: Format, destination: Format
    ) -> TransformWorkload:
        """Return the transform of a feature map of NCHW ``shape`` from one format to another."""
        other = destination.dtype if destination.dtype != source.dtype else None
        n, c, h, w = shape
        return cls(
            batch=n,
            channels=c,
            height=h,
            width=w,
            in_block=source.layout.block,
            out_block=destination.layout.block,
            dtype=source.dtype,
            out_dtype=other,
        )

    @property
    def source(self) -> Format:
        return Format(DataLayout(self.in_block), self.dtype)

    @property
    def destination(self) -> Format:
        return Format(DataLayout(self.out_block), self.out_dtype or self.dtype)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (self.batch, self.channels, self.height, self.width)

    @property
    def flops(self) -> int:
        return 0

    @classmethod
    def from_json(cls, data: JsonObject) -> TransformWorkload:
        """Invert `to_json`; ValueError, KeyError or TypeError if ``data`` is no such workload."""
        if "dtype" not in data or ("out_dtype" in data and data["out_dtype"] is None):
            raise ValueError(f"not the numerics of a transform: {data!r}")
        return _read(cls, data)

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape))
        ends = (self.source, self.destination)
        names = [str(end.layout) if self.out_dtype is None else str(end) for end in ends]
        return f"{size}, {' -> '.join(names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWorkload(Keyed):
    """An elementwise operator or a concatenation of feature maps in one layout, bound by memory.

    `operator`: ``elementwise`` is the rectified sum of one or more feature maps of equal shape;
    ``concat`` is the concatenation of their channels. `channels` has the number of each input.
    `block` is the channel block of NCHW[block]c; 1 is NCHW.
    """

    kind: ClassVar[str] = "join"
    operator: Literal["elementwise", "concat"]
    batch: int
    channels: tuple[int, ...]
    height: int
    width: int
    block: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        fits = self.operator == "concat" or (
            self.operator == "elementwise" and len(set(self.channels)) == 1
        )
        sized = are_sizes(self.batch, self.height, self.width, self.block, *self.channels)
        if not (fits and sized and self.channels and is_dtype(self.dtype)):
            raise ValueError(f"not a join: {self!r}")

    @property
    def format(self) -> Format:
        return Format(DataLayout(self.block), self.dtype)

    @property
    def input_shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        return tuple((self.batch, c, self.height, self.width) for c in self.channels)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        total = sum(self.channels) if self.operator == "concat" else self.channels[0]
        return (self.batch, total, self.height, self.width)

    @property
    def flops(self) -> int:
        return 0

    @classmethod
    def from_json(cls, data: JsonObject) -> JoinWorkload:
        """Invert `to_json`; ValueError, KeyError or TypeError if ``data`` is no such workload."""
        if "dtype" not in data:
            raise ValueError(f"a join without a dtype: {data!r}")
        return _read(cls, data)

    def __str__(self) -> str:
        channels = "+".join(map(str, self.channels))
        size = f"{self.batch}x({channels})x{self.height}x{self.width}"
        return f"{self.operator} {size}, {self.format.layout}"


_Plain = TypeVar("_Plain", TransformWorkload, JoinWorkload)


def _read(cls: type[_Plain], data: JsonObject) -> _Plain:
    fields = dict(data)
    if fields.pop("kind", None) != cls.kind:
        raise ValueError(f"not a {cls.kind} workload: {data.get('kind')!r}")
    try:
        return fields_from_json(cls, fields, exact=True)
    except JsonFormError as error:
        raise ValueError(f"not a {cls.kind} workload: {error}") from None
