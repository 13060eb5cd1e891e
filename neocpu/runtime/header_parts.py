"""What the lists of an artifact's header hold: tensors' places, and how calls are made."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.json_codec import OMIT_DEFAULT, json_name

Call: TypeAlias = tuple[str, tuple[int, ...]]
"""A kernel's name, and the numbers of its tensors: inputs, then weights, activations and slices."""

Launch: TypeAlias = tuple[int, int]
"""Calls whose loops are shared out together: the position of the first one, and how many."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one array lies in a block of memory: a weight, or a tensor between two kernels.

    Attributes
    ----------
    offset : int
        Bytes from the start of the weights section, a multiple of `WEIGHT_ALIGN`; or of the arena.
    dtype : str
        A key of `neocpu.foundation.dtypes.DTYPES`.
    shape : tuple of int
        C-contiguous, in the (packed) layout the compiled code reads.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.offset, self.dtype, list(self.shape)]

    @classmethod
    def from_json(cls, data: Any) -> Placement:
        """Inverse of `to_json`."""
        offset, dtype, shape = data
        return cls(offset, dtype, tuple(shape))

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + math.prod(self.shape) * bytes_of(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Calls that are made again and again, or, with a limit of one, perhaps.

    Attributes
    ----------
    first, end : int
        Position of the first call, and the one behind the last.
    limit : int
        How often at most.
    count : int, optional
        Number of a tensor: how often (int64), or whether (bool).
    unless : int, optional
        Of a tensor: whether not at all (bool).
    condition : int, optional
        Of a tensor, looked at after each time: whether once more (bool). In JSON, ``while``.
    index : int, optional
        Of an activation that is given the number of the time, from 0 (int64).
    """

    first: int
    end: int
    limit: int
    count: int | None = field(default=None, metadata=OMIT_DEFAULT)
    unless: int | None = field(default=None, metadata=OMIT_DEFAULT)
    condition: int | None = field(default=None, metadata={**OMIT_DEFAULT, **json_name("while")})
    index: int | None = field(default=None, metadata=OMIT_DEFAULT)


def times_of_calls(calls: int, repeats: Iterable[Repeat]) -> tuple[int, ...]:
    """Return how often a run makes each of so many calls: once where data decide."""
    times = [1] * calls
    for each in repeats:
        if each.count is None and each.unless is None and each.condition is None:
            for place in range(each.first, each.end):
                times[place] *= each.limit
    return tuple(times)


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a tensor, which moves on with each time that calls are repeated.

    Attributes
    ----------
    repeat : int
        Position among the header's repeats.
    tensor : int
        Number of the tensor that it is a part of: no slice.
    backward : bool
        Whether it begins with the last of as many parts as the repeat's limit.
    dtype : str
    shape : tuple of int
        Its bytes are a multiple of `ARGUMENT_ALIGN`.
    """

    repeat: int
    tensor: int
    backward: bool
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """Return the JSON form."""
        return [self.repeat, self.tensor, self.backward, self.dtype, list(self.shape)]

    @classmethod
    def from_json(cls, data: list[Any]) -> Slice:
        """Inverse of `to_json`."""
        repeat, tensor, backward, dtype, shape = data
        return cls(repeat, tensor, backward, dtype, tuple(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prologue:
    """How weights are packed when an artifact is loaded, of others.

    Attributes
    ----------
    offset : int
        Bytes of the weights section: what plans read from there on is made.
    made_bytes : int
        Of all that is made.
    weights, made : tuple of Placement
        What is read, in the section; and made, in so many bytes behind it.
    calls : tuple of Call
        Of kernels, in turn. Tensors go by number: ``weights``, then ``made``.
    seconds : float or None
        What it took where the artifact was compiled; None if it was not loaded there.
    """

    offset: int
    made_bytes: int
    weights: tuple[Placement, ...]
    made: tuple[Placement, ...]
    calls: tuple[Call, ...]
    seconds: float | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """What is made: bytes, how many weights, and how long that took."""
        return {"bytes": self.made_bytes, "weights": len(self.made), "seconds": self.seconds}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
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
        """Inverse of `to_json`, for what the C library has read: it leaves the seconds alone."""
        seconds = data.get("seconds")
        return cls(
            offset=data["offset"],
            made_bytes=data["arena_bytes"],
            weights=tuple(map(Placement.from_json, data["weights"])),
            made=tuple(map(Placement.from_json, data["activations"])),
            calls=tuple((kernel, tuple(tensors)) for kernel, *tensors in data["calls"]),
            seconds=seconds if isinstance(seconds, int | float) else None,
        )
