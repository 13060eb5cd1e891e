"""Rows that a run finds, of each row of a batch some: what an operator makes of them.

A NonMaxSuppression of a batch finds boxes of the first image, then of the second, and so on, each
with its image's number. Other plans find the same boxes of an image, under another number. So of
each element of such rows it is followed how it depends on the number: ``factor * number + rest``,
and within which bounds the rest is; an index into a tensor that all images share points to its own
image then, if the factor is how many elements an image has there and the rest is less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from neocpu.passes.apart.part import MixedError, Shape

Numbers: TypeAlias = npt.NDArray[np.float64]
_UNKNOWN: Final = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """The rows of a tensor's first axis, as many of each row of the batch at most.

    Attributes
    ----------
    factor : array
        Of the number of the batch's row, for each element of a row: of the tensor's other axes.
    low, high : array
        Bounds of the rest, infinite where there are none.
    """

    factor: Numbers
    low: Numbers
    high: Numbers

    def mapped(self, function: Callable[[Numbers], Any]) -> Picked:
        """Return it with the elements of a row moved."""
        return Picked(*(np.asarray(function(each)) for each in (self.factor, self.low, self.high)))

    @property
    def numbered(self) -> tuple[tuple[int, int], ...]:
        """Which elements of a row, in C order, depend on the number, each with its factor."""
        flat = self.factor.reshape(-1)
        return tuple((int(place), int(flat[place])) for place in np.flatnonzero(flat))


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows a run has found, of all rows of the batch."""


def picked_boxes(classes: int, boxes: int) -> Picked:
    """Return what a NonMaxSuppression selects: image, class and box."""
    high = np.array([0, classes - 1, boxes - 1], float)
    return Picked(np.array([1.0, 0, 0]), np.zeros(3), high)


def plain(shape: Shape) -> Picked:
    """Return rows of such elements, none of which depends on the number."""
    unknown = np.full(shape, _UNKNOWN)
    return Picked(np.zeros(shape), -unknown, unknown)


def reshaped(picked: Picked, given: Shape, shape: Shape) -> Picked:
    """Return rows whose elements are in another shape."""
    if not shape or shape[0] != given[0]:
        raise MixedError("takes rows apart that each row of a batch has some of")
    return picked.mapped(lambda each: each.reshape(shape[1:]))


def combined(name: str, operands: Sequence[Picked], shape: Shape) -> Picked:
    """Return what an elementwise operator makes of rows, and of what is the same for all.

    Parameters
    ----------
    name : str
        The operator's, as in ``relax.add``.
    operands : sequence of Picked
        Constants among them: they are their own bounds.
    shape : tuple of int
        Of a row that it returns.
    """
    spread = [one.mapped(lambda each: np.broadcast_to(each, shape)) for one in operands]
    if name in ("relax.astype", "relax.broadcast_to"):
        return spread[0]
    if name == "relax.add":
        a, b = spread
        return Picked(a.factor + b.factor, a.low + b.low, a.high + b.high)
    if name == "relax.multiply":
        for one, other in (spread, spread[::-1]):
            if _is_constant(other) and (other.low >= 0).all():
                by = other.low
                with np.errstate(invalid="ignore"):  # no bound, times zero
                    return Picked(*(np.nan_to_num(e * by) for e in (one.factor, one.low, one.high)))
    if any(one.factor.any() for one in spread):
        raise MixedError("computes with the numbers of the rows of a batch")
    return plain(shape)


def _is_constant(one: Picked) -> bool:
    return bool((one.low == one.high).all()) and not one.factor.any()


def constant(value: npt.NDArray[Any]) -> Picked:
    """Return the elements of a constant row."""
    numbers = value.astype(float)
    return Picked(np.zeros(value.shape), numbers, numbers)


def offsets(picked: Picked, extents: Sequence[int], rows: int) -> tuple[Picked, list[int]]:
    """Return where in a tensor rows of indices point to, and its extents for one row of the batch.

    Parameters
    ----------
    picked : Picked
        Of the last axis an index for each extent.
    """
    last = picked.factor * (rows - 1) + picked.high
    if (picked.low < 0).any() or (last >= np.array(extents)).any():
        raise MixedError("may point to other rows of a batch")
    of_one = [
        extent // rows if factor * rows == extent and high < factor else extent
        for extent, factor, high in zip(extents, picked.factor, picked.high, strict=True)
    ]
    strides = np.cumprod([1, *extents[:0:-1]])[::-1]
    return picked.mapped(lambda each: (each * strides).sum(axis=-1)), of_one


def own_rows(picked: Picked, inner: int) -> None:
    """Check that indices into an axis that has ``inner`` of each row point to the own one's."""
    own = (picked.factor == inner) & (picked.low >= 0) & (picked.high < inner)
    if not own.all():
        raise MixedError("may pick from other rows of a batch")
