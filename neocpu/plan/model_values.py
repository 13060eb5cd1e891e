"""The model's tensors in an artifact's arena: their places, types and layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.foundation.json_codec import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelValue:
    """A tensor of the model that is in the arena at some point of a run."""

    name: str  # name of the tensor in the model
    calls: int  # number of calls after which it is there; left-out ones count
    offset: int  # first byte of its place in the arena
    dtype: str  # type of its elements as they are stored
    shape: tuple[int, ...]  # shape in the model; NCHW of feature maps in blocks
    block: int = 1  # channels side by side, as in NCHW[16]c; 1 as in the model
    error_factor: float = 1.0  # of its kernel, as a multiple of direct summation in float32
    scale: float = 0.0  # stored integers mean ``(stored - zero) * scale``; scale 0: themselves
    zero: int = 0
    order: tuple[int, ...] = ()  # the model's channel at each place; empty if in order

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in which it lies, padded lanes included."""
        if self.block == 1:
            return self.shape
        n, c, h, w = self.shape
        return (n, -(-c // self.block), h, w, self.block)

    @property
    def end(self) -> int:
        """The first byte of the arena after the tensor."""
        return self.offset + math.prod(self.stored_shape) * bytes_of(self.dtype)

    def to_json(self) -> list[Any]:
        usual = {each.name: each.default for each in fields(self) if each.name in _MORE}
        more = {key: getattr(self, key) for key in usual if getattr(self, key) != usual[key]}
        place = [self.name, self.calls, self.offset, self.dtype, list(self.shape)]
        return [*place, more] if more else place

    @classmethod
    def from_json(cls, data: Any) -> ModelValue:
        """Inverse of `to_json`. Raises TypeError, ValueError, KeyError: the data are no tensor."""
        name, calls, offset, dtype, shape, *more = data
        value = cls(
            name=str(name),
            calls=_natural(calls),
            offset=_natural(offset),
            dtype=str(dtype),
            shape=tuple(map(_natural, shape)),
            **_known(*more),
        )
        channels = (*value.shape[1:2], *range(len(value.order)))  # how many, and their numbers
        in_order = not value.order or (len(value.order), *sorted(value.order)) == channels
        if dtype not in DTYPES or (value.block > 1 and len(value.shape) != 4) or not in_order:
            raise ValueError(f"not a tensor: {data!r}")
        return value


def values_in_order(
    values: Iterable[ModelValue], calls: int, arena_bytes: int
) -> tuple[ModelValue, ...]:
    """Return the tensors of a plan in the order in which they are made.

    Raises ValueError: a tensor lies beyond the arena, or is made after the last call.
    """
    ordered = tuple(sorted(values, key=lambda value: value.calls))
    for value in ordered:
        if value.end > arena_bytes or value.calls > calls:
            raise ValueError(f"tensor '{value.name}' lies beyond the arena")
    return ordered


def _natural(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"not a count: {number!r}")
    return number


def _known(more: Mapping[str, Any] | None = None) -> JsonObject:
    """Return the unusual fields of a tensor, without those that only a later version knows."""
    return {key: _MORE[key](value) for key, value in dict(more or {}).items() if key in _MORE}


_MORE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "block": lambda count: max(1, _natural(count)),
    "error_factor": float,
    "scale": float,
    "zero": _natural,
    "order": lambda channels: tuple(map(_natural, channels)),
}
"""The readers of the fields that `ModelValue.to_json` writes only where they are unusual."""
