"""The items of an artifact header's lists: places of tensors, calls, repeats and slices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.json_codec import OMIT_DEFAULT, JsonObject, json_name

Call: TypeAlias = tuple[str, tuple[int, ...]]
"""A kernel's name, and the numbers of its tensors: inputs, then weights, activations and slices."""

Launch: TypeAlias = tuple[int, int]
"""Calls whose loops threads share jointly: the position of the first call, and their number."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of an array in a block of memory: a weight, or a tensor between two kernels."""

    offset: int  # bytes into the weights section (a multiple of `WEIGHT_ALIGN`) or the arena
    dtype: str  # a key of `DTYPES`
    shape: tuple[int, ...]  # in the layout that the compiled code reads, C-contiguous

    def to_json(self) -> list[Any]:
        return [self.offset, self.dtype, list(self.shape)]

    @classmethod
    def from_json(cls, data: Any) -> Placement:
        offset, dtype, shape = data
        return cls(offset, dtype, tuple(shape))

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * bytes_of(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Calls that are repeated; with a limit of one, they may be skipped.

    `first` and `end` are the positions of the first call, and of the one after the last. `limit` is
    the most repetitions. Other fields are tensor numbers: `count` holds how often (int64) or
    whether (bool) the calls run; `unless` skips them if true; `condition` (``while`` in JSON)
    decides after each repetition on another; `index` (int64) receives its number, from 0.
    """

    first: int
    end: int
    limit: int
    count: int | None = field(default=None, metadata=OMIT_DEFAULT)
    unless: int | None = field(default=None, metadata=OMIT_DEFAULT)
    condition: int | None = field(default=None, metadata={**OMIT_DEFAULT, **json_name("while")})
    index: int | None = field(default=None, metadata=OMIT_DEFAULT)


def times_of_calls(calls: int, repeats: Iterable[Repeat]) -> tuple[int, ...]:
    """Return how often a run makes each of ``calls`` calls: once where data decide."""
    times = [1] * calls
    for each in repeats:
        if each.count is None and each.unless is None and each.condition is None:
            for place in range(each.first, each.end):
                times[place] *= each.limit
    return tuple(times)


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a tensor that advances with each repetition of calls."""

    repeat: int  # position among the header's repeats; its limit is the number of parts
    tensor: int  # the whole tensor, which is no slice
    backward: bool  # whether it begins with the last part
    dtype: str
    shape: tuple[int, ...]  # of a part, whose bytes are a multiple of `ARGUMENT_ALIGN`

    def to_json(self) -> list[Any]:
        return [self.repeat, self.tensor, self.backward, self.dtype, list(self.shape)]

    @classmethod
    def from_json(cls, data: list[Any]) -> Slice:
        repeat, tensor, backward, dtype, shape = data
        return cls(repeat, tensor, backward, dtype, tuple(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prologue:
    """The packing of some weights from others when an artifact is loaded.

    `offset`: bytes of the weights section; weights that plans read beyond it are packed. `weights`
    and `made`: those of the section that are read, and the packed ones; `calls` number them in this
    order. `seconds`: time of packing where the artifact was compiled, if it was loaded there.
    """

    offset: int
    made_bytes: int
    weights: tuple[Placement, ...]
    made: tuple[Placement, ...]
    calls: tuple[Call, ...]
    seconds: float | None = None

    @property
    def summary(self) -> JsonObject:
        return {"bytes": self.made_bytes, "weights": len(self.made), "seconds": self.seconds}

    def to_json(self) -> JsonObject:
        return {
            "offset": self.offset,
            "arena_bytes": self.made_bytes,
            "weights": [placement.to_json() for placement in self.weights],
            "activations": [placement.to_json() for placement in self.made],
            "calls": [[kernel, *tensors] for kernel, tensors in self.calls],
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: Any) -> Prologue:
        seconds = data.get("seconds")  # the one item that the C library has not checked
        return cls(
            offset=data["offset"],
            made_bytes=data["arena_bytes"],
            weights=tuple(map(Placement.from_json, data["weights"])),
            made=tuple(map(Placement.from_json, data["activations"])),
            calls=tuple((kernel, tuple(tensors)) for kernel, *tensors in data["calls"]),
            seconds=seconds if isinstance(seconds, int | float) else None,
        )
