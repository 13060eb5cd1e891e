"""Blocks of several nodes; each node reads the result of the previous one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.fuzz.graph_builder import FLOAT, Argument, GraphBuilder, Value


class _Stuck(Exception):
    """The opset lacks an operator, or a tensor would be too large."""


class Writer:
    """Adds nodes whose first result is needed, and makes the constants that they read."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.rng = builder.rng
        self.chance = builder.chance
        self.count = builder.count

    def add(self, op: str, *arguments: Argument, **named: Argument) -> Value:
        """Add a node of one result."""
        return self.parts(op, *arguments, outputs=1, **named)[0]

    def parts(
        self, op: str, *arguments: Argument, outputs: int, **named: Argument
    ) -> tuple[Value, ...]:
        """Add a node of several results."""
        made = self.builder.add(op, *arguments, outputs=outputs, **named)
        if made is None:
            raise _Stuck
        return made

    def small(self, *shape: int) -> Value:
        """Return a constant of numbers up to a quarter, so that softmaxes have several terms."""
        return self.builder.constant(self.builder.array(shape) / FLOAT.type(8))

    def number(self, value: float) -> np.ndarray:
        """Return one number, at times with dimensions of its own."""
        return np.full(self.rng.weighted([(), (1,), (1, 1, 1)], [6, 2, 1]), value, FLOAT)

    def reshape(self, x: Value, *shape: int) -> Value:
        """Add a Reshape."""
        return self.add("Reshape", x, np.array(shape, np.int64))

    def cut(self, x: Value, axis: int, first: int, end: int) -> Value:
        """Add a Slice along one axis."""
        return self.add("Slice", x, starts=[first], ends=[end], axes=[axis])

    def split(self, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
        """Cut an axis to pieces: a Split, or Slices."""
        if self.chance(0.5):
            given: dict[str, Argument] = {"split": np.array(sizes, np.int64)}
            return list(self.parts("Split", x, outputs=len(sizes), axis=axis, **given))
        ends = np.cumsum(sizes).tolist()
        return [self.cut(x, axis, end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def divisor(self, extent: int, most: int = 8) -> int:
        """Return one of the numbers that divide an extent."""
        return self.rng.choice([n for n in range(1, min(extent, most) + 1) if extent % n == 0])

    def value(self, rank: int, low: Sequence[int], high: Sequence[int]) -> Value:
        """Return a value whose extents are within bounds, or a new input."""
        found = self.builder.choose(
            lambda v: (
                v.dtype == FLOAT
                and v.rank == rank
                and all(a <= n <= b for a, n, b in zip(low, v.shape, high, strict=True))
            )
        )
        if found is not None and self.chance(0.8):
            return found
        shape = [self.builder.near(a, b) for a, b in zip(low, high, strict=True)]
        return self.builder.feed(self.builder.array(shape))


Results = tuple[Value, ...] | None


def recipe(write: Callable[[Writer], Value]) -> Callable[[GraphBuilder, str], Results]:
    """Return a block as a recipe; one that ends early leaves the nodes it has.

    Its constants are none of the model's inputs: one of a dozen shapes would be.
    """

    def apply(builder: GraphBuilder, name: str) -> Results:
        before, builder.given = builder.given, 0.0
        try:
            return (write(Writer(builder)),)
        except _Stuck:
            return None
        finally:
            builder.given = before

    return apply
