"""The shapes, and some values, that a caller requests for a model's inputs."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, SupportsIndex, TypeAlias, TypeGuard

from neocpu.foundation.errors import UsageError

MAX_EXTENT: Final = 2**63 - 1  # the largest extent that an ONNX file can contain
MAX_ELEMENTS: Final = 1 << 30
"""The most elements of a tensor. Kernels index with 32-bit integers, and blocks of channels may pad
a tensor to about twice its size."""

Value: TypeAlias = float | tuple[float, ...]
"""An input's value: one number for all elements, or one for each."""

Given: TypeAlias = Sequence[int] | Sequence[float] | float
"""An input's shape, as integers; or its value, as a number or floats."""

RangedShape: TypeAlias = "Sequence[int | range]"
"""An input's shape with ranges of sizes; or the range of a named dimension."""


_NUMBER: Final = r"-?\d{1,18}(?:\.\d{1,18})?"


def parse_given(text: str) -> tuple[str, Given] | None:
    """Parse ``NAME:1,3,224,224``, ``NAME=16000``, ``NAME=480,640``; NAME may contain : and =."""
    if match := re.fullmatch(r"(.+):(\d{1,18}(?:,\d{1,18})*)", text):
        return match[1], tuple(map(int, match[2].split(",")))
    if match := re.fullmatch(r"(.+)=(-?\d{1,18})(\.\d{1,18})?", text):
        return match[1], float(match[2] + match[3]) if match[3] else int(match[2])
    if match := re.fullmatch(rf"(.+?)=({_NUMBER}(?:,{_NUMBER})+)", text):
        return match[1], tuple(map(float, match[2].split(",")))
    return None


@dataclass(frozen=True, slots=True)
class InputShapes:
    """Complete shapes of some inputs, and the batch of the others."""

    by_name: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    batch: int | None = None  # the first extent of other inputs where it is dynamic or 1
    values: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def parse(
        cls, shapes: Mapping[str, Given | RangedShape] | None, batch: int | None = None
    ) -> InputShapes:
        """Check the arguments of the Python interface, where a number is a value."""
        if shapes is not None and not isinstance(shapes, Mapping):
            kind = type(shapes).__name__
            raise UsageError(
                f"shapes are a mapping from names of inputs to shapes, got {kind}; "
                "neocpu.compile alone takes a sequence of them, a set"
            )
        given = (shapes or {}).items()
        values: dict[str, Value] = {
            name: each if isinstance(each, int | float) else tuple(map(float, each))
            for name, each in given
            if _is_value(each)
        }
        by_name = {name: _extents(name, shape) for name, shape in given if name not in values}
        is_count = isinstance(batch, SupportsIndex) and not isinstance(batch, bool)
        if batch is not None and not (is_count and operator.index(batch) >= 1):
            raise UsageError(f"the batch must be a whole number, 1 or more, got {batch!r}")
        for extent in (*itertools.chain(*by_name.values()), *([] if batch is None else [batch])):
            if operator.index(extent) > MAX_EXTENT:
                raise UsageError(f"no tensor has an extent of {extent}: give smaller shapes")
        return cls(by_name, None if batch is None else operator.index(batch), values)

    def __bool__(self) -> bool:
        return bool(self.by_name) or bool(self.values) or self.batch is not None

    def require_batch(self, name: str) -> None:
        """Raise if the batch contradicts the shape of an input, and no other input takes it."""
        shape = self.by_name[name]
        if self.batch is not None and shape[:1] != (self.batch,):
            raise UsageError(
                f"--shape {name}:{','.join(map(str, shape))} and --batch {self.batch} contradict "
                "each other: --shape says all of its input's shape, and no other input has a batch"
            )


NO_SHAPES: Final = InputShapes()  # no requests: all shapes are the model's


def _is_value(given: Any) -> TypeGuard[float | Sequence[float]]:
    """Return whether an argument is a value: a number, or a sequence of floats."""
    if isinstance(given, int | float):
        return True
    numbers = isinstance(given, list | tuple) and bool(given)
    return numbers and all(isinstance(each, float) for each in given)


def value_text(value: Value) -> str:
    elements = value if isinstance(value, tuple) else (value,)
    return ",".join(f"{each}".removesuffix(".0") for each in elements)


def is_ranged(given: Any) -> bool:
    """Return whether an argument is a range of sizes, or a shape that has some."""
    shape = given if isinstance(given, list | tuple) else [given]
    return any(isinstance(each, range) for each in shape)


def _extents(name: str, shape: Any) -> tuple[int, ...]:
    if is_ranged(shape):
        raise UsageError(
            f"the shape of input '{name}' has ranges of sizes, which neocpu.compile alone takes, "
            "in one mapping: give ranges or a set, not both"
        )
    try:
        return tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise UsageError(
            f"the shape of input '{name}' must be a sequence of whole numbers, got {shape!r}"
        ) from None
