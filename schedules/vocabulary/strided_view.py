"""Strided views: transposes and reshapes of a tensor, for kernels that then need no copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Part: TypeAlias = tuple[int, int]
"""The extent of a part of an axis, and the distance of neighbours along it, in elements."""


@dataclass(frozen=True, slots=True)
class StridedView:
    """An array whose elements lie at regular distances in a flat tensor of `size` elements.

    `offset` is the place of the first. `axes` are the parts of each axis, outermost first: several
    where a reshape joined axes that are not one regular sequence, none for an axis of extent 1.
    """

    size: int
    offset: int
    axes: tuple[tuple[Part, ...], ...]

    @classmethod
    def of(cls, shape: Sequence[int]) -> StridedView:
        size = math.prod(shape)
        reshaped = cls(size, 0, (((size, 1),),)).reshaped(shape)
        assert reshaped is not None
        return reshaped

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(math.prod(extent for extent, _ in parts) for parts in self.axes)

    def permuted(self, order: Sequence[int]) -> StridedView:
        return StridedView(self.size, self.offset, tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> StridedView | None:
        """Return the row-major view in another shape; None if it needs a copy or does not fit."""
        if math.prod(shape) != math.prod(self.shape):
            return None
        rest = [part for parts in self.axes for part in parts if part[0] != 1]
        axes: list[tuple[Part, ...]] = []
        for missing in reversed(shape):
            taken: list[Part] = []
            while missing > 1:
                extent, stride = rest.pop()
                inner = math.gcd(extent, missing)
                if inner != min(extent, missing):
                    return None
                if extent > inner:
                    rest.append((extent // inner, stride * inner))
                taken.insert(0, (inner, stride))
                missing //= inner
            axes.insert(0, _merged(taken))
        return None if rest else StridedView(self.size, self.offset, tuple(axes))

    def sliced(self, axis: int, first: int, extent: int, step: int = 1) -> StridedView | None:
        """Return a view of some elements of an axis; None if the axis is not regular."""
        parts = self.axes[axis]
        if len(parts) > 1:
            return None
        stride = parts[0][1] if parts else 0
        own = ((extent, stride * step),) if extent > 1 else ()
        axes = (*self.axes[:axis], own, *self.axes[axis + 1 :])
        return StridedView(self.size, self.offset + first * stride, axes)

    def broadcast(self, shape: Sequence[int]) -> StridedView | None:
        """Return the view repeated along new leading axes and axes of extent 1, or None."""
        missing = len(shape) - len(self.axes)
        if missing < 0:
            return None
        axes: list[tuple[Part, ...]] = []
        for extent, parts, own in zip(
            shape, ((),) * missing + self.axes, (1,) * missing + self.shape, strict=True
        ):
            if own not in (1, extent):
                return None
            axes.append(parts if own == extent else ((extent, 0),))
        return StridedView(self.size, self.offset, tuple(axes))

    def inverse(self, shape: Sequence[int]) -> StridedView | None:
        """Return the map of the tensor, of ``shape``, to places in the array, if every element of
        it occurs once in this view.
        """
        placed: list[tuple[int, int, int]] = []
        distance = 1
        for extent, stride in reversed([part for parts in self.axes for part in parts]):
            placed.append((stride, extent, distance))
            distance *= extent
        parts = tuple((extent, own) for _, extent, own in sorted(placed, reverse=True))
        return StridedView(self.size, 0, (parts,)).reshaped(shape)

    def is_regular(self, axis: int) -> bool:
        """Return whether neighbours along an axis are all at the same distance."""
        return len(self.axes[axis]) < 2

    def stride(self, axis: int) -> int:
        """Return the distance of neighbours along a regular axis; 0 if it has one element."""
        parts = self.axes[axis]
        assert len(parts) < 2, self
        return parts[0][1] if parts else 0

    def in_parts_of(self, other: StridedView) -> StridedView:
        """Return the view with parts of extent 1 where ``other``, of other extents, has more parts
        in its axes. They lie behind the parts that ``other`` has there.
        """
        if len(self.axes) != len(other.axes):
            return self
        matched = [_matched(*each) for each in zip(self.axes, other.axes, strict=True)]
        made = {its: own for pairs in matched for own, its in pairs if own is not None}
        missing = [its for pairs in matched for own, its in pairs if own is None]
        for extent, stride in sorted(missing, key=lambda part: part[1]):
            inner = (own for its, own in made.items() if math.prod(its) == stride)
            made[extent, stride] = (1, math.prod(next(inner, (1, stride))))
        axes = (tuple(made[its] if own is None else own for own, its in pairs) for pairs in matched)
        return StridedView(self.size, self.offset, tuple(axes))

    def start(self, index: Sequence[Any]) -> Any:
        """Return the place of the first element with ``index`` on the leading axes."""
        place: Any = self.offset
        for number, parts in zip(index, self.axes, strict=False):
            inner = math.prod(extent for extent, _ in parts)
            whole = inner
            for extent, stride in parts:
                inner //= extent
                digit = number if inner == 1 else number // inner
                if stride:
                    place = place + (digit if extent * inner == whole else digit % extent) * stride
        return place


def _matched(parts: tuple[Part, ...], others: tuple[Part, ...]) -> list[tuple[Part | None, Part]]:
    """Return the part that stands for each of ``others``, with it; None if there is none."""
    left, pairs = list(parts), []
    for number, other in enumerate(others):
        is_last = len(left) == len(others) - number
        taken = left and (is_last or left[0][0] == other[0])
        pairs.append((left.pop(0) if taken else None, other))
    return [(part, part) for part in parts] if left else pairs


def _merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    merged: list[Part] = []
    for extent, stride in parts:
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = (merged[-1][0] * extent, stride)
        else:
            merged.append((extent, stride))
    return tuple(merged)
